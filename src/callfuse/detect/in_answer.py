"""What is too much inside one answer: equal calls (`repeat`), and calls of any sort (`flood`).

The first calls go, as innocent siblings do; the one that reaches the limit does not, nor do those behind it. News
beside them changes nothing. From the hard limit on, the rest of the answer is not worth waiting for.
"""

from typing import ClassVar

from callfuse.detect import facts
from callfuse.detect.detector import Evidence, RoundDetector, twice
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
        return Room(equal=settings.max_repeats - 1)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """The equal calls before it."""
        return Evidence(1 + counted.equal, in_answer=True) if counted.equal else None


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
