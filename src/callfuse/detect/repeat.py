"""`repeat` and `repeat_changing`: consecutive rounds bring the same call.

`repeat` wants the outcomes of all but the pending one equal (an unknown one counts as equal); `repeat_changing` does
not look at outcomes and has higher limits. A round that also brings a new call is progress: it ends the streak and
does not count itself, except that the round in which the call first appears starts its streak whatever comes with it.
"""

from collections.abc import Iterable

from callfuse.detect.detector import Evidence, twice
from callfuse.detect.streak import is_unread, recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature
from callfuse.policy.settings import ForTool, LoopSettings


class RepeatChanging:
    """The same call whatever comes back."""

    kind = Kind.REPEAT_CHANGING
    of_any_tool = False
    ends_on_news = True
    spares_pollers = True
    wants_return = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Never below those of `repeat`; hard at five thirds."""
        soft, other = tool.settings.max_repeats_changing, tool.settings.max_repeats
        if not (soft and other):
            return 0, 0
        soft = max(soft, other)
        return soft, -(-soft * 5 // 3)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """The calls of the newest round."""
        newest = timeline.at(0)
        return newest.distinct if newest else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The same calls before this one, whatever came of them."""
        streak = timeline.remembered(_streak, settings, call.name, call.signature)
        return Evidence(1 + len(streak), streak) if streak else None


def _streak(timeline: Timeline, settings: LoopSettings, name: str, signature: Signature) -> tuple[ToolCall, ...]:
    """The same calls before the pending one, newest first."""
    streak: list[ToolCall] = []
    for index, round_ in enumerate(recent(timeline, settings, lambda one: one.signature == signature)):
        if len(round_.calls) == 1:
            (one,) = round_.calls
            if one.name != name or one.signature != signature:
                break
            streak.append(one)
            continue
        mine = round_.find(name, signature)
        if mine is None:
            break
        news = timeline.news(index, settings.window)
        if not news or signature in news:
            streak.append(mine)
        if news:
            break
    return tuple(streak)


class Repeat(RepeatChanging):
    """The same call with the same outcome."""

    kind = Kind.REPEAT

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, hard at twice that."""
        return twice(tool.settings.max_repeats)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The same calls before this one as far as their outcomes are equal."""
        streak = repeated(timeline, settings, call)
        return Evidence(1 + len(streak), streak) if streak else None


def repeated(timeline: Timeline, settings: LoopSettings, call: ToolCall) -> tuple[ToolCall, ...]:
    """The same calls before the pending one with equal outcomes, newest first."""
    return timeline.remembered(_with_equal_outcomes, settings, call.name, call.signature)


def _with_equal_outcomes(
    timeline: Timeline, settings: LoopSettings, name: str, signature: Signature
) -> tuple[ToolCall, ...]:
    """The newest calls of a streak as far as their outcomes are equal; withheld calls have none, and count."""
    streak = timeline.remembered(_streak, settings, name, signature)
    outcome: Outcome | None = None
    for index, call in enumerate(streak if len(streak) > 1 else ()):  # outcomes cost something to know
        if call.withheld or ((came := call.outcome) is outcome is not None):
            continue
        if is_unread(call) or not same_outcome(outcome, came):
            return streak[:index]
        outcome = outcome or came
    return streak
