"""`budget` by weight: a call that has brought what an earlier one had brought counts as `STALE` calls.

Length alone hardly tells good runs from bad ones; in good ones of almost any length most calls bring something new.
"""

from collections.abc import Iterable
from typing import Final

from callfuse.detect.budget import Budget
from callfuse.detect.detector import ANY_TOOL, Evidence
from callfuse.model import Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings

STALE: Final = 10
"""What a call counts that brought nothing new."""


class WeightedBudget(Budget):
    """All calls since the last real user message, weighted."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_weighted_calls`; never hard."""
        return (tool.settings.max_weighted_calls + 1 if tool.settings.max_weighted_calls else 0), 0

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """Any tool would do."""
        return (ANY_TOOL,) if settings.max_weighted_calls else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """What all calls weigh."""
        return Evidence(weighed(timeline, settings), _executed(timeline))


def weighed(timeline: Timeline, settings: LoopSettings) -> int:
    """The weight of a timeline's calls with the pending one, which counts once."""
    return timeline.remembered(_weight, settings)


def _weight(timeline: Timeline, settings: LoopSettings) -> int:
    weight, known = 1, set[bytes]()
    for call in reversed(_executed(timeline)):
        outcome = call.outcome
        if outcome is None or outcome.pending or outcome.transient:  # the cause lies outside
            weight += 1
            continue
        weight += STALE if outcome.digest in known else 1
        known.add(outcome.digest)
    return weight


def _executed(timeline: Timeline) -> tuple[ToolCall, ...]:
    """Equal calls of one round are one."""
    return tuple(call for round_ in timeline for call in round_.distinct if not call.withheld)
