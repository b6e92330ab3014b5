"""`same_error`: consecutive rounds of one tool end in the same error, whatever the arguments.

Judged when the last result is known; results that are not known are left out. What is found is told with that result.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain

from callfuse.detect.detector import Evidence
from callfuse.detect.streak import COUNTED, has_changed_state, is_pause
from callfuse.model import Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


def same_errors(timeline: Timeline, settings: LoopSettings) -> Iterator[Evidence | None]:
    """For each round, newest first, the rounds up to it that failed alike; None where there is no such streak, or the
    round's own result is not known.

    The streak of a round is that of the round after it, one shorter: all rounds together cost one walk.
    """
    streak: deque[list[ToolCall]] = deque()  # of each round the calls whose results are known
    error = b""
    at = 0
    while (newest := timeline.at(at)) is not None:
        own = settings.for_tool(newest.calls[0].full_name).settings
        if not streak:
            error = _error(newest) if _may_be(timeline, at, own) else b""
        while error and len(streak) < COUNTED:
            known = _failed_alike(timeline, at + len(streak), newest.calls[0].name, error, own)
            if known is None:
                break
            streak.append(known)
        yield Evidence(len(streak), tuple(chain.from_iterable(streak))) if streak and streak[0] else None
        if streak:
            streak.popleft()
        at += 1


def may_go_on(newest: Round | None, before: Round | None) -> bool:
    """Whether a streak may come to these two rounds: False is sure, and what most timelines are at a glance."""
    return newest is not None and before is not None and newest.calls[0].name == before.calls[0].name


def _may_be(timeline: Timeline, at: int, settings: LoopSettings) -> bool:
    """Whether enough rounds from here on call one tool and never with success: what costs less than outcomes."""
    calls: list[ToolCall] = []
    for index in range(at, at + settings.detectors.same_error):
        if (round_ := timeline.at(index)) is None:
            return False
        calls += round_.calls
        if any(one.name != calls[0].name for one in round_.calls):
            return False
    return settings.enabled and bool(calls) and all(one.withheld or one.failed is not False for one in calls)


def _failed_alike(
    timeline: Timeline, at: int, name: str, error: bytes, settings: LoopSettings
) -> list[ToolCall] | None:
    """The calls of a round whose results are known, where all are of this tool and these errors; else None."""
    round_ = timeline.at(at)
    if round_ is None or any(one.name != name for one in round_.calls):
        return None
    later = timeline.at(at - 1) if at else None
    if is_pause(round_.time, later.time if later else timeline.now, settings.ttl_seconds):
        return None
    known = [one for one in round_.calls if not one.withheld and one.outcome is not None]
    if any(_error_of(one) != error for one in known) or has_changed_state(round_, settings):
        return None
    return known


def _error(round_: Round) -> bytes:
    """The error of a round, empty where it has none."""
    return next((error for call in round_.calls if (error := _error_of(call))), b"")


def _error_of(call: ToolCall) -> bytes:
    outcome = None if call.withheld else call.outcome
    return b"" if outcome is None or outcome.transient else outcome.error
