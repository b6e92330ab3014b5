"""`similar`: consecutive rounds bring calls of one tool that are much alike, and the same comes of them, or all fail.

Each call is compared with the next one: of several in a round, with the one most like it. Off until a threshold is set:
paging, ids and batches are alike, too.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from callfuse.calls.outcomes import Outcome, OutcomeKind
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.similarity import alike, outcomes_alike
from callfuse.detect.streak import recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings

MAX_REPEATS: Final = 3
"""The limit where that of `repeat` is off."""
MOST: Final = 16
"""Different calls of one round that are compared; more are a batch, and no repetition."""


class Similar:
    """Nearly the same call with the same outcome. Its confidence is the least likeness in the streak."""

    kind = Kind.SIMILAR
    of_any_tool = False
    ends_on_news = False
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, hard at twice that, once a threshold is set."""
        return twice(tool.settings.max_repeats or MAX_REPEATS) if tool.settings.similarity_threshold else (0, 0)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """The calls of the newest round: nothing is more like a call than itself."""
        newest = timeline.at(0)
        return newest.distinct if newest else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The calls before this one, each like the next. Beyond the highest limit nothing is compared any more."""
        threshold = settings.similarity_threshold or 1
        most = 2 * (settings.max_repeats or MAX_REPEATS) * settings.poll_factor
        tool = call.full_name
        streak: list[ToolCall] = []
        later, least = call, 1.0
        outcome: Outcome | None = None
        for round_ in recent(timeline, settings, lambda one: one.full_name == tool):
            if len(round_.signatures) > MOST or len(streak) >= most:
                break
            mine = [one for one in round_.distinct if one.full_name == tool]
            if not mine:
                break
            one, likeness = mine[0], 1.0
            if len(mine) > 1 or one.signature != later.signature:
                likeness, one = _most_like(timeline, later, mine, settings)
            came = None if one.withheld else one.outcome
            if outcome and came and not _both_failed(outcome, came):
                likeness = min(likeness, outcomes_alike(outcome, came, settings))
            if likeness < threshold:
                break
            streak.append(one)
            later, least, outcome = one, min(least, likeness), outcome or came
        return Evidence(1 + len(streak), tuple(streak), confidence=least)


def _most_like(
    timeline: Timeline, later: ToolCall, calls: Sequence[ToolCall], settings: LoopSettings
) -> tuple[float, ToolCall]:
    """How alike the call of a round is to a later one, of several the one most like it, whatever their order."""
    for one in calls:
        if one.signature == later.signature:
            return 1.0, one
    ranked = [(timeline.remembered(_alike, settings, later, one), one.signature, one) for one in calls]
    likeness, _, one = max(ranked, key=itemgetter(0, 1))
    return likeness, one


def _alike(_: Timeline, settings: LoopSettings, one: ToolCall, other: ToolCall) -> float:
    return alike(one, other, settings)


def _both_failed(one: Outcome, other: Outcome) -> bool:
    return one.kind is other.kind is OutcomeKind.ERROR
