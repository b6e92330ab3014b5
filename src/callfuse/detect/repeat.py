"""`repeat` and `repeat_changing`: consecutive rounds bring the same call.

`repeat` wants the outcomes of all but the pending one equal (an unknown one counts as equal); `repeat_changing` does not
look at outcomes and has higher thresholds. A round that also brings a new call is progress: it ends the streak and does
not count itself, except that the round in which the call first appears starts its streak whatever comes with it.
"""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome, same_outcome
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


class Repeat:
    """The same call with the same outcome; with `changing`, the same call whatever comes back."""

    def __init__(self, *, changing: bool = False) -> None:
        self._changing = changing

    def candidates(self, timeline: Timeline) -> Iterable[str]:
        """The tools of the newest round."""
        newest = next(iter(timeline), None)
        return {call.name for call in newest.calls} if newest else ()

    def possible(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[Finding]:
        """What would be found if a call of the newest round came again."""
        newest = next(iter(timeline), None)
        for call in newest.calls if newest else ():
            if call.name == name and (finding := self.judge(timeline, call, settings)):
                yield finding

    def judge(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Finding | None:
        """A finding where the pending call is at least the threshold's in its streak."""
        soft, hard = self._thresholds(settings)
        if not soft:
            return None
        streak = self._streak(timeline, call, settings)
        count = len(streak) + 1
        if count < soft:
            return None
        previous = next((seen.text for one in streak if (seen := one.outcome)), "")
        return Finding(
            kind=Kind.REPEAT_CHANGING if self._changing else Kind.REPEAT,
            tool=call.name,
            signature=call.signature,
            count=count,
            threshold=soft,
            window_s=settings.ttl_seconds,
            hard=count >= hard,
            calls=tuple(one.id for one in reversed(streak)),
            previous=previous,
        )

    def _thresholds(self, settings: LoopSettings) -> tuple[int, int]:
        """Soft and hard, in calls with the pending one; 0 is off."""
        if not settings.max_repeats:
            return 0, 0
        if not self._changing:
            return settings.max_repeats, 2 * settings.max_repeats
        if not settings.max_repeats_changing:
            return 0, 0
        soft = max(settings.max_repeats_changing, settings.max_repeats)
        return soft, -(-soft * 5 // 3)

    def _streak(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> list[ToolCall]:
        """The same calls before this one, newest first."""
        streak: list[ToolCall] = []
        later: float | None = timeline.now
        outcome: Outcome | None = None
        for index, round_ in enumerate(timeline):
            mine = round_.find(call.name, call.signature)
            if mine is None or _paused(round_.time, later, settings.ttl_seconds):
                break
            if not self._changing and not mine.withheld:
                if not same_outcome(outcome, mine.outcome):
                    break
                outcome = mine.outcome or outcome
            if len(round_.calls) > 1:
                known = timeline.window(settings.window, before=index + 1)
                if any(other.signature not in known for other in round_.calls if other.signature != call.signature):
                    if call.signature not in known:
                        streak.append(mine)
                    break
            streak.append(mine)
            later = round_.time
        return streak


def _paused(time: float | None, later: float | None, limit_s: float) -> bool:
    """Whether the pause between two rounds is too long for one streak; unknown times count as recent."""
    return time is not None and later is not None and later - time > limit_s
