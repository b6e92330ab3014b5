"""The table of what is counted: its columns fit what counts by them."""

import inspect
from typing import Any

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.observe.counted import TABLE
from callfuse.observe.events import Event, Where
from callfuse.observe.metrics import COUNTERS
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")
CALL = ToolCall("i", "search", "{}")
FINDING = Finding("repeat", "search", CALL.signature, 3, 3, 300.0, False)
GIVEN: dict[str, Any] = {
    "where": WHERE, "call": CALL, "verdict": Verdict(CALL, FINDING, Rung.BLOCK, 1), "status": 200,
    "seconds": 1.0, "held_seconds": 0.0, "calls": 1, "size": 1, "blocks": 5, "error": ValueError("no"),
    "input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "estimated_tokens": 0, "cost": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.name)
def test_a_row_counts_its_event(kind: type[Event]) -> None:
    """Somewhere, under a name; among the metrics with a value for each label of its counter."""
    row = TABLE[kind]
    names = [one.name for one in inspect.signature(kind).parameters.values() if one.default is one.empty]
    event = kind(**{name: GIVEN.get(name, "x") for name in names})
    key = row.key(event)
    assert row.name or row.series or row.rate(key)
    assert isinstance(row.label(key), str)
    if row.series is not None:
        name, *values = row.series(key)
        assert len(values) == len(COUNTERS[name].labels)
