"""A blocked call that comes back: a `repeat` that goes on after its block, though other calls may stand in between.

It is refused until a new call has been executed; then it may run once, and if that brings the blocked streak's outcome
again the next one is refused at once.
"""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome, same_outcome
from callfuse.detect.detector import Evidence, twice
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Returning:
    """A call that has been blocked in this timeline."""

    kind = Kind.REPEAT
    ends_on_news = False
    spares_pollers = False

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, and nothing is found where that is off."""
        return twice(tool.settings.max_repeats)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """The tools of the blocked calls."""
        return {call.name for call in _blocked(timeline)}

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """The blocked calls."""
        return [call for call in _blocked(timeline) if call.name == name]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """All earlier calls that are the same, where one was blocked and nothing has changed since."""
        if not timeline.has_blocks:
            return None
        since: list[ToolCall] = []
        news = False
        for index, round_ in enumerate(timeline):
            mine = round_.find(call.name, call.signature)
            if mine is not None and mine.blocked:
                break
            if mine is not None and not mine.withheld:
                since.append(mine)
            if not news:
                new = timeline.news(round_, index, settings.window)
                news = any(other.signature in new and not other.withheld for other in round_.calls)
        else:
            return None
        streak = [one for round_ in timeline if (one := round_.find(call.name, call.signature)) is not None]
        before = streak[len(since) :]
        outcome: Outcome | None = next((one.outcome for one in before if one.outcome), None)
        if news and not (since and same_outcome(since[0].outcome, outcome)):
            return None
        return Evidence(1 + len(streak), tuple(streak), certain=True)


def _blocked(timeline: Timeline) -> list[ToolCall]:
    """The blocked calls of the timeline."""
    if not timeline.has_blocks:
        return []
    return [call for round_ in timeline for call in round_.calls if call.blocked]
