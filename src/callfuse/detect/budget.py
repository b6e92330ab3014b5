"""`budget`: more calls in a timeline, or more of one tool, than allowed. Off by default; what `tune` calibrates.

Equal calls of one round count once.
"""

from collections.abc import Iterable

from callfuse.detect.detector import ANY_TOOL, Evidence, calls_of
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Budget:
    """All calls since the last real user message."""

    kind = Kind.BUDGET
    of_any_tool = True
    ends_on_news = False
    spares_pollers = False
    wants_return = False

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_calls`; never hard."""
        return (tool.settings.max_calls + 1 if tool.settings.max_calls else 0), 0

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call."""
        return ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """How many calls there have been."""
        return executed(timeline, settings) if timeline.calls_at_most >= settings.max_calls else None


class ToolBudget(Budget):
    """All calls of one tool since the last real user message."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The first call beyond `max_calls_of_tool`; never hard."""
        return (tool.settings.max_calls_of_tool + 1 if tool.settings.max_calls_of_tool else 0), 0

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """How many calls of this tool there have been; for `ANY_TOOL`, of the one that was called most."""
        if timeline.calls_at_most < settings.max_calls_of_tool:
            return None
        tools = timeline.remembered(_by_tool, settings)
        if call.full_name == ANY_TOOL:
            return max(tools.values(), key=lambda one: one.count, default=None)
        return tools.get(call.full_name)


def executed(timeline: Timeline, settings: LoopSettings) -> Evidence:
    """Every call that was not withheld."""
    return timeline.remembered(_executed, settings)


def _executed(timeline: Timeline, settings: LoopSettings) -> Evidence:
    calls = tuple([call for call in calls_of(timeline) if not call.withheld])
    return Evidence(1 + len(calls), calls)


def _by_tool(timeline: Timeline, settings: LoopSettings) -> dict[str, Evidence]:
    calls: dict[str, list[ToolCall]] = {}
    for call in executed(timeline, settings).calls:
        calls.setdefault(call.full_name, []).append(call)
    return {name: Evidence(1 + len(own), tuple(own)) for name, own in calls.items()}
