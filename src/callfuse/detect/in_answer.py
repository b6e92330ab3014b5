"""What is too much inside one answer: equal calls (`repeat`), and calls of any sort (`flood`).

Of a new call a few equal ones may be wanted: three dice, four equal sub-agents. They count from the hard limit on;
those of a call that an earlier round has brought count from the soft one on. The first calls go, as innocent siblings
do; the one that reaches the limit does not, nor do those behind it. News beside them changes nothing. From the hard
limit on, the rest of the answer is not worth waiting for.
"""

from typing import ClassVar

from callfuse.detect import facts
from callfuse.detect.detector import ANY_TOOL, Evidence, RoundDetector, is_any_call, twice
from callfuse.detect.facts import Fact
from callfuse.detect.kind import Kind
from callfuse.detect.repeat import Repeat
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.siblings import Counted, Room
from callfuse.model import Timeline, ToolCall


class InAnswer(RoundDetector):
    """Looks at the pending round alone, whatever came before it."""

    needs: ClassVar[Fact] = facts.OTHERS

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """None: it comes alone."""
        return None


class EqualCalls(InAnswer):
    """The same call again and again in one answer."""

    kind = Repeat.kind

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, hard at twice that."""
        return twice(tool.settings.max_repeats)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """The equal calls that may go before one."""
        return Room(equal=settings.max_repeats * (1 if timeline.rounds else 2) - 1)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """The equal calls before it."""
        equal = 1 + counted.equal
        soft, hard = twice(settings.max_repeats)
        if equal < soft or (equal < hard and not _may_have_come(timeline, call, settings)):
            return None
        return Evidence(equal, in_answer=True)


def _may_have_come(timeline: Timeline, call: ToolCall, settings: Settings) -> bool:
    """Whether a call is one of the window; for any call of a tool, whether one of that tool is."""
    if not is_any_call(call):
        return timeline.knows(call.signature, settings.window)
    known = timeline.window(settings.window).values()
    return any(call.name in (ANY_TOOL, one.name, one.full_name) for one in known)


class Flood(InAnswer):
    """More calls in one answer than any client can want."""

    kind = Kind(
        "flood",
        seen="call {count} of one answer",
        suggestion="Make the calls that matter most, and wait for their results.",
        limited_by="max_calls_per_answer",
        about="Calls in one answer beyond `max_calls_per_answer`. `false` is off.",
        ends_round=True,
    )

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_calls_per_answer`; hard at once."""
        most = tool.settings.max_calls_per_answer
        return (most + 1, most + 1) if most else (0, 0)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """The calls that may go before one."""
        return Room(settings.max_calls_per_answer)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """All calls before it."""
        return Evidence(1 + counted.calls, in_answer=True)
