"""A text that repeats an earlier one is read as if it did not, whatever it has, at the cost of what is new."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.wire.resent import LAST_PLACES, MOST_PARTS, KnownText, NewText, compare, parse_new, parse_whole
from callfuse.wire.values import MOST_VALUES

KEY = "messages"
MARK = "a mark of the tests"
COMPACT, PYTHON, PRETTY = (",", ":"), (", ", ": "), (" ,\n\t", " :  ")
STYLES = st.sampled_from([COMPACT, PYTHON, PRETTY])


def read(text: bytes, known: KnownText | None) -> tuple[NewText | None, bool]:
    """What is read of a text, and whether only what is new was parsed."""
    shared = None if known is None else compare(text, known)
    if shared is not None and shared.is_proven:
        found = parse_new(text, KEY, shared, MARK)
        return (found, True) if found else (parse_whole(text, KEY, None, MARK), False)
    return parse_whole(text, KEY, shared, MARK), False


def plain(text: bytes) -> Any:
    """What the parser gives for a text; None if it refuses it."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def as_plain(text: bytes, known: KnownText | None) -> KnownText | None:
    """Check that a text is read as the parser would read it. Returns what is known of it then."""
    before = None if known is None else orjson.dumps(known.payload)
    found, _ = read(text, known)
    assert (None if found is None else found.payload) == plain(text)
    assert known is None or orjson.dumps(known.payload) == before, "what is known is not changed"
    if found is None or found.known is None:
        return None
    assert b"".join([*found.known.parts, found.known.rest]) == text
    assert len(found.known.counts) in (0, len(found.known.parts))
    assert all(found.known.parts)
    return found.known


TEXTS = st.one_of(
    st.sampled_from(
        ["", "]}", '"]}', '],"model":1}', '},{"role"', "\\", '\\"', "\u2028", "\x00", "é", "😀", "\\u005d"]
    ),
    st.text(max_size=12),
)
KEYS = st.sampled_from(["role", "content", KEY, "model", "tools", "messages ", "mes\\u0073ages"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        TEXTS, st.integers(-9, 2**70), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([None, True])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": VALUES}),
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": st.lists(VALUES, max_size=2), KEY: st.lists(VALUES, max_size=2)}
    ),
    VALUES,
)


@st.composite
def members(draw: st.DrawFn) -> tuple[list[tuple[str, Any]], int]:
    """The members of an object, some of equal keys, and which of them grows; its own value is left out."""
    around = draw(st.lists(st.tuples(KEYS, VALUES | st.lists(MESSAGES, max_size=3)), max_size=4))
    at = draw(st.integers(0, len(around)))
    around.insert(at, (KEY, None))
    return around, at


