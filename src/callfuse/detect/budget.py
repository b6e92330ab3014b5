"""`budget`: more calls in a timeline, or more of one tool, than allowed. Off by default; what `tune` calibrates.

Equal calls of one round count once. Earlier calls of the same answer count too, so the first calls pass until the
budget is used up. A call that returned nothing new may weigh more: length alone hardly separates good runs from bad
ones, but in good runs of almost any length, most calls return something new.
"""

from dataclasses import replace

from callfuse.detect import facts
from callfuse.detect.detector import ANY_TOOL, Evidence, RoundDetector, distinct_calls
from callfuse.detect.facts import STALE
from callfuse.detect.kind import Kind
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.siblings import Counted, Room
from callfuse.model import PastCall, Timeline, ToolCall


class Budget(RoundDetector):
    """Counts all calls since the last real user message."""

    kind = Kind(
        "budget",
        seen="one call more than one request may take ({count} counted)",
        suggestion="Answer with what is known, and say what is missing.",
        limited_by="max_calls, max_calls_of_tool, max_weighted_calls and budget",
        about="More calls, tokens, seconds or money than allowed; on if `max_calls`, `max_calls_of_tool`, "
        "`max_weighted_calls` or a limit of `budget` is set. `false` is off.",
    )
    needs = facts.CALLS

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the count of the first call beyond `max_calls`; never hard."""
        return _first_beyond(tool.settings.max_calls)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many calls are left."""
        return Room(settings.max_calls - timeline.facts.calls)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the calls so far."""
        return timeline.memoized(_executed, settings)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Count the calls so far, with the earlier calls of the pending round."""
        return _with_more(self.evidence(timeline, call, settings), counted.different)


class ToolBudget(Budget):
    """Counts the calls of each tool since the last real user message."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the count of the first call beyond `max_calls_of_tool`; never hard."""
        return _first_beyond(tool.settings.max_calls_of_tool)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many calls are left if all so far were calls of one tool."""
        return Room(settings.max_calls_of_tool - timeline.facts.calls)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the calls of this tool so far; for `ANY_TOOL`, those of the most-called tool."""
        tools = timeline.memoized(_by_tool, settings)
        if call.full_name == ANY_TOOL:
            return max(tools.values(), key=lambda one: one.count, default=None)
        return tools.get(call.full_name)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Count the calls of this tool so far, with those earlier in the pending round."""
        return _with_more(self.evidence(timeline, call, settings), counted.of_tool)


class WeightedBudget(Budget):
    """Sums the weights of all calls since the last real user message."""

    needs = facts.WEIGHT

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the count of the first call beyond `max_weighted_calls`; never hard."""
        return _first_beyond(tool.settings.max_weighted_calls)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many calls are left if none so far returned anything new."""
        return Room(settings.max_weighted_calls - STALE * timeline.facts.calls)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return the weight of all calls."""
        return Evidence(weight(timeline, settings), timeline.memoized(_executed, settings).calls)


def weight(timeline: Timeline, settings: Settings) -> int:
    """Return the weight of a timeline's calls; the pending call counts once."""
    return timeline.memoized(_weight, settings)


def _with_more(before: Evidence | None, others: int) -> Evidence | None:
    """Return the evidence with that many other calls of the pending round added to its count."""
    if not others:
        return before
    if before is None:
        return Evidence(1 + others, in_answer=True)
    return replace(before, count=before.count + others, in_answer=not before.calls)


def _first_beyond(most: int) -> tuple[int, int]:
    return (most + 1 if most else 0), 0


def _executed(timeline: Timeline, settings: Settings) -> Evidence:
    """Return the evidence of every call that was not withheld."""
    calls = tuple([call for call in distinct_calls(timeline.rounds) if not call.withheld])
    return Evidence(1 + len(calls), calls)


def _by_tool(timeline: Timeline, settings: Settings) -> dict[str, Evidence]:
    calls: dict[str, list[PastCall]] = {}
    for call in timeline.memoized(_executed, settings).calls:
        calls.setdefault(call.call.full_name, []).append(call)
    return {name: Evidence(1 + len(own), tuple(own)) for name, own in calls.items()}


def _weight(timeline: Timeline, settings: Settings) -> int:
    total, known = 1, set[bytes]()
    for call in reversed(timeline.memoized(_executed, settings).calls):
        outcome = call.outcome
        if outcome is None or outcome.pending or outcome.transient:  # unknown, or it was right to wait
            total += 1
            continue
        total += STALE if outcome.digest in known else 1
        known.add(outcome.digest)
    return total
