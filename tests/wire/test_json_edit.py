"""Edits of a JSON text do what the same edits do to the parsed value, and leave every other span as it was written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire.jsontext import END, Edit, Path, apply, dumps, loads_exact, span, spans
from tests.support.examples import more_examples

NEW = b'{ "new" :1.50 }'


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        ('{"a":1}', [Edit(("a",), b"2")], '{"a":2}'),
        ('  { "a" : 1 , "b" : 2 }\n', [Edit(("b",), b"null")], '  { "a" : 1 , "b" : null }\n'),
        ('{"a":1,"b":2}', [Edit(("c",), b"3")], '{"a":1,"b":2,"c":3}'),
        ("{}", [Edit(("c",), b"3")], '{"c":3}'),
        ("{ }", [Edit(("c",), b"3")], '{"c":3 }'),
        ("[]", [Edit((END,), b"3")], "[3]"),
        ("[1 , 2 ]", [Edit((END,), b"3")], "[1 , 2,3 ]"),
        ("[1,2,3]", [Edit((0,), None)], "[2,3]"),
        ("[1,2,3]", [Edit((1,), None)], "[1,3]"),
        ("[1,2,3]", [Edit((2,), None)], "[1,2]"),
        ("[1,2,3]", [Edit((0,), None), Edit((2,), None)], "[2]"),
        ("[ 1 , 2 ]", [Edit((0,), None), Edit((1,), None)], "[ ]"),
        ("[1,2]", [Edit((0,), None), Edit((1,), None), Edit((END,), b"9")], "[9]"),
        ("[1,2]", [Edit((1,), None), Edit((END,), b"9")], "[1,9]"),
        ('{"a":1,"b":2}', [Edit(("a",), None), Edit(("b",), b"3")], '{"b":3}'),
        ('{"a":1,"b":2}', [Edit(("gone",), None)], '{"a":1,"b":2}'),
        ('{"a":{"b":[0,{"c":"x"}]}}', [Edit(("a", "b", 1, "c"), b'"y"')], '{"a":{"b":[0,{"c":"y"}]}}'),
        ('{"a":[1],"b":[2]}', [Edit(("b", END), b"3"), Edit(("a", 0), b"0")], '{"a":[0],"b":[2,3]}'),
        ('{"a":1,"a":2}', [Edit(("a",), b"3")], '{"a":1,"a":3}'),
        ('{"a":1,"b":0,"a":2}', [Edit(("a",), None)], '{"b":0}'),
        ('{"a\\u0062":1}', [Edit(("ab",), b"2")], '{"a\\u0062":2}'),
        ('{"}],\\"":"]}\\\\","b":1}', [Edit(("b",), b"2")], '{"}],\\"":"]}\\\\","b":2}'),
        ('{"é":"\u2028","b":1}', [Edit(("é",), b"0")], '{"é":0,"b":1}'),
        ("[1E400,-0.0,NaN,12345678901234567890123]", [Edit((1,), b"0")], "[1E400,0,NaN,12345678901234567890123]"),
        ('{"\\ud800":1,"a":2}', [Edit(("a",), b"3")], '{"\\ud800":1,"a":3}'),
        ("[1]", [], "[1]"),
    ],
)
def test_an_edit_touches_its_own_span(text: str, edits: list[Edit], expected: str) -> None:
    """Only the named span changes, with the comma that a member's coming or going needs."""
    assert apply(text.encode(), edits) == expected.encode()


def test_a_function_is_given_the_old_text() -> None:
    """It sees the raw bytes of the value, or none where there is no value."""
    edits = [Edit(("a",), lambda old: old + b"00"), Edit(("b",), lambda old: b'"' + old + b'"')]
    assert apply(b'{"a": 1.5}', edits) == b'{"a": 1.500,"b":""}'


def test_a_step_that_is_missing_is_an_error() -> None:
    """Only the last step of a path may be new."""
    with pytest.raises(KeyError):
        apply(b'{"a":1}', [Edit(("b", "c"), b"2")])


def test_depth_and_length_do_not_matter() -> None:
    """A value may be nested 2,000 deep and a megabyte long."""
    deep = b"[" * 2000 + b"]" * 2000
    long = b'"' + b'\\"x' * 350_000 + b'"'
    text = b'{"deep":' + deep + b',"long":' + long + b',"a":1}'
    assert apply(text, [Edit(("a",), b"2")]) == text[:-2] + b"2}"
    assert span(text, ("deep",)) == (8, 8 + len(deep))


