"""`repeat` and `repeat_changing`: consecutive rounds bring the same call.

`repeat` wants the outcomes of all but the pending one equal (an unknown one counts as equal); `repeat_changing` does
not look at outcomes and has higher thresholds. A round that also brings a new call is progress: it ends the streak
and does not count itself, except that the round in which the call first appears starts its streak whatever comes with
it.
"""

from collections.abc import Iterable
from typing import Final

from callfuse.calls.outcomes import Outcome, same_outcome
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

COUNTED: Final = 250
"""Calls of a streak are counted this far: beyond, a higher count says nothing more."""


class Repeat:
    """The same call with the same outcome; with `changing`, the same call whatever comes back."""

    def __init__(self, *, changing: bool = False) -> None:
        self._changing = changing

    def candidates(self, timeline: Timeline) -> Iterable[str]:
        """The tools of the newest round."""
        newest = timeline.at(0)
        return [call.name for call in newest.calls] if newest else ()

    def possible(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[Finding]:
        """What would be found if a call of the newest round came again."""
        if not _has_tool(timeline, name, self._thresholds(settings)[0] - 1):
            return
        newest = timeline.at(0)
        for call in {call.signature: call for call in newest.calls if call.name == name}.values() if newest else ():
            if finding := self.judge(timeline, call, settings):
                yield finding

    def judge(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Finding | None:
        """A finding where the pending call is at least the threshold's in its streak."""
        soft, hard = self._thresholds(settings)
        if not soft:
            return None
        if not _has_tool(timeline, call.name, soft - 1):
            return None
        streak = self._streak(timeline, call, settings)
        if not self._changing and len(streak) + 1 >= soft:
            streak = _with_equal_outcomes(streak)
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
        """The same calls before this one, whatever came of them, newest first."""
        streak: list[ToolCall] = []
        later: float | None = timeline.now
        for index, round_ in enumerate(timeline):
            mine = round_.find(call.name, call.signature)
            if mine is None or _paused(round_.time, later, settings.ttl_seconds) or len(streak) >= COUNTED:
                break
            if len(round_.calls) > 1:
                news = timeline.news(round_, index, settings.window)
                if news - {call.signature}:
                    if call.signature in news:
                        streak.append(mine)
                    break
            streak.append(mine)
            later = round_.time
        return streak


def _has_tool(timeline: Timeline, name: str, rounds: int) -> bool:
    """Whether each of the newest rounds calls this tool: what most timelines fail, for next to nothing."""
    for index in range(rounds):
        round_ = timeline.at(index)
        if round_ is None or all(call.name != name for call in round_.calls):
            return False
    return rounds >= 0


def _with_equal_outcomes(streak: list[ToolCall]) -> list[ToolCall]:
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


def _paused(time: float | None, later: float | None, limit_s: float) -> bool:
    """Whether the pause between two rounds is too long for one streak; unknown times count as recent."""
    return time is not None and later is not None and later - time > limit_s