def written(
    around: list[tuple[str, Any]], at: int, history: list[Any], style: tuple[str, str], *, is_ascii: bool
) -> bytes:
    """An object with these members, equal keys included."""
    comma, colon = style

    def dumped(value: Any) -> str:
        return json.dumps(value, separators=style, ensure_ascii=is_ascii)

    values = [history if one == at else value for one, (_, value) in enumerate(around)]
    body = comma.join(f'"{key}"{colon}{dumped(value)}' for (key, _), value in zip(around, values, strict=True))
    return f"{{{body}}}".encode("utf-8", "surrogatepass")


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Requests one after another: mostly with messages added, some edited, cut or broken."""
    around, at = draw(members())
    style, ascii_ = draw(STYLES), draw(st.booleans())
    history = draw(st.lists(MESSAGES, min_size=1, max_size=4))
    bodies: list[bytes] = []
    for _ in range(draw(st.integers(2, 6))):
        body = written(around, at, history, style, is_ascii=ascii_)
        if draw(st.integers(0, 4)) == 0:
            cut = draw(st.integers(0, len(body)))
            body = (
                body[:cut]
                + draw(st.sampled_from([b"", b"]", b",", b'"', b"}", b"[", b"\\", b"1", b"\xff", b" "]))
                + body[cut:]
            )
        bodies.append(body)
        change = draw(st.integers(0, 5))
        if change == 0:
            history = history[: draw(st.integers(0, len(history)))]
        elif change == 1 and history:
            history = [*history]
            history[draw(st.integers(0, len(history) - 1))] = draw(MESSAGES)
        elif change == 2:
            around = [*around]
            if (one := draw(st.integers(0, len(around) - 1))) != at:
                around[one] = around[one][0], draw(VALUES)
        history = [*history, *draw(st.lists(MESSAGES, max_size=3))]
    return bodies


@given(conversations())
def test_every_text_is_read_as_if_it_were_the_first(bodies: list[bytes]) -> None:
    """Whatever it shares with the one before it: equal keys, nested lists, strings like ends, broken JSON included."""
    known: KnownText | None = None
    for body in bodies:
        known = as_plain(body, known)


OLD = b'{"model":"m","messages":[{"role":"user"}],"tools":[{"messages":[1]}]}'


def proven(*bodies: bytes) -> KnownText:
    """What is known after these texts."""
    known: KnownText | None = None
    for body in bodies:
        found, _ = read(body, known)
        assert found is not None
        known = found.known
    assert known is not None
    assert known.counts
    return known


@given(
    st.lists(
        st.sampled_from(
            [
                ",",
                "[",
                "]",
                "{",
                "}",
                '"',
                ":",
                "0",
                "1.5",
                "e9",
                "\\",
                " ",
                "\n",
                "\xff",
                '"messages"',
                "[1]",
                '{"a":1}',
            ]
        )
    )
)
@example(["]", ",", '"messages"', ":", "[", "1"])
@example(["]", ",", "[", "1"])
@example([",", "1", "]", ",", "[", "1"])
@example(["1"])
@example([",", "1"])
@example(["e9"])
def test_only_elements_pass_for_elements(pieces: list[str]) -> None:
    """Between a place and the rest, whatever stands there, after a number too."""
    for last in (b'{"role":"user"}', b"1", b'"x"', b"[]", b'"\\\\"'):
        old = OLD.replace(b'{"role":"user"}', last)
        known = proven(old, OLD.replace(b'{"role":"user"}', last + b",2"))
        begin = known.parts[0] if len(known.parts) == 1 else b"".join(known.parts)
        as_plain(begin + "".join(pieces).encode("latin-1") + known.rest, known)


@pytest.mark.parametrize("style", [COMPACT, PYTHON])
@pytest.mark.parametrize("at", range(3))
def test_a_conversation_that_goes_on_is_parsed_from_its_third_request_on_by_what_is_new(
    style: tuple[str, str], at: int
) -> None:
    """Wherever its messages stand, however long it gets; the parts do not grow in number with it."""
    around: list[tuple[str, Any]] = [("model", "m"), ("tools", [{"model": [1], "messages": []}])]
    around.insert(at, (KEY, None))
    history: list[Any] = []
    known: KnownText | None = None
    for number in range(3 * MOST_PARTS):
        history += [{"role": "assistant", "content": [number]}, {"role": "user", "content": f'"],"tools" {number}'}]
        body = written(around, at, history, style, is_ascii=True)
        found, was_new = read(body, known)
        assert found is not None
        assert found.payload == plain(body)
        assert was_new is (number >= 2)
        known = found.known
        assert known is not None
        assert LAST_PLACES <= len(known.parts) <= MOST_PARTS or number < LAST_PLACES


def test_a_client_that_moves_its_marks() -> None:
    """Claude Code marks its two newest messages for the vendor's cache: what stands before them is not parsed again."""
    known: KnownText | None = None
    history: list[dict[str, Any]] = []
    for number in range(20):
        history += [{"role": "assistant", "content": [{"text": number}]}, {"role": "user", "content": [{"text": "x"}]}]
        marked = [*history[:-2], *[{**one, "content": [{**one["content"][0], "cache": 1}]} for one in history[-2:]]]
        body = written([("model", "m"), (KEY, None), ("system", [])], 1, marked, COMPACT, is_ascii=True)
        found, was_new = read(body, known)
        assert found is not None
        assert found.payload == plain(body)
        assert was_new is (number >= 3), number
        known = found.known


def test_messages_within_messages() -> None:
    """They look as messages do, and are not places: what is around them is read as it is, each time."""
    inner = b'[{"role":"a"},{"role":"b"}]'
    old = b'{"messages":[{"role":"user","content":' + inner + b'}],"model":"m"}'
    known: KnownText | None = None
    for _ in range(5):
        known = as_plain(old, known)
        old = old.replace(b'}],"model"', b'},{"role":"user","content":' + inner + b'}],"model"')


def test_a_text_that_comes_again_as_it_is() -> None:
    """Is not parsed at all."""
    known = proven(OLD, OLD)
    found, was_new = read(OLD, known)
    assert was_new
    assert found is not None
    assert found.payload == plain(OLD)


def test_a_list_that_is_not_the_one_that_counts() -> None:
    """Of equal keys the last one counts; a place in the first is none, and is not tried again."""
    old = b'{"messages":[1],"tools":1,"messages":[2],"tools":[3]}'
    known: KnownText | None = None
    for grown in (old, old.replace(b"[1]", b"[1,5]"), old.replace(b"[1]", b"[1,5,6]")):
        known = as_plain(grown, known)
        assert known is None or not known.counts


def test_a_text_of_too_many_values_is_left_to_others() -> None:
    """What is known and what is new count together."""
    known = proven(OLD, OLD)
    most = (MOST_VALUES - known.values - 1) // 2
    for number, is_read in ((most, True), (MOST_VALUES, False)):
        text = known.parts[0] + b",[]" * number + known.rest
        shared = compare(text, known)
        assert shared is not None
        assert (parse_new(text, KEY, shared, MARK) is not None) is is_read


def test_what_is_as_deep_as_the_parser_reads() -> None:
    """An element may be as deep as in the whole text, and no deeper."""
    known = proven(OLD, OLD)
    for depth in range(1015, 1030):
        text = known.parts[0] + b"," + b"[" * depth + b"]" * depth + known.rest
        found, was_new = read(text, known)
        assert (found is None) is (plain(text) is None)
        assert was_new is (found is not None)
