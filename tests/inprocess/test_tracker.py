"""The tracker: one question a call."""

import pytest

from callfuse import ConfigError, ToolCallTracker
from callfuse.model import MARKER
from tests.inprocess.agents import settings

ARGUMENTS = '{"query": "population of France 2023"}'


def tracked(tracker: ToolCallTracker, calls: int) -> list[tuple[bool, bool, int]]:
    """The same call again and again: blocked, with a reason, count."""
    answers = [tracker.track_tool_call("search_web", ARGUMENTS) for _ in range(calls)]
    assert all(reason is None or reason.startswith(MARKER) for _, reason, _ in answers)
    return [(blocked, reason is not None, count) for blocked, reason, count in answers]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("block", [(True, True, 3), (True, True, 4), (True, True, 5)]),
        ("warn", [(False, True, 3), (False, True, 4), (False, True, 5)]),
        ("observe", [(False, False, 3), (False, False, 4), (False, False, 5)]),
        ("graduated", [(False, True, 3), (False, True, 4), (True, True, 5)]),
    ],
)
def test_modes(mode: str, expected: list[tuple[bool, bool, int]]) -> None:
    """Blocked or not, with a reason or not, and the count goes on."""
    tracker = ToolCallTracker(settings(mode=mode))
    assert tracked(tracker, 5) == [(False, False, 1), (False, False, 2), *expected]


def test_a_chance_then_a_block() -> None:
    """The first time guidance, then the last word; the call runs neither time."""
    tracker = ToolCallTracker(settings())
    tracked(tracker, 2)
    blocked, reason, count = tracker.track_tool_call("search_web", {"query": "population of France 2023"})
    assert (blocked, count) == (True, 3)
    assert reason is not None
    assert "Pause and reflect" in reason
    blocked, reason, count = tracker.track_tool_call("search_web", ARGUMENTS)
    assert (blocked, count) == (True, 4)
    assert reason is not None
    assert "Stopped a tool call loop" in reason


def test_without_results_nothing_is_said_of_them() -> None:
    """What was not recorded is not known to be nothing; an empty result is."""
    for mode in ("block", "chance"):
        tracker = ToolCallTracker(settings(mode=mode))
        reasons = [tracker.track_tool_call("search_web", ARGUMENTS)[1] or "" for _ in range(4)]
        assert "returned" not in "".join(reasons)
        tracker = ToolCallTracker(settings(mode=mode))
        for _ in range(2):
            tracker.track_tool_call("search_web", ARGUMENTS)
            tracker.record_result("")
        assert "It last returned: (nothing)" in str(tracker.track_tool_call("search_web", ARGUMENTS)[1])


def test_recorded_results_count() -> None:
    """A call that brings something new each time is none in a loop, until there are too many; errors are."""
    tracker = ToolCallTracker(settings())
    for text in ("red", "green", "blue"):
        assert tracker.track_tool_call("look", "{}")[0] is False
        assert tracker.record_result(text) is None
    tracker = ToolCallTracker(settings())
    for at in range(4):
        tracker.track_tool_call("query", {"at": at})
        reason = tracker.record_result("no such table", is_error=True)
    assert reason is not None
    assert "fails with the same error" in reason


def test_the_count_is_of_what_was_found() -> None:
    """Not always of equal calls in a row."""
    tracker = ToolCallTracker(settings(max_calls=2))
    counts = [tracker.track_tool_call(tool, "{}")[2] for tool in ("a", "b", "c", "d")]
    assert counts == [1, 1, 3, 3]


def test_a_pause() -> None:
    """Its clock is the detector's."""
    now = 0.0
    tracker = ToolCallTracker(settings(ttl_seconds=60), clock=lambda: now)
    tracked(tracker, 2)
    now = 61
    assert tracked(tracker, 1) == [(False, False, 1)]


def test_bad_input() -> None:
    """Is told."""
    with pytest.raises(TypeError, match="arguments of search_web = 7 \\(int\\): use a mapping"):
        ToolCallTracker(settings()).track_tool_call("search_web", 7)
    with pytest.raises(ConfigError):
        ToolCallTracker(settings(max_repeats=1))
