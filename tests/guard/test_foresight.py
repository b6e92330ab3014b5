"""What is foreseen of a healthy answer costs in proportion to its calls."""

from collections.abc import Iterator

import pytest

from callfuse.detect.siblings import Room
from callfuse.dialects.base import Event, OpenCall, What
from callfuse.guard import foresight
from callfuse.guard.foresight import Foresight
from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings


def events_of(values: list[object]) -> Iterator[list[Event]]:
    """The events of calls of one tool, one frame each, with these arguments."""
    for at, value in enumerate(values):
        call = OpenCall(0, at, f"call_{at}", "search", {f"key_{at // 2}": [value]}, closed=True)
        yield [Event(What.OPENED, 0, call), Event(What.CLOSED, 0, call)]


def test_a_second_equal_call_is_foreseen_before_the_third() -> None:
    """Equal ones count, however many others of the same shape there are."""
    follows = Foresight(Room(equal=2), LoopSettings())
    assert [follows.foresees(events) for events in events_of([1, 2, 3, 3, 5])] == [False] * 4 + [True]


@pytest.mark.parametrize("count", [100, 400])
def test_each_call_is_compared_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls that are alike in pairs and not equal, whatever their number."""
    rough_key, made = foresight._rough_key, Foresight.made
    looked_at: list[object] = []
    worked_out: list[OpenCall] = []

    def counted_key(arguments: object) -> int:
        looked_at.append(arguments)
        return rough_key(arguments)

    def counted_made(self: Foresight, call: OpenCall) -> ToolCall:
        worked_out.append(call)
        return made(self, call)

    monkeypatch.setattr(foresight, "_rough_key", counted_key)
    monkeypatch.setattr(Foresight, "made", counted_made)
    follows = Foresight(Room(equal=2), LoopSettings())
    assert not any(follows.foresees(events) for events in events_of(list(range(count))))
    assert len(looked_at) <= count
    assert len(worked_out) <= count
