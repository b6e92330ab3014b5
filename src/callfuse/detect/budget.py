"""`budget`: more calls in a timeline, or more of one tool, than allowed. Off by default; what `tune` calibrates.

Equal calls of one round count once.
"""

from collections.abc import Iterable

from callfuse.detect.detector import ANY_TOOL, Evidence, any_call
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Budget:
    """All calls since the last real user message."""

    kind = Kind.BUDGET
    ends_on_news = False
    spares_pollers = False

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_calls`; never hard."""
        return (tool.settings.max_calls + 1 if tool.settings.max_calls else 0), 0

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """Any tool would do."""
        return (ANY_TOOL,) if settings.max_calls else ()

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call."""
        return [any_call(name)]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """How many calls there have been."""
        calls = timeline.remembered(_executed, settings)
        return Evidence(1 + len(calls), calls)


class ToolBudget(Budget):
    """All calls of one tool since the last real user message."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_calls_of_tool`; never hard."""
        return (tool.settings.max_calls_of_tool + 1 if tool.settings.max_calls_of_tool else 0), 0

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """Every tool of the timeline."""
        return {call.name for call in timeline.remembered(_executed, settings)}

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """How many calls of this tool there have been."""
        calls = tuple(one for one in timeline.remembered(_executed, settings) if one.name == call.name)
        return Evidence(1 + len(calls), calls)


def _executed(timeline: Timeline, settings: LoopSettings) -> tuple[ToolCall, ...]:
    return tuple(call for round_ in timeline for call in round_.distinct if not call.withheld)
