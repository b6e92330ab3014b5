"""Find too many calls inside one answer: equal calls (`repeat`), and calls of any sort (`flood`).

A few equal new calls may be wanted: three dice, four equal sub-agents. So the hard limit applies to new calls, and the
soft limit to calls that an earlier round already has. The calls below the limit pass; the call that reaches it does
not, nor do later equal ones. New calls beside them change nothing. From the hard limit on, callfuse does not wait for
the rest of the answer.
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
        """Return None: a call alone is not evidence."""
        return None


class EqualCalls(InAnswer):
    """Finds the same call again and again in one answer."""

    kind = Repeat.kind

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return `max_repeats` as the soft limit, and twice that as the hard limit."""
        return twice(tool.settings.max_repeats)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many equal calls a round may have without a finding."""
        return Room(equal=settings.max_repeats * (1 if timeline.rounds else 2) - 1)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Count the call with the equal calls before it in the round."""
        equal = 1 + counted.equal
        soft, hard = twice(settings.max_repeats)
        if equal < soft or (equal < hard and not _may_have_come(timeline, call, settings)):
            return None
        return Evidence(equal, in_answer=True)


def _may_have_come(timeline: Timeline, call: ToolCall, settings: Settings) -> bool:
    """Whether an equal call is in the window; for `any_call`, whether any call of its tool is."""
    if not is_any_call(call):
        return timeline.knows(call.signature, settings.window)
    known = timeline.window(settings.window).values()
    return any(call.name in (ANY_TOOL, one.name, one.full_name) for one in known)


class Flood(InAnswer):
    """Finds more calls in one answer than `max_calls_per_answer`."""

    kind = Kind(
        "flood",
        seen="call {count} of one answer",
        suggestion="Make the calls that matter most, and wait for their results.",
        limited_by="max_calls_per_answer",
        about="Calls in one answer beyond `max_calls_per_answer`. `false` is off.",
        ends_round=True,
    )

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the count of the first call beyond `max_calls_per_answer`, as both limits."""
        most = tool.settings.max_calls_per_answer
        return (most + 1, most + 1) if most else (0, 0)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many calls a round may have without a finding."""
        return Room(settings.max_calls_per_answer)

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Count the call with all calls before it in the round."""
        return Evidence(1 + counted.calls, in_answer=True)
