"""`unknown_tool`: calls in a row of tools that the request does not declare, whatever their arguments.

Only where the request's list of tools is complete. Equal calls of one round are one piece of evidence.
"""

from callfuse.detect.detector import Detector, Evidence, twice
from callfuse.detect.streak import recent
from callfuse.model import Kind, PastCall, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class UnknownTool(Detector):
    """Tools that are not there."""

    kind = Kind.UNKNOWN_TOOL
    of_any_tool = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Calls."""
        return twice(tool.settings.detectors.unknown_tool)

    def may_fire(self, timeline: Timeline, at: int, settings: LoopSettings) -> bool:
        """A second unknown tool in a row means that the newest round has one."""
        return True in [timeline.lacks(one.name) for one in timeline.rounds[at].calls]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The unknown tools of the rounds before, if this is another."""
        return timeline.memoized(_streak, settings) if timeline.lacks(call.name) else None


def _streak(timeline: Timeline, settings: LoopSettings) -> Evidence:
    """The calls of unknown tools in the newest rounds, each of which has one; the same for every pending call."""
    streak: list[PastCall] = []
    for round_ in recent(timeline, settings):
        unknown = [one for one in round_.distinct if timeline.lacks(one.name)]
        if not unknown:
            break
        streak += reversed(unknown)
    return Evidence(1 + len(streak), tuple(streak))
