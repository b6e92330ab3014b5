"""`stagnation`: different calls in a row bring the same outcome. Off by default: writes that answer "success" do.

Where `similarity_threshold` is set, outcomes that are so much alike count as the same.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from callfuse.calls.outcomes import Outcome
from callfuse.calls.signature import Signature
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.similarity import outcomes_alike
from callfuse.detect.streak import recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Stagnation:
    """Whatever is called, the same comes back."""

    kind = Kind.STAGNATION
    of_any_tool = True
    ends_on_news = False
    spares_pollers = True
    wants_return = False

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Calls."""
        return twice(tool.settings.detectors.stagnation)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call that is not among those before."""
        return ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The different calls before this one whose outcomes are known and equal."""
        streak = timeline.remembered(_streak, settings)
        return timeline.remembered(_evidence, settings, streak.places.get(call.signature, len(streak.rounds)))


class _Streak(NamedTuple):
    """The executed calls of rounds with different calls and the same outcome, newest first, and by their signatures the
    rounds' places; `likeness` is the least among the outcomes."""

    rounds: list[list[ToolCall]]
    places: dict[Signature, int]
    likeness: float


def _evidence(timeline: Timeline, settings: LoopSettings, rounds: int) -> Evidence:
    """What so many of the rounds add up to."""
    streak = timeline.remembered(_streak, settings)
    calls = tuple([one for executed in streak.rounds[:rounds] for one in executed])
    return Evidence(1 + len(calls), calls, confidence=streak.likeness)


def _streak(timeline: Timeline, settings: LoopSettings) -> _Streak:
    rounds: list[list[ToolCall]] = []
    places: dict[Signature, int] = {}
    first: Outcome | None = None
    least = 1.0
    for round_ in recent(timeline, settings):
        calls = round_.calls if len(round_.calls) == 1 else round_.distinct[::-1]
        executed = [one for one in calls if not one.withheld]
        likeness = least
        for one in executed:
            outcome = one.outcome
            if outcome is None or one.signature in places:
                return _Streak(rounds, places, least)
            first = first or _first(executed)
            if first and first is not outcome and first.digest != outcome.digest:
                likeness = min(likeness, outcomes_alike(first, outcome, settings))
                if likeness < (settings.similarity_threshold or 1):
                    return _Streak(rounds, places, least)
            places[one.signature] = len(rounds)
        rounds.append(executed)
        least = likeness
    return _Streak(rounds, places, least)


def _first(executed: Iterable[ToolCall]) -> Outcome | None:
    """One of a round's outcomes, whatever the order of its calls."""
    return min([outcome for one in executed if (outcome := one.outcome)], key=attrgetter("digest"), default=None)
