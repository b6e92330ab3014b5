"""Signatures: which calls are the same call, whatever their arguments look like on the wire."""

import json
import tracemalloc
from hashlib import sha256
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import signature
from callfuse.model.signature import signature_of
from callfuse.wire.jsontext import NotJSON, loads, loads_exact
from callfuse.wire.values import LONGEST_INSIDE, MOST_INSIDE
from tests.support.examples import more_examples
from tests.support.work import lines_run

WIDE = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("name", "arguments", "prefix"),
    [("bash", '{"command":"ls -la","cwd":"/tmp"}', "c3430466"), ("list_tasks", "{}", "b84a3e32")],
)
def test_known_vectors(name: str, arguments: str, prefix: str) -> None:
    """SHA-256 of name, newline and RFC 8785 text."""
    assert signature_of(name, arguments).hex().startswith(prefix)
    assert signature_of(name, json.loads(arguments)) == signature_of(name, arguments)


def test_the_text_is_that_of_the_rfc() -> None:
    """Sorted keys, no white space, UTF-8, whole numbers without a fraction."""
    text = 'write\n{"a":[1,0,1.5,true,null],"b":{"é":"\\n"}}'
    written = '{ "b": {"\\u00e9": "\\n"}, "a": [1.0, -0, 1.5, true, null] }'
    assert signature_of("write", written) == sha256(text.encode()).digest()


EQUAL = [
    ('{"a":1,"b":2}', '{"b":2,"a":1}'),
    ('{"a":{"c":1,"b":[1,2]}}', '{ "a" : { "b" : [ 1 , 2 ] ,\n"c" : 1 } }'),
    ('{"a":1}', '{"a":1.0}'),
    ('{"a":1}', '{"a":1e0}'),
    ('{"a":1}', '{"a":10E-1}'),
    ('{"a":0}', '{"a":-0}'),
    ('{"a":0}', '{"a":-0.0}'),
    ('{"a":100000000000000000000}', '{"a":1e20}'),
    ('{"a":"é/"}', '{"a":"\\u00e9\\/"}'),
    ('{"a":"\\ud83d\\ude00"}', '{"a":"😀"}'),
    ('{"a":"\\ud800"}', '{ "a":"\\uD800"}'),
    (f'{{"a":{WIDE},"b":1.0}}', f'{{"b":1,"a":{WIDE}}}'),
    ("{}", ""),
    ("{}", " \n"),
    ("[[]]", "[ [ ] ]"),
    ('"x"', ' "x" '),
    ('{"a":1,"a":1.0}', '{"a":1}'),
    ('{"a":{"b":1,"b":2}}', '{"a":{"b":2}}'),
]

