"""`similar`: consecutive rounds bring calls of one tool that are much alike, and the same comes of them, or all fail.

Each call is compared with the next one. Off until a threshold is set: paging, ids and batches are alike, too.
"""

from collections.abc import Iterable

from callfuse.calls.outcomes import Outcome, OutcomeKind, same_outcome
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.similarity import alike
from callfuse.detect.streak import names, recent
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class Similar:
    """Nearly the same call with the same outcome. Its confidence is the least likeness in the streak."""

    kind = Kind.SIMILAR
    ends_on_news = False
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, hard at twice that, once a threshold is set."""
        return twice(tool.settings.max_repeats) if tool.settings.similarity_threshold else (0, 0)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """The tools of the newest round."""
        return names(timeline, 1)

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """The calls of the newest round: nothing is more like a call than itself."""
        newest = timeline.at(0)
        return newest.of_tool(name) if newest else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The calls before this one, each like the next."""
        streak: list[ToolCall] = []
        least, later = 1.0, call
        outcome: Outcome | None = None
        for round_ in recent(timeline, settings, call.signature):
            mine = round_.of_tool(call.name)
            likeness, one = max(((alike(later, one, settings.similarity), one) for one in mine), default=(0.0, later),
                                key=lambda pair: pair[0])  # fmt: skip
            if likeness < (settings.similarity_threshold or 1) or not _alike(outcome, _outcome(one)):
                break
            streak.append(one)
            least, later, outcome = min(least, likeness), one, outcome or _outcome(one)
        return Evidence(1 + len(streak), tuple(streak), confidence=least)


def _outcome(call: ToolCall) -> Outcome | None:
    return None if call.withheld else call.outcome


def _alike(one: Outcome | None, other: Outcome | None) -> bool:
    """Whether two outcomes are equal, or both errors."""
    if one is not None and other is not None and one.kind is other.kind is OutcomeKind.ERROR:
        return True
    return same_outcome(one, other)
