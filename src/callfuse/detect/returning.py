"""A blocked call that comes back.

It is refused until a new call has been executed; then it may run once, and if that brings the blocked streak's outcome
again the next one is refused at once.
"""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome, same_outcome
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


class Returning:
    """A `repeat` that goes on after its block, though other calls may stand in between."""

    def candidates(self, timeline: Timeline) -> Iterable[str]:
        """The tools of the blocked calls."""
        return {call.name for call in _blocked(timeline)}

    def possible(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[Finding]:
        """What would be found if a blocked call of this tool came again."""
        for call in _blocked(timeline):
            if call.name == name and (finding := self.judge(timeline, call, settings)):
                yield finding

    def judge(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Finding | None:
        """A finding where the call was blocked and nothing has changed since."""
        if not timeline.has_blocks or not settings.max_repeats:
            return None
        since: list[ToolCall] = []
        news = False
        for index, round_ in enumerate(timeline):
            mine = round_.find(call.name, call.signature)
            if mine is not None and mine.blocked:
                break
            if mine is not None and not mine.withheld:
                since.append(mine)
            if not news:
                new = timeline.news(round_, index, settings.window)
                news = any(other.signature in new and not other.withheld for other in round_.calls)
        else:
            return None
        streak = [one for round_ in timeline if (one := round_.find(call.name, call.signature)) is not None]
        before = streak[len(since) :]
        outcome: Outcome | None = next((one.outcome for one in before if one.outcome), None)
        if news and not (since and same_outcome(since[0].outcome, outcome)):
            return None
        return Finding(
            kind=Kind.REPEAT,
            tool=call.name,
            signature=call.signature,
            count=len(streak) + 1,
            threshold=settings.max_repeats,
            window_s=settings.ttl_seconds,
            hard=True,
            calls=tuple(one.id for one in reversed(streak)),
            previous=outcome.text if outcome else "",
            ends_on_news=False,
        )


def _blocked(timeline: Timeline) -> list[ToolCall]:
    """The blocked calls of the timeline."""
    if not timeline.has_blocks:
        return []
    return [call for round_ in timeline for call in round_.calls if call.blocked]
