"""The number of values of a JSON text, known without parsing it."""

import json
import random
from typing import Any

import orjson
import pytest

from callfuse.wire import values
from callfuse.wire.events import CRLF_EVENTS, EVENTS
from callfuse.wire.format import Format
from callfuse.wire.json_array import JSON_ARRAY
from callfuse.wire.jsontext import NotJSON
from callfuse.wire.ndjson import NDJSON
from callfuse.wire.values import LONGEST_INSIDE, MOST_INSIDE, MOST_VALUES, has_too_many_values, is_too_much_inside
from callfuse.wire.whole import WHOLE


def count(value: Any) -> int:
    """Values in a parsed text, keys left out."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'""', b'{"a":1}', b"[[]]"])
def test_many_values_are_too_many(value: bytes) -> None:
    """Whatever they are; a text that holds so many brackets and commas in a string does not have them."""
    text = b'{"messages":[' + b",".join([value] * MOST_VALUES) + b"]}"
    assert has_too_many_values(text)
    assert not has_too_many_values(orjson.dumps({"text": text.decode()}))
    half = b'{"messages":[' + b",".join([value] * (MOST_VALUES // 4)) + b"]}"
    assert not has_too_many_values(half)


@pytest.mark.parametrize("seed", range(20))
def test_strings_are_left_out_wherever_they_are_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes, quotes and backslashes at the borders of what is looked at in one go change nothing."""
    drawn = random.Random(seed)
    pieces = ["\\", '"', ",", "{", "[", "a", "\n", "é", '\\"', '{"a": [1, 2]}']
    made = [["".join(drawn.choices(pieces, k=drawn.randrange(9))) for _ in range(drawn.randrange(5))] for _ in range(9)]
    text = json.dumps({"".join(drawn.choices(pieces, k=3)): made}, ensure_ascii=bool(seed % 2)).encode()
    number = count(made) + 1
    empty = sum(not one for one in made)  # an empty array has a bracket and no comma, as one with a value has
    monkeypatch.setattr(values, "_STEP", drawn.randrange(1, 9))
    for most, many in ((number - empty - 2, True), (number + len(made) + 1, False)):
        monkeypatch.setattr(values, "MOST_VALUES", most)
        assert has_too_many_values(text) is many


def test_the_count_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of twice the length is not looked at twice as long, once it has too many."""
    looked: list[int] = []

    class Counted(bytes):
        def __getitem__(self, key: Any) -> Any:
            looked.append(1)
            return super().__getitem__(key)

    monkeypatch.setattr(values, "separators", lambda piece: piece.count(b","))
    costs = []
    for size in (2_000_000, 4_000_000):
        looked.clear()
        assert has_too_many_values(Counted(b"[" + b"1," * size + b"1]"))
        costs.append(len(looked))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("value", ["{}", "[]", "1", '""', '{"a":1}', "[[]]"])
def test_a_text_within_a_body_has_a_limit_of_its_own(value: str) -> None:
    """A lower one, and one of its length: a text inside a text counts for nothing."""
    assert is_too_much_inside("[" + ",".join([value] * (MOST_INSIDE + 1)) + "]")
    assert not is_too_much_inside("[" + ",".join([value] * (MOST_INSIDE // 4)) + "]")
    assert not is_too_much_inside(json.dumps({"a": json.dumps([1] * MOST_INSIDE)}))
    assert not is_too_much_inside("x" * LONGEST_INSIDE)
    assert is_too_much_inside("x" * (LONGEST_INSIDE + 1))
    assert not is_too_much_inside("\ud800" * LONGEST_INSIDE)


EACH_FORMAT: dict[str, Format] = {
    "events": EVENTS,
    "CRLF events": CRLF_EVENTS,
    "lines": NDJSON,
    "array": JSON_ARRAY,
    "whole": WHOLE,
}


@pytest.mark.parametrize("name", EACH_FORMAT)
def test_a_frame_has_as_many_values_as_a_body(name: str) -> None:
    """Whatever the format: one with more is not parsed."""
    begin = b"data: " if "events" in name else b""
    few, many = (begin + orjson.dumps({"a": [1] * count}) for count in (MOST_VALUES // 2, MOST_VALUES + 1))
    payload = EACH_FORMAT[name].payload(few)
    assert payload is not None
    assert len(payload["a"]) == MOST_VALUES // 2
    with pytest.raises(NotJSON, match="too many values"):
        EACH_FORMAT[name].payload(many)


def test_a_long_chunk_is_not_parsed_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of an array whose end is found by its braces, and is the same."""
    framer = JSON_ARRAY.framer()
    assert framer.feed(b'[{"a":1}')
    element = b',{"a":[%b]}' % b",".join([b"1"] * MOST_VALUES)
    monkeypatch.delattr(orjson, "loads")
    assert framer.feed(element) == [element]