DIFFERENT = [
    ('{"a":1}', '{"a":2}'),
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":null}', "{}"),
    ('{"a":[1,2]}', '{"a":[2,1]}'),
    ('{"a":"é"}', '{"a":"e\u0301"}'),
    ('{"a":"x"}', '{"a":"x "}'),
    ('{"a":9007199254740993}', '{"a":9007199254740992}'),
    ('{"a":18446744073709551617}', '{"a":18446744073709551616}'),
    (f'{{"a":{WIDE}}}', f'{{"a":{WIDE[:-1]}1}}'),
    ('{"a":-9223372036854775809}', '{"a":-9223372036854775808}'),
    ('{"a":0.1}', '{"a":0.10000000000000001e1}'),
    ('{"a":"\\ud800"}', '{"a":"\\ud801"}'),
    ('{"a":', '{"a":1'),
    ("not json", "{}"),
    ("not json", '"not json"'),
    ("NaN", "null"),
    ('{"a":1e400}', '{"a":null}'),
    ("null", "{}"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_arguments(one: str, other: str) -> None:
    """Key order, white space, spellings of one number or one string do not matter."""
    assert signature_of("t", one) == signature_of("t", other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_arguments(one: str, other: str) -> None:
    """Values, types, order in arrays, normal forms and every digit of an integer do; what is no JSON is itself."""
    assert signature_of("t", one) != signature_of("t", other)


def parsed(text: str) -> tuple[Any, Any]:
    """Arguments as a dialect with native JSON gives them: the fast reader's value, and a way to read all digits."""
    return loads(text), lambda: loads_exact(text)


def is_native(text: str) -> bool:
    """Whether parsed arguments could be written so; a parsed string would be raw text again."""
    try:
        return not isinstance(loads(text), str)
    except NotJSON:
        return False


@pytest.mark.parametrize(("one", "other"), [pair for pair in EQUAL if all(map(is_native, pair))])
def test_equal_native_arguments(one: str, other: str) -> None:
    """Arguments that come parsed have the signature of their text."""
    assert signature_of("t", *parsed(one)) == signature_of("t", other)
    assert signature_of("t", *parsed(one)) == signature_of("t", *parsed(other))


@pytest.mark.parametrize(("one", "other"), [pair for pair in DIFFERENT if all(map(is_native, pair))])
def test_different_native_arguments(one: str, other: str) -> None:
    """Digits that the fast reader has rounded away are read again."""
    assert signature_of("t", *parsed(one)) != signature_of("t", *parsed(other))


CONTRADICTING = [
    '{"a":1,"a":2}',
    '{"a":2,"a":1,"a":2}',
    '{"a":[2],"b":"\\"a\\":","a":[1,{"a":2}]}',
    '{"a":{"a":2},"\\u0061":{"a":1}}',
    '{"a/b":2,"a\\/b":1}',
    '{"a":"x","b":{"c":[]},"a":1.5}',
    '{"\\ud800":1,"\ud800":2}',
    "{" + ",".join(f'"k{at}":1' for at in range(40)) + ',"k7":2}',
    '{"a":' + '{"b":' * 900 + "1" + "}" * 900 + ',"a":2}',
]


@pytest.mark.parametrize("text", CONTRADICTING)
@pytest.mark.parametrize("ignore", [(), ("other",)])
def test_arguments_with_two_values_are_only_like_themselves(text: str, ignore: tuple[str, ...]) -> None:
    """Neither the first value nor the last one counts: what is told before the last has come must stay true."""
    pairs: list[tuple[str, Any]] = []

    def note(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs[:] = found
        return dict(found)

    json.loads(text, object_pairs_hook=note)
    for chosen in (dict(pairs), dict(pairs[::-1])):
        assert signature_of("t", text, None, ignore) != signature_of("t", json.dumps(chosen), None, ignore)
    assert signature_of("t", f" {text} ", None, ignore) == signature_of("t", text, None, ignore)
    assert signature_of("t", text, None, ("a", "k7", "a/b", "\ud800")) == signature_of(
        "t", {key: one for key, one in pairs if key not in ("a", "k7", "a/b", "\ud800")}
    )


def test_a_key_is_looked_for_in_linear_time() -> None:
    """Twice as many keys take twice the lines, not four times."""

    def text(size: int) -> str:
        return "{" + ",".join(f'"k{at}":":"' for at in range(size)) + "}"

    once, twice = (lines_run(lambda: signature_of("t", text(size))) for size in (1000, 2000))  # noqa: B023
    assert twice <= 2.2 * once


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("a", "a "), ("a", "A"), ("é", "e\u0301"), ("", "a")])
def test_the_tool_is_part_of_it(one: str, other: str) -> None:
    """The same arguments to another tool are another call."""
    assert signature_of(one, "{}") != signature_of(other, "{}")


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900])
def test_nesting_does_not_matter(depth: int) -> None:
    """A nested value has one signature, as text, with white space, and parsed."""
    text = "[" * depth + "1" + "]" * depth
    spaced = "[ " * depth + "1" + " ]" * depth
    assert signature_of("t", spaced) == signature_of("t", text)
    assert signature_of("t", *parsed(text)) == signature_of("t", text)


@pytest.mark.parametrize("depth", [980, 1000, 1020])
def test_deep_native_arguments_have_an_identity(depth: int) -> None:
    """As deep as the fast reader goes, nothing is raised."""
    text = "[" * depth + "]" * depth
    value = orjson.loads(text)
    assert signature_of("t", value) != signature_of("t", orjson.loads(f"[{text}]"))


def test_nothing_is_too_deep_or_too_long() -> None:
    """2,000 levels or a megabyte are told from what differs at their end."""
    deep, long = "[" * 2000 + "]" * 2000, "x" * 1_000_000
    assert signature_of("t", deep) != signature_of("t", deep[:-1])
    assert signature_of("t", f'{{"a":"{long}"}}') == signature_of("t", f'{{"a": "{long}"}}')
    assert signature_of("t", f'{{"a":"{long}"}}') != signature_of("t", f'{{"a":"{long}y"}}')
    assert signature_of("t", "9" * 5000) != signature_of("t", "9" * 4999 + "8")


