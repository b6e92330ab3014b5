"""`stagnation`: different calls in a row bring the same outcome. Off by default: writes that answer "success" do.

Where `similarity_threshold` is set, outcomes that are so much alike count as the same.
"""

from collections.abc import Iterable
from dataclasses import replace
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
        past = timeline.remembered(_streak, settings)
        if call.signature not in past.signatures:
            return past.evidence
        calls: list[ToolCall] = []
        for executed in past.rounds:
            if call.signature in [one.signature for one in executed]:
                break
            calls += executed
        return replace(past.evidence, count=1 + len(calls), calls=tuple(calls))


class _Streak(NamedTuple):
    """Rounds of different calls with the same outcome, newest first, and what they add up to."""

    rounds: list[list[ToolCall]]
    signatures: set[Signature]
    evidence: Evidence


def _streak(timeline: Timeline, settings: LoopSettings) -> _Streak:
    rounds: list[list[ToolCall]] = []
    seen: set[Signature] = set()
    outcome: Outcome | None = None
    least = 1.0
    for round_ in recent(timeline, settings):
        executed = [one for one in reversed(round_.distinct) if not one.withheld]
        outcomes = [one.outcome for one in executed]
        if None in outcomes or not seen.isdisjoint(one.signature for one in executed):
            break
        outcome = outcome or next(iter(outcomes), None)
        likeness = min((outcomes_alike(outcome, one, settings) for one in outcomes), default=1.0)
        if likeness < (settings.similarity_threshold or 1):
            break
        rounds.append(executed)
        seen.update(one.signature for one in executed)
        least = min(least, likeness)
    calls = tuple([one for executed in rounds for one in executed])
    return _Streak(rounds, seen, Evidence(1 + len(calls), calls, confidence=least))
