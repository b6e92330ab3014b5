"""`repeat` and `repeat_changing`: consecutive rounds have the same call.

For `repeat`, the outcomes of all past calls must be equal (an unknown outcome equals any); `repeat_changing` does not
compare outcomes, has higher limits, and resets its count when they show progress (`progress.py`). A round that also has
a new call is progress: it ends the streak and does not count, except that the round in which the call first appears
starts its streak, whatever else is in it.
"""

from collections.abc import Iterable

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence, twice
from callfuse.detect.kind import Kind
from callfuse.detect.progress import since_progress
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.streak import newest_calls, recent
from callfuse.model import PastCall, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature


class RepeatChanging(Detector):
    """Finds the same call in a row, whatever its results."""

    kind = Kind(
        "repeat_changing",
        seen="call {count} of {tool} in a row with the same arguments, whatever came back",
        suggestion="Decide on what it has returned, or wait for longer before asking again.",
        most="warn",
        most_hard="warn",
        limited_by="max_repeats_changing",
        about="Equal calls in a row, whatever they return; the limit is `max_repeats_changing`. `false` is off.",
        specific=True,
        spares_pollers=True,
    )
    needs = facts.REPEATS

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return limits that are never below those of `repeat`; hard at five thirds."""
        soft, other = tool.settings.max_repeats_changing, tool.settings.max_repeats
        if not (soft and other):
            return 0, 0
        soft = max(soft, other)
        return soft, -(-soft * 5 // 3)

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls of the newest round."""
        return newest_calls(timeline)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the equal calls in a row since the last progress, whatever their outcomes."""
        streak = timeline.memoized(_without_progress, settings, call.signature)
        return Evidence(1 + len(streak), streak) if streak else None


class Repeat(RepeatChanging):
    """Finds the same call in a row with the same outcome."""

    kind = Kind(
        "repeat",
        seen="call {count} of {tool} in a row with the same arguments, and nothing new came of it",
        seen_in_answer="call {count} of {tool} in one answer with the same arguments",
        seen_uncompared="call {count} of {tool} in a row with the same arguments",
        seen_returned="a call of {tool} with the same arguments as one that was blocked",
        suggestion="Try other arguments or another tool, or continue with what is already known.",
        limited_by="max_repeats",
        about="Equal calls in a row with equal outcomes, and blocked calls that come back; the limit is `max_repeats`. "
        "`false` is off, but leaves `repeat_changing` on.",
        specific=True,
        spares_pollers=True,
    )

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return `max_repeats` as the soft limit, and twice that as the hard limit."""
        return twice(tool.settings.max_repeats)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the equal calls in a row, back to the first different outcome.

        A single result after a different one is news: a finding then needs two equal results.
        """
        streak = equal_calls(timeline, settings, call.signature)
        has_changed = len(streak) < len(timeline.memoized(_streak, settings, call.signature))
        if not streak or (has_changed and sum([not one.withheld for one in streak]) < 2):
            return None
        return Evidence(1 + len(streak), streak)


def equal_calls(timeline: Timeline, settings: Settings, signature: Signature) -> tuple[PastCall, ...]:
    """Return the equal calls before the pending one that returned equal outcomes, newest first."""
    return timeline.memoized(_with_equal_outcomes, settings, signature)


def _streak(timeline: Timeline, settings: Settings, signature: Signature) -> tuple[PastCall, ...]:
    """Return the equal calls before the pending one, newest first."""
    streak: list[PastCall] = []
    for index, round_ in enumerate(recent(timeline, settings, lambda one: one.signature == signature)):
        if len(round_.calls) == 1:
            (one,) = round_.calls
            if one.signature != signature:
                break
            streak.append(one)
            continue
        mine = round_.find(signature)
        if mine is None:
            break
        news = timeline.news(index, settings.window)
        if not news or signature in news:
            streak.append(mine)
        if news:
            break
    return tuple(streak)


def _without_progress(timeline: Timeline, settings: Settings, signature: Signature) -> tuple[PastCall, ...]:
    streak = timeline.memoized(_streak, settings, signature)
    executed = [at for at, one in enumerate(streak) if not one.withheld]
    since = since_progress([streak[at].outcome for at in executed])
    return streak[: executed[since]] if since < len(executed) else streak


def _with_equal_outcomes(timeline: Timeline, settings: Settings, signature: Signature) -> tuple[PastCall, ...]:
    """Return the newest calls of a streak with equal outcomes, and the withheld calls among them."""
    streak = timeline.memoized(_streak, settings, signature)
    outcome: Outcome | None = None
    for index, call in enumerate(streak if len(streak) > 1 else ()):  # reading outcomes is expensive
        came = None if call.withheld else call.outcome
        if came is outcome or came is None:
            continue
        if not same_outcome(outcome, came):
            return streak[:index]
        outcome = outcome or came
    return streak
