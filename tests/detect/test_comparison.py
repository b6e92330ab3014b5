"""A call is told from others by its prefix: never from one that it equals, and however its arguments are cut."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import comparison, known_calls
from callfuse.detect.comparison import Comparison
from callfuse.detect.known_calls import LONGEST, MOST, read_calls
from callfuse.model import ToolCall
from callfuse.wire.jsontext import NotJSON, loads, loads_exact
from tests.support.examples import more_examples
from tests.support.work import lines_run


def call(arguments: Any, ignore: Sequence[str] = ()) -> ToolCall:
    """A call of one tool."""
    return ToolCall("", "t", arguments).ignoring(ignore)


def native(text: str, ignore: Sequence[str] = ()) -> ToolCall:
    """The same, its arguments parsed as those of native JSON are, where they can be."""
    try:
        return ToolCall("", "t", loads(text), exact=lambda: loads_exact(text)).ignoring(ignore)
    except NotJSON:
        return call(text, ignore)


def compare_with(calls: Iterable[ToolCall], ignore: Sequence[str] = ()) -> Comparison | None:
    """A comparison with calls; None where they cannot be read."""
    known = read_calls(calls, ignore)
    return Comparison(known) if known else None


def feed(made: Comparison, pieces: Iterable[str]) -> None:
    """Feed pieces; the letters of a string, one by one."""
    for piece in pieces:
        made.feed(piece)


def compared(*texts: str, ignore: Sequence[str] = ()) -> Comparison:
    """A comparison with calls of these arguments."""
    found = compare_with([call(text, ignore) for text in texts], ignore)
    assert found is not None
    return found


def told_at(known: Sequence[str], text: str, ignore: Sequence[str] = ()) -> int | None:
    """After how many characters a text is known to differ from all of these; None if it never is."""
    one = compared(*known, ignore=ignore)
    for at in range(len(text)):
        if one.differs:
            return at
        one.feed(text[at])
    return len(text) if one.differs else None


TOLD = [
    ('{"command":"ls -la"}', '{"command": "ls -a|'),
    ('{"command":"ls -la"}', '{"command": "ls -l"|'),
    ('{"command":"ls -la"}', '{"command": "ls -la |'),
    ('{"command":"ls -la"}', '{"cmd"|: "ls'),
    ('{"command":"ls -la"}', '{"command": [|"ls"]}'),
    ('{"command":["bash","-lc","ls"]}', '{"command": ["bash", "-lc", "lx|'),
    ('{"command":["bash","-lc","ls"]}', '{"command": ["bash"]|}'),
    ('{"command":["bash","-lc","ls"]}', '{"command": ["bash", "-lc", "ls",|'),
    ('{"command":[[],[1]]}', '{"command": [[], []|]}'),
    ('{"command":[[],[1]]}', '{"command": [[], [1],|'),
    ('{"a":1,"b":2}', '{"a":1}|'),
    ('{"a":1}', '{"a":1,"b"|'),
    ('{"a":1}', '{"a":11,|'),
    ('{"a":11}', '{"a":1 }|'),
    ('{"a":1}', '{"a":"|1"}'),
    ('{"a":"1"}', '{"a":1|}'),
    ('{"a":null}', '{"a":true,|'),
    ('{"a":{"b":1}}', '{"a":{"b":2}|'),
    ('{"a":"x\\ny"}', '{"a":"x\\nz|'),
    ('{"a":"\\u00e9"}', '{"a":"\\u00e8|'),
    ('{"a":"😀"}', '{"a":"\\ud83d\\ude01|"}'),
    ('{"a":"😀"}', '{"a":"\\ud83dx|"}'),
    ("{}", '{"a"|:1}'),
    ('{"a":1}', "{}|"),
    ('{"a":1}', "[|1]"),
    ('{"a":1}', '"|{'),
    ("*** Begin Patch\n+one", "*** Begin Patch\n+t|wo"),
    ("*** Begin Patch", "{|"),
    ('{"a":"one","id":1}', '{"id":7,"a":"t|wo"}'),
]
"""The arguments of a known call, and those of another; the bar stands where they are known to differ."""

SAME = [
    ('{"a":1,"b":"x"}', '{ "b" : "x" ,\n"a" : 1.0 }'),
    ('{"a":1}', '{"\\u0061":1e0}'),
    ('{"a":"é/😀"}', '{"a":"\\u00e9\\/\\ud83d\\ude00"}'),
    ('{"a":"\\ud83d"}', '{"a":"\\uD83D"}'),
    ('{"a":100000000000000000000}', '{"a":1e20}'),
    ('{"a":{"b":[1,{"c":2}]}}', '{"a": {"b": [1.0, {"c": 2}]}}'),
    ('{"a":[{"b":1,"c":[]},[],"]"]}', '{"a": [{"c": [ ], "b": 1}, [ ], "]"]}'),
    ('{"a":1}', '{"a":1,"a":1.0}'),
    ("{}", ""),
    ("{}", " {\n} "),
    ('{"a":12}', '{"a":1 2}'),
    ('{"a":true}', '{"a":tr ue}'),
    ('{"a":"x"}', '{"a":\u00a0"x"}'),
    ('{"a":[],"b":[[],1]}', '{"a":[\u00a0],"b":[\u00a0[],\u00a01]}'),
    ('{"a":"x"}', '\u2003{"a"\u00a0:"x"\u00a0}'),
    ('{"a":"x","b":1}', '{"a":"x","id":[1,"]",{}],"b":1}'),
    ('{"id":1}', '{"id":"2"}'),
    ("text with\twhite space", "text  with white space"),
]
"""Arguments of equal calls, and of some that only look alike until their end."""

IGNORE = ("id",)


@pytest.mark.parametrize(("known", "marked"), TOLD)
@pytest.mark.parametrize("make", [call, native])
def test_one_difference_is_enough(known: str, marked: str, make: Any) -> None:
    """The first one, in whatever spelling, and not before it."""
    made = compare_with([make(known, IGNORE)], IGNORE)
    assert made is not None
    before = marked.partition("|")[0]
    made.feed(before[:-1])
    assert not made.differs
    made.feed(before[-1])
    assert made.differs


@pytest.mark.parametrize(("known", "text"), SAME)
@pytest.mark.parametrize("make", [call, native])
def test_another_spelling_is_no_difference(known: str, text: str, make: Any) -> None:
    """Nor is white space where JSON has none, which signatures leave out."""
    for one, other in ((known, text), (text, known)):
        made = compare_with([make(one, IGNORE)], IGNORE)
        if made is not None:  # else it is not compared at all
            made.feed(other)
            assert not made.differs


def test_of_several_calls_all_must_differ() -> None:
    """Those that have differed once do not come back."""
    known = ['{"path":"a/b"}', '{"path":"a/c"}', "{}"]
    assert told_at(known, '{"path": "a/c"}') is None
    assert told_at(known, '{"path": "a/d"}') == len('{"path": "a/d')
    assert told_at(known, '{"path": "a/bc"}') == len('{"path": "a/bc')
    assert told_at(["some text", '{"a":1}'], "some other") == len("some o")


ODD: list[Any] = [
    '{"path": "cut off',
    '{"a":NaN}',
    '{"a":1e400}',
    '{"a":1,"a":2}',
    "[1]",
    '"text"',
    "12",
    "NaN",
    '{"a":' + "9" * 600 + "}",
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    json.dumps({"a": [1] * 10_001}),
    '{"a":' + "[" * 9 + "]" * 9 + "}",
    json.dumps({f"key {at}": [at] for at in range(1000)}),
    json.dumps({"a": "x" * LONGEST}),
    None,
    [1],
    {"a": float("nan")},
]


@pytest.mark.parametrize("arguments", ODD, ids=range(len(ODD)))
def test_what_cannot_be_told_from_others_is_not_compared(arguments: Any) -> None:
    """Beside others, too: a call that may be equal to it is held to its end."""
    assert compare_with([call({"a": 1}), call(arguments)]) is None


def test_a_call_of_which_only_the_signature_is_known() -> None:
    """Its arguments are gone, so that it may be any call."""
    assert compare_with([ToolCall("", "t", "", signature=b"known", has_arguments=False)]) is None


def test_too_many_calls_are_not_compared() -> None:
    """A hundred are."""
    assert compare_with([call({"a": at}) for at in range(MOST)]) is not None
    assert compare_with([call({"a": at}) for at in range(MOST + 1)]) is None


texts = st.text(st.sampled_from('ab\\"/é😀\ud83d\ude00\n\t {}[]:,1'), max_size=6)
scalars = st.none() | st.booleans() | st.integers(-2, 12) | st.sampled_from([0.0, 1.5, 1e20, 2**53 + 1, 10**20]) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2), max_leaves=5
)
keys = st.sampled_from(["a", "b", "id", "é", "a/b", '"'])
objects = st.dictionaries(keys, values, max_size=3)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON in some hand."""
    if isinstance(value, dict):
        members = draw(st.permutations(list(value.items())))
        if members and draw(st.integers(0, 5)) == 0:  # a key given twice, with the same value or another
            key, own = draw(st.sampled_from(members))
            members.insert(draw(st.integers(0, len(members))), (key, draw(st.just(own) | scalars)))
        parts = [f"{draw(spelled(key))}{draw(_space)}:{draw(_space)}{draw(spelled(own))}" for key, own in members]
        return "{" + draw(_space) + f"{draw(_space)},{draw(_space)}".join(parts) + draw(_space) + "}"
    if isinstance(value, list):
        return "[" + draw(_space) + f"{draw(_space)},".join([draw(spelled(one)) for one in value]) + "]"
    if isinstance(value, str):
        return '"' + "".join([draw(_letter(one)) for one in value]) + '"'
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    plain = json.dumps(value)
    if float(value).is_integer():
        return draw(st.sampled_from([plain, f"{float(value)}", f"{value:e}", str(int(value))]))
    return plain


