"""`similar`: consecutive rounds have very similar calls of one tool, with the same result, or all fail.

Each call is compared with the most similar call of the next round. Counting up a `page` or an `offset` is not a
repetition as long as the results are new (`pages_on`). Off until a threshold is set, because calls with different ids,
and batches, are similar, too.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence, twice
from callfuse.detect.kind import Kind
from callfuse.detect.repeat import equal_calls
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.similarity import alike, outcomes_alike, pages_on
from callfuse.detect.streak import newest_calls, recent
from callfuse.model import PastCall, Round, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, OutcomeKind, same_outcome

MAX_REPEATS: Final = 3
"""The limit if that of `repeat` is off."""
MOST: Final = 16
"""The most different calls of one round that are compared; more are a batch, not a repetition."""


class Similar(Detector):
    """Finds nearly the same call in a row with the same outcome. Its confidence is the streak's least similarity."""

    kind = Kind(
        "similar",
        seen="call {count} of {tool} in a row with nearly the same arguments ({confidence:.0%} alike) and result",
        suggestion="Change the approach rather than a detail of the arguments.",
        limited_by="max_repeats",
        about="Nearly equal calls in a row; on if `similarity_threshold` is set. The limit is `max_repeats`. "
        "`false` is off.",
        spares_pollers=True,
    )
    needs = facts.SAME_TOOL

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return `max_repeats` and twice that, once a threshold is set."""
        return twice(tool.settings.max_repeats or MAX_REPEATS) if tool.settings.similarity_threshold else (0, 0)

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls of the newest round: no call is more similar to a call than itself."""
        return newest_calls(timeline)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the calls in a row, each similar to the next. Beyond the highest limit nothing is compared."""
        newest = timeline.newest
        if newest is None or (len(newest.calls) == 1 and newest.calls[0].name != call.name):
            return None
        first = timeline.memoized(_before, settings, call)
        if first is None:
            return None
        likeness, one = first
        streak, least = timeline.memoized(_streak, settings, one)
        if len(streak) == 1 and pages_on(call, one.call):
            return None  # paging may return something new
        return Evidence(1 + len(streak), streak, confidence=min(likeness, least))


def _streak(timeline: Timeline, settings: Settings, newest: PastCall) -> tuple[tuple[PastCall, ...], float]:
    """Return a call of the newest round with the calls before it, each similar to the next, and the least similarity
    among them. It does not depend on the pending call."""
    most = 2 * (settings.max_repeats or MAX_REPEATS) * settings.poll_factor
    threshold = settings.similarity_threshold or 1
    rounds = _rounds(timeline, newest.call, settings)
    streak = _equal_ones(timeline, newest, rounds, settings)[:most]
    least = 1.0
    outcome = next((came for one in streak if (came := None if one.withheld else one.outcome)), None)
    for round_ in rounds[len(streak) : most]:
        found = _most_like(timeline, streak[-1].call, round_, settings)
        if found is None:
            break
        likeness, one = found
        came = None if one.withheld else one.outcome
        if came is not outcome and outcome and came:
            likeness = min(likeness, _results_alike(streak[-1].call, outcome, one.call, came, settings))
        if likeness < threshold:
            break
        streak.append(one)
        least = min(least, likeness)
        outcome = outcome or came
    return tuple(streak), least


def _equal_ones(timeline: Timeline, newest: PastCall, rounds: Sequence[Round], settings: Settings) -> list[PastCall]:
    """Return a call of the newest round with the equal calls before it, each the only call of its round."""
    if not settings.max_repeats:  # `repeat` is off and has not read their outcomes
        return [newest]
    streak = []
    name = newest.full_name
    for round_, one in zip(rounds, equal_calls(timeline, settings, newest.signature), strict=False):
        if len(round_.calls) > 1 or one.call.full_name != name:
            break
        streak.append(one)
    return streak or [newest]


def _before(timeline: Timeline, settings: Settings, call: ToolCall) -> tuple[float, PastCall] | None:
    """Return the newest round's call that is similar enough to a pending call, and their similarity; None if there is
    none."""
    rounds = _rounds(timeline, call, settings)
    found = _most_like(timeline, call, rounds[0], settings) if rounds else None
    return found if found and found[0] >= (settings.similarity_threshold or 1) else None


def _rounds(timeline: Timeline, call: ToolCall, settings: Settings) -> Sequence[Round]:
    return recent(timeline, settings, lambda one: one.full_name == call.full_name)


def _most_like(timeline: Timeline, later: ToolCall, round_: Round, settings: Settings) -> tuple[float, PastCall] | None:
    """Return the round's call that is most similar to a later call, and their similarity, in any order of the calls."""
    if len(round_.calls) == 1:
        (one,) = round_.calls
        return (_alike(timeline, settings, later, one.call), one) if one.full_name == later.full_name else None
    if len(round_.calls) > MOST and len(round_.signatures) > MOST:
        return None
    if same := round_.find(later.signature):
        return 1.0, same
    calls = [one for one in round_.distinct if one.full_name == later.full_name]
    if not calls:
        return None
    likeness, _, one = max(
        [(_alike(timeline, settings, later, one.call), one.signature, one) for one in calls], key=itemgetter(0, 1)
    )
    return likeness, one


def _alike(timeline: Timeline, settings: Settings, one: ToolCall, other: ToolCall) -> float:
    """Return how similar two calls are. Cached if the newest round has several calls, whose streaks share pairs."""
    newest = timeline.newest
    if newest is None or len(newest.calls) == 1:
        return alike(one, other, settings)
    if one.signature == other.signature:
        return 1.0
    return timeline.memoized(_kept, settings, one, other)


def _kept(_: Timeline, settings: Settings, one: ToolCall, other: ToolCall) -> float:
    return alike(one, other, settings)


def _results_alike(later: ToolCall, outcome: Outcome, one: ToolCall, came: Outcome, settings: Settings) -> float:
    """Return how similar the outcomes of two calls are: 1 if both failed, 0 if another page returned another result."""
    if outcome.kind is came.kind is OutcomeKind.ERROR:
        return 1.0
    if not same_outcome(outcome, came) and pages_on(later, one):
        return 0.0
    return outcomes_alike(outcome, came, settings)
