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

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Calls."""
        return twice(tool.settings.detectors.stagnation)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """Any call that is not among those before."""
        return ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The different calls before this one whose outcomes are known and equal."""
        streak = timeline.remembered(_streak, settings)
        newer = next((at for at, (seen, _) in enumerate(streak.rounds) if call.signature in seen), len(streak.rounds))
        return timeline.remembered(_evidence, settings, newer)


class _Streak(NamedTuple):
    """Rounds of different calls with the same outcome, newest first; `likeness` is the least among the outcomes."""

    rounds: list[tuple[set[Signature], list[ToolCall]]]
    likeness: float


def _evidence(timeline: Timeline, settings: LoopSettings, rounds: int) -> Evidence:
    """What so many of the rounds add up to."""
    streak = timeline.remembered(_streak, settings)
    calls = tuple([one for _, executed in streak.rounds[:rounds] for one in executed])
    return Evidence(1 + len(calls), calls, confidence=streak.likeness)


def _streak(timeline: Timeline, settings: LoopSettings) -> _Streak:
    rounds: list[tuple[set[Signature], list[ToolCall]]] = []
    seen: set[Signature] = set()
    first: Outcome | None = None
    least = 1.0
    for round_ in recent(timeline, settings):
        executed = [one for one in reversed(round_.distinct) if not one.withheld]
        signatures = {one.signature for one in executed}
        came = [outcome for one in executed if (outcome := one.outcome)]
        if len(came) < len(executed) or not seen.isdisjoint(signatures):
            break
        if first is None and came:
            first = min(came, key=attrgetter("digest"))
        likeness = min([outcomes_alike(first, one, settings) for one in came if first], default=1.0)
        if likeness < (settings.similarity_threshold or 1):
            break
        rounds.append((signatures, executed))
        seen |= signatures
        least = min(least, likeness)
    return _Streak(rounds, least)