_space = st.sampled_from(["", "", "", " ", "\n", "\u00a0"])


CHANGES = ["", " ", "\u00a0", '"', "\\", ",", "}", "1", "a", "\x01"]


def _letter(one: str) -> st.SearchStrategy[str]:
    escaped = json.dumps(one)[1:-1]
    units = one.encode("utf-16-be", "surrogatepass")
    long = "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])
    return st.sampled_from(
        [one if one >= " " and one not in '"\\' else escaped, escaped, long, long.replace("\\U", "\\u")]
    )


@st.composite
def arguments_of(draw: st.DrawFn) -> str:
    """Arguments as text: an object in some hand, perhaps with a character changed, or no object at all."""
    text = draw(objects.flatmap(spelled) | values.flatmap(spelled) | texts)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at, more = draw(st.integers(0, len(text))), draw(st.integers(0, 1))
        text = (
            text[:at]
            + draw(st.sampled_from(["", " ", "\u00a0", '"', "\\", ",", "}", "1", "a", "\x01"]))
            + text[at + more :]
        )
    return text


def cut(draw: st.DataObject, text: str) -> list[str]:
    """A text in pieces, some of them empty."""
    places = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@more_examples(10)
@given(data=st.data(), ignore=st.sampled_from([(), (), ("id",)]))
def test_a_call_is_never_told_from_one_that_it_equals(data: st.DataObject, ignore: tuple[str, ...]) -> None:
    """In whatever hand either is written, as text or parsed; and all that come from one value are equal."""
    shared = data.draw(objects)
    hands = spelled(shared) | arguments_of()
    known = data.draw(st.lists(hands, min_size=1, max_size=3))
    text = data.draw(hands)
    suspects = [data.draw(st.sampled_from([call, native]))(one, ignore) for one in known]
    made = compare_with(suspects, ignore)
    if made is None:
        return
    for piece in cut(data, text):
        made.feed(piece)
    if made.differs:
        assert call(text, ignore).signature not in [one.signature for one in suspects]


