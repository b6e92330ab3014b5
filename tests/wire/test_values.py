"""The number of values of a JSON text, known without parsing it."""

import json
import random
from typing import Any

import orjson
import pytest

from callfuse.wire import values
from callfuse.wire.values import MOST_VALUES, has_too_many_values


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

    monkeypatch.setattr(values, "_separators", lambda piece: piece.count(b","))
    costs = []
    for size in (2_000_000, 4_000_000):
        looked.clear()
        assert has_too_many_values(Counted(b"[" + b"1," * size + b"1]"))
        costs.append(len(looked))
    assert costs[0] == costs[1]
