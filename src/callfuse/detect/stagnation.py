"""`stagnation`: different calls in a row bring the same outcome. Off by default: writes that answer "success" do."""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome
from callfuse.calls.signature import Signature
from callfuse.detect.detector import ANY_TOOL, Evidence, any_call, twice
from callfuse.detect.streak import recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Stagnation:
    """Whatever is called, the same comes back."""

    kind = Kind.STAGNATION
    ends_on_news = False
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Calls."""
        return twice(tool.settings.detectors.stagnation)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """Any tool would do."""
        return (ANY_TOOL,) if settings.detectors.stagnation else ()

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call that is not among those before."""
        return [any_call(name)]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The different calls before this one whose outcomes are known and equal."""
        streak: list[ToolCall] = []
        seen: set[Signature] = {call.signature}
        outcome: Outcome | None = None
        for round_ in recent(timeline, settings):
            for one in reversed(round_.distinct):
                if one.withheld:
                    continue
                known = one.outcome
                if one.signature in seen or known is None or (outcome and known.digest != outcome.digest):
                    return Evidence(1 + len(streak), tuple(streak))
                seen.add(one.signature)
                streak.append(one)
                outcome = known
        return Evidence(1 + len(streak), tuple(streak))
