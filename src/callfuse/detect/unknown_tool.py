"""`unknown_tool`: calls in a row of tools that the request does not declare, whatever their arguments.

Only where the request's list of tools is complete. Equal calls of one round are one piece of evidence.
"""

from collections.abc import Iterable

from callfuse.detect.detector import Evidence, twice
from callfuse.detect.streak import recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class UnknownTool:
    """Tools that are not there."""

    kind = Kind.UNKNOWN_TOOL
    of_any_tool = True
    ends_on_news = False
    spares_pollers = False
    wants_return = False

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Calls."""
        return twice(tool.settings.detectors.unknown_tool)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call of an unknown tool."""
        return ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The unknown tools of the rounds before, if this is another."""
        return timeline.remembered(_streak, settings) if timeline.lacks(call.name) else None


def _streak(timeline: Timeline, settings: LoopSettings) -> Evidence:
    """The calls of unknown tools in the newest rounds, each of which has one; the same for every pending call."""
    streak: list[ToolCall] = []
    for round_ in recent(timeline, settings):
        unknown = [one for one in round_.distinct if timeline.lacks(one.name)]
        if not unknown:
            break
        streak += reversed(unknown)
    return Evidence(1 + len(streak), tuple(streak))
