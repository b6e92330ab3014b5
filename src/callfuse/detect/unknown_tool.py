"""`unknown_tool`: calls in a row of tools that the request does not declare, whatever their arguments.

Only where the request's list of tools is complete. Equal calls of one round are one piece of evidence.
"""

from callfuse.detect.detector import Detector, Evidence
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import recent
from callfuse.model import PastCall, Timeline, ToolCall


class UnknownTool(Detector):
    """Tools that are not there."""

    kind = Kind(
        "unknown_tool",
        seen="call {count} in a row of a tool that does not exist, here {tool}",
        suggestion="Call one of the tools that are declared, or answer in plain text.",
        limit=SoftLimit("calls", 3, "Calls in a row of tools that the request does not declare.", in_records=False),
    )
    of_any_tool = True

    def may_fire(self, timeline: Timeline, at: int, settings: Settings) -> bool:
        """A second unknown tool in a row means that the newest round has one."""
        return True in [timeline.lacks(one.name) for one in timeline.rounds[at].calls]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """The unknown tools of the rounds before, if this is another."""
        return timeline.memoized(_streak, settings) if timeline.lacks(call.name) else None


def _streak(timeline: Timeline, settings: Settings) -> Evidence:
    """The calls of unknown tools in the newest rounds, each of which has one; the same for every pending call."""
    streak: list[PastCall] = []
    for round_ in recent(timeline, settings):
        unknown = [one for one in round_.distinct if timeline.lacks(one.name)]
        if not unknown:
            break
        streak += reversed(unknown)
    return Evidence(1 + len(streak), tuple(streak))
