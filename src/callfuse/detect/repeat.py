"""`repeat` and `repeat_changing`: consecutive rounds bring the same call.

`repeat` wants the outcomes of all but the pending one equal (an unknown one counts as equal); `repeat_changing` does
not look at outcomes and has higher limits. A round that also brings a new call is progress: it ends the streak and
does not count itself, except that the round in which the call first appears starts its streak whatever comes with it.
"""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome, same_outcome
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.streak import names, recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class RepeatChanging:
    """The same call whatever comes back."""

    kind = Kind.REPEAT_CHANGING
    ends_on_news = True
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Never below those of `repeat`; hard at five thirds."""
        soft, other = tool.settings.max_repeats_changing, tool.settings.max_repeats
        if not (soft and other):
            return 0, 0
        soft = max(soft, other)
        return soft, -(-soft * 5 // 3)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """The tools of the newest round."""
        return names(timeline, 1)

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """The calls of the newest round."""
        newest = timeline.at(0)
        return newest.of_tool(name) if newest else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The same calls before this one, whatever came of them."""
        streak: list[ToolCall] = []
        for index, round_ in enumerate(recent(timeline, settings, call.signature)):
            mine = round_.find(call.name, call.signature)
            if mine is None:
                break
            if len(round_.calls) > 1:
                news = timeline.news(round_, index, settings.window)
                if news - {call.signature}:
                    if call.signature in news:
                        streak.append(mine)
                    break
            streak.append(mine)
        return Evidence(1 + len(streak), tuple(streak))


class Repeat(RepeatChanging):
    """The same call with the same outcome."""

    kind = Kind.REPEAT

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, hard at twice that."""
        return twice(tool.settings.max_repeats)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The same calls before this one as far as their outcomes are equal."""
        found = super().evidence(timeline, call, settings)
        if found is None or found.count < self.limits(settings.for_tool(call.full_name))[0]:
            return found  # outcomes cost something to know
        streak = _with_equal_outcomes(found.calls)
        return Evidence(1 + len(streak), streak)


def _with_equal_outcomes(streak: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The newest calls of a streak as far as their outcomes are equal; withheld calls have none, and count.

    An unknown outcome counts as equal, but not where the client has dropped the round and nobody read it in time: in
    a live streak someone has.
    """
    outcome: Outcome | None = None
    for index, call in enumerate(streak):
        if call.withheld:
            continue
        if not same_outcome(outcome, call.outcome) or (call.dropped and call.outcome is None):
            return streak[:index]
        outcome = outcome or call.outcome
    return streak