@more_examples(10)
@given(data=st.data(), known=st.lists(arguments_of(), min_size=1, max_size=3), ignore=st.sampled_from([(), ("id",)]))
def test_the_cuts_do_not_matter(data: st.DataObject, known: list[str], ignore: tuple[str, ...]) -> None:
    """After the same characters the same is known, and it stays so."""
    text = data.draw(st.sampled_from(known) | arguments_of())
    text = text[: data.draw(st.integers(0, len(text)))] + data.draw(arguments_of() | st.just(""))
    suspects = [call(one, ignore) for one in known]
    one, other = (compare_with(suspects, ignore) for _ in range(2))
    if one is None or other is None:
        return
    at = 0
    was = False
    for piece in cut(data, text):
        one.feed(piece)
        for letter in piece:
            other.feed(letter)
            assert other.differs >= was
            was = other.differs
        at += len(piece)
        assert one.differs == other.differs


def test_work_grows_with_the_text_and_with_what_it_is_compared_with() -> None:
    """Twice as long, letter by letter and nested, takes twice the lines; twice as many calls do, at most."""

    def work(size: int, others: int, text: str) -> int:
        known = [call(f'{{"a":{text % ("x" * size)},"n":{at}}}') for at in range(others)]
        made = compare_with(known)
        assert made is not None
        pending = f'{{"a":{text % ("x" * size)},"n":-1'
        return lines_run(lambda: feed(made, pending))

    for text in ('"%s"', '{"b":["%s"]}', '["%s"]'):
        assert work(2000, 1, text) <= 2.1 * work(1000, 1, text)
        assert work(1000, 8, text) <= 8 * work(1000, 1, text)


def test_a_string_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character of it, however many pieces it comes in: counted, not timed."""
    looked = 0
    goes_on = comparison._Other.goes_on

    def counted(self: Any, text: str) -> bool:
        nonlocal looked
        looked += len(text)
        return goes_on(self, text)

    monkeypatch.setattr(comparison._Other, "goes_on", counted)
    text = "x" * 50_000
    made = compared(f'{{"a":"{text}"}}')
    for at in range(0, len(text), 10):
        made.feed(f'{{"a":"{text}"'[at : at + 10])
    assert looked <= len(text)


HOSTILE = [
    "{" * 200_000,
    '{"a":' + "[" * 200_000,
    '{"a":' * 50_000,
    '{"a":"' + "\\u00e9" * 50_000,
    '{"' + "a" * 200_000,
    '{"a":' + "1" * 200_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_is_too_deep_or_too_long(text: str) -> None:
    """Nothing is raised, and no stack grows."""
    deep: Any = "x"
    for _ in range(known_calls.DEPTH):
        deep = [deep]
    limit = sys.getrecursionlimit()
    made = compare_with([call({"a": deep}), call({"a": {"a": 1}}), call({"a": "é" * 60_000}), call({"a": 1})])
    assert made is not None
    for at in range(0, len(text), 997):
        made.feed(text[at : at + 997])
    assert sys.getrecursionlimit() == limit