@pytest.mark.parametrize(
    ("text", "found"),
    [(b"", []), (b"1", []), (b'"{}"', []), (b"{}", []), (b"[ ]", []), (b'[1,"a",[]]', [b"1", b'"a"', b"[]"])],
)
def test_spans_of_a_container(text: bytes, found: list[bytes]) -> None:
    """Each element has its raw text; what is no container has none."""
    assert [text[member.value : member.end] for member in spans(text)] == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), b' {"a":[1,{"b":null}]}'[1:]),
        (("a", 1, "b"), b"null"),
        (("a", 2), None),
        (("z",), None),
        (("a", "b"), None),
    ],
)
def test_span_finds_a_value(path: tuple[str | int, ...], found: bytes | None) -> None:
    """A path leads to the value's own bytes, or nowhere."""
    text = b' {"a":[1,{"b":null}]}'
    place = span(text, path)
    assert (text[place[0] : place[1]] if place else None) == found


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
)
keys = st.sampled_from(["a", "b", "é\n", '"', ""]) | st.text(max_size=3)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@st.composite
def writings(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A value and one of the ways to write it."""
    value = draw(values)
    indent = draw(st.sampled_from([None, 0, 2, "\t"]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)
    space = draw(st.sampled_from(["", " ", "\r\n\t"]))
    return value, (space + text + space).encode("utf-8", "surrogatepass")


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path in a value but the root's."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here for key, inner in members for here in ((*path, key), *places(inner, (*path, key)))]


def made(value: Any, edits: list[Edit]) -> Any:
    """The edits, made to a parsed value."""
    copy = json.loads(json.dumps(value))
    for edit in sorted(edits, key=lambda edit: [(isinstance(step, str), step) for step in edit.path], reverse=True):
        holder = copy
        for step in edit.path[:-1]:
            holder = holder[step]
        if edit.raw is None:
            del holder[edit.path[-1]]
        else:
            holder[edit.path[-1]] = json.loads(edit.raw if isinstance(edit.raw, bytes) else edit.raw(b""))
    return copy


@more_examples(5)
@given(writing=writings(), data=st.data())
def test_edits_of_the_text_are_edits_of_the_value(writing: tuple[Any, bytes], data: st.DataObject) -> None:
    """Replacing and removing anywhere reads as the same change made to the parsed value; untouched spans stay."""
    value, text = writing
    open_ = places(value)
    edits: list[Edit] = []
    while open_ and len(edits) < 4 and data.draw(st.booleans()):
        path = data.draw(st.sampled_from(open_))
        edits.append(Edit(path, data.draw(st.sampled_from([None, NEW, b"null"]))))
        open_ = [other for other in open_ if other[: len(path)] != path and path[: len(other)] != other]
    result = apply(text, edits)
    assert json.loads(result) == made(value, edits)
    if not any(edit.raw is None for edit in edits):
        for path in open_:
            (start, end), (begin, stop) = span(text, path) or (0, 0), span(result, path) or (0, 0)
            assert result[begin:stop] == text[start:end]


@more_examples(5)
@given(value=st.lists(values, max_size=4) | st.dictionaries(keys, values, max_size=4))
def test_the_end_takes_more(value: Any) -> None:
    """An element behind the last, or a key that is new, goes to the end and nothing before it changes."""
    text = dumps(value)
    if isinstance(value, list):
        assert loads_exact(apply(text, [Edit((END,), NEW)])) == [*loads_exact(text), {"new": 1.5}]
    else:
        assert list(loads_exact(apply(text, [Edit(("at the end",), NEW)])))[-1] == "at the end"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"a":-1}', ("a", "b")),
        (b'{"a":"x"}', ("a", END)),
        (b'{"a":null}', ("a", "b")),
        (b'{"a":[]}', ("a", "b")),
        (b'{"a": [1] }', ("a", "b")),
        (b'{"a":{}}', ("a", END)),
        (b'{"a":{"b":1}}', ("a", 0)),
        (b" 1", ("a",)),
    ],
)
def test_what_has_no_room_gets_nothing(text: bytes, path: Path) -> None:
    """A scalar has no members, a list no keys, an object no places: broken JSON would come of it."""
    with pytest.raises(KeyError):
        apply(text, [Edit(path, b"2")])