TOO_MUCH = {
    "numbers": json.dumps([1.5] * (MOST_INSIDE + 1)),
    "lists": json.dumps({"a": [[]] * (MOST_INSIDE + 1)}),
    "nested": "[" * (MOST_INSIDE + 1) + "]" * (MOST_INSIDE + 1),
    "a string": json.dumps({"a": "x" * LONGEST_INSIDE}),
    "a fraction": '{"a": 0.' + "9" * LONGEST_INSIDE + "}",
    "no JSON": '"' * (LONGEST_INSIDE + 1),
    "white space": " " * (LONGEST_INSIDE + 1),
}


@pytest.mark.parametrize("ignore", [(), ("b",)])
@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_is_too_much_is_not_parsed(text: str, ignore: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is equal to itself only, white space included; twice as much of it takes no line of Python more."""
    assert signature_of("t", text, None, ignore) == signature_of("t", text)
    assert signature_of("t", text, None, ignore) == sha256(b"t\n" + text.encode()).digest()
    assert signature_of("t", text + " ") != signature_of("t", text)
    assert lines_run(lambda: signature_of("t", text * 2, None, ignore)) <= lines_run(
        lambda: signature_of("t", text, None, ignore)
    )
    monkeypatch.delattr(signature, "loads_exact")
    monkeypatch.delattr(signature, "_STRING_OR_SPACE")
    assert signature_of("t", text, None, ignore)


@pytest.mark.parametrize("text", ['"' * 70_000, '{"a":' + "9" * 70_000 + "}", '{"deeper":' * 9_000])
def test_a_long_text_that_is_no_json_keeps_its_white_space(text: str) -> None:
    """A shorter one loses it; integers of more than 500 digits and deep nesting are no JSON here."""
    assert signature_of("t", text) != signature_of("t", text + " ")
    assert signature_of("t", text[:9_000]) == signature_of("t", text[:9_000] + " ")


def test_what_orjson_has_written_is_not_kept() -> None:
    """Each text that it writes takes 4 KB: of many numbers the canonical form is written on, not collected."""
    written = json.dumps([1.5] * (MOST_INSIDE - 1))
    tracemalloc.start()
    try:
        signature_of("t", written)
        assert tracemalloc.get_traced_memory()[1] < 400 * MOST_INSIDE
    finally:
        tracemalloc.stop()


def test_what_is_kept_is_short() -> None:
    """A call that comes again is not worked out again, unless its name or its arguments could fill the memory."""
    short, long = '{"a":1}', f'{{"a":"{"x" * 600}"}}'
    assert signature_of("t", short) is signature_of("t", short)
    assert signature_of("t", long) is not signature_of("t", long)
    assert signature_of("t" * 600, short) is not signature_of("t" * 600, short)


def test_what_is_kept_of_a_call_takes_its_own_size() -> None:
    """The text by which a call is known again is one of orjson's, in a buffer of 4 KB."""
    signature_of("t", {"at": 0})
    tracemalloc.start()
    try:
        for at in range(1, 1001):
            signature_of("t", {"at": at})
        assert tracemalloc.get_traced_memory()[0] < 1000 * 512
    finally:
        tracemalloc.stop()


every_text = st.text(st.characters(exclude_categories=()))
jsonish = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"', "\\u", "d8", "00", "1", "e", ".", "-", "9" * 16, "NaN", "\ud800"]
    )
).map("".join)


@more_examples(5)
@given(name=every_text, arguments=every_text | jsonish)
def test_any_text_has_a_signature(name: str, arguments: str) -> None:
    """Nothing that a model can write makes it raise, and white space around it does not matter."""
    signature = signature_of(name, arguments)
    assert len(signature) == 32
    assert signature_of(name, f" {arguments}\n") == signature


numbers = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1e16])
)
members = st.none() | st.booleans() | numbers | every_text
values = st.recursive(
    members, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(every_text, inner, max_size=3)
)


@more_examples(5)
@given(value=st.dictionaries(every_text, values, max_size=3), data=st.data())
def test_any_writing_of_a_value_is_the_same(value: dict[str, Any], data: st.DataObject) -> None:
    """As text in any hand, and parsed by the fast reader or the exact one."""
    text = json.dumps(value)
    other = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=data.draw(st.booleans()))
    assert signature_of("t", other) == signature_of("t", text)
    assert signature_of("t", *parsed(text)) == signature_of("t", text)
    assert signature_of("t", loads_exact(text)) == signature_of("t", text)
