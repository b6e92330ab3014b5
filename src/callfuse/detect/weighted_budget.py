"""`budget` by weight: a call that has brought what an earlier one had brought counts as `STALE` calls.

Length alone hardly tells good runs from bad ones; in good ones of almost any length most calls bring something new.
"""

from typing import Final

from callfuse.detect.budget import Budget, executed
from callfuse.detect.detector import Evidence
from callfuse.model import Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings

STALE: Final = 10
"""What a call counts that brought nothing new."""


class WeightedBudget(Budget):
    """All calls since the last real user message, weighted."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_weighted_calls`; never hard."""
        return (tool.settings.max_weighted_calls + 1 if tool.settings.max_weighted_calls else 0), 0

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """What all calls weigh."""
        if STALE * timeline.calls_at_most < settings.max_weighted_calls:
            return None
        return Evidence(weighed(timeline, settings), executed(timeline, settings).calls)


def weighed(timeline: Timeline, settings: LoopSettings) -> int:
    """The weight of a timeline's calls with the pending one, which counts once."""
    return timeline.remembered(_weight, settings)


def _weight(timeline: Timeline, settings: LoopSettings) -> int:
    weight, known = 1, set[bytes]()
    for call in reversed(executed(timeline, settings).calls):
        outcome = call.outcome
        if outcome is None or outcome.pending or outcome.transient:  # the cause lies outside
            weight += 1
            continue
        weight += STALE if outcome.digest in known else 1
        known.add(outcome.digest)
    return weight
