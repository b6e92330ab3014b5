"""Python values as JSON."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from callfuse.inprocess.values import arguments_text, as_text, json_text, plain

DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]
CIRCLE: dict[str, Any] = {}
CIRCLE["me"] = CIRCLE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [None, True, 1.5, "ü"]}, '{"b":1,"a":[null,true,1.5,"ü"]}'),
        ({"when": date(2026, 11, 20), "price": Decimal("1.50")}, '{"when":"2026-11-20","price":"Decimal(\'1.50\')"}'),
        ({"wide": 2**70}, '{"wide":1180591620717411303424}'),
        ({"surrogate": "\ud800"}, '{"surrogate":"\\ud800"}'),
        ({1: "x"}, '{"1":"x"}'),
        (("a", ("b",)), '["a",["b"]]'),
        (b"x", "\"b'x'\""),
    ],
)
def test_any_value_is_written(value: object, text: str) -> None:
    """What JSON does not know by its `repr`."""
    assert json_text(value) == text


def test_what_is_deep_is_written_or_has_a_name() -> None:
    """How deep a value may be is Python's: 3.12 and newer write what 3.11 does not."""
    written = "[" * 3001 + "]" * 3001
    assert json_text(DEEP) == json_text(DEEP)
    assert json_text(DEEP) == written or " object at " in json_text(DEEP)


@pytest.mark.parametrize("value", [CIRCLE, {("a", "b"): 1}], ids=["circle", "keys"])
def test_what_cannot_be_written_has_a_name(value: object) -> None:
    """So that the same value is the same text."""
    assert json_text(value) == json_text(value)
    assert " object at " in json_text(value)
    assert isinstance(plain(value), str)


def test_text_stays() -> None:
    """As a model wrote it, JSON or not."""
    assert arguments_text("t", '{"q": ') == '{"q": '
    assert plain('{"q": ') == '{"q": '
    assert as_text("[1]") == "[1]"
    assert as_text([1]) == "[1]"
    assert plain((1, 2)) == [1, 2]
