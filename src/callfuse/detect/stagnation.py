"""`stagnation`: different calls in a row have the same outcome. Off by default: writes that return "success" do, too.

If `similarity_threshold` is set, outcomes that are at least so similar count as the same.
"""

from collections.abc import Sequence
from operator import attrgetter

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.similarity import outcomes_alike
from callfuse.detect.streak import recent
from callfuse.model import PastCall, Timeline, ToolCall
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature


class Stagnation(Detector):
    """Finds different calls in a row that all have the same outcome."""

    kind = Kind(
        "stagnation",
        seen="call {count} in a row that returns the same result, whatever is called",
        suggestion="The answer does not depend on these calls: change the approach.",
        limit=SoftLimit("calls", 6, "Different calls in a row with the same outcome. Off by default.", on=False),
        spares_pollers=True,
    )
    needs = facts.CALLS

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the different calls in a row whose outcomes are known and equal."""
        streak, before, likeness = timeline.memoized(_streak, settings)
        different = streak[: before.get(call.signature)]
        return Evidence(1 + len(different), different, confidence=likeness)


def _streak(timeline: Timeline, settings: Settings) -> tuple[tuple[PastCall, ...], dict[Signature, int], float]:
    """Return the streak's executed calls, newest first; for each signature how many of the calls are in newer rounds;
    and the least similarity among the outcomes."""
    streak: list[PastCall] = []
    before: dict[Signature, int] = {}
    first: Outcome | None = None
    least = 1.0
    for round_ in recent(timeline, settings):
        calls = round_.calls if len(round_.calls) == 1 else round_.distinct[::-1]
        newer = len(streak)
        likeness = least
        for one in calls:
            if one.withheld:
                continue
            signature, outcome = one.signature, one.outcome
            if outcome is None or signature in before:
                return tuple(streak[:newer]), before, least
            first = first or (outcome if len(calls) == 1 else _first(calls))
            if first is not outcome and first.digest != outcome.digest:
                likeness = min(likeness, outcomes_alike(first, outcome, settings))
                if likeness < (settings.similarity_threshold or 1):
                    return tuple(streak[:newer]), before, least
            before[signature] = newer
            streak.append(one)
        least = likeness
    return tuple(streak), before, least


def _first(calls: Sequence[PastCall]) -> Outcome:
    """Return one of a round's outcomes, independent of the order of its calls; at least one outcome must be known."""
    outcomes = [outcome for one in calls if not one.withheld and (outcome := one.outcome)]
    return outcomes[0] if len(outcomes) == 1 else min(outcomes, key=attrgetter("digest"))
