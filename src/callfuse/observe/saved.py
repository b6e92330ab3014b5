"""Estimate savings: withheld calls, calls that the loop would still have made, tokens, and money.

A withheld call was not run, so it is counted. What the model would have done without callfuse is not known, but
measured for others: in 3,487 recorded runs that nobody stopped (tau-bench, tau2, MCPMark, BFCL, OpenClaw,
terminal-bench), how many calls with a finding followed a finding at that count, on average (`python -m
benchmarks.continuation`). So a loop saves its withheld calls, or the first of them and the average number of following
calls, whichever is more. Warnings count as no savings.

Each saved call also saves a request and its answer. These would have cost at least as many tokens as the request with
the withheld call: the vendor's count if known, else a token for four characters. If the model has a price, these tokens
have one, too. Text that is cut off saves the rest of its answer. Its length is unknown, so it counts as nothing.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from callfuse.observe.events import FindingSeen

FOLLOW: Final[Mapping[str, tuple[float, ...]]] = {
    "repeat": (4.8, 8.6, 14.1),
    "no_news": (1.9, 1.8, 1.8),
    "cycle": (1.5,),
}
"""By kind, and by how far the count is above the soft limit (the last value for all higher counts): the findings that
follow on average. For other kinds only withheld calls count."""
MOST_LOOPS: Final = 1000
"""The most loops whose calls counted in advance are remembered; the least recently seen is forgotten first."""


def following(kind: str, above: int) -> float:
    """Return how many calls follow a finding on average. `above`: how far its count is above the soft limit."""
    measured = FOLLOW.get(kind, (0.0,))
    return measured[min(max(above, 0), len(measured) - 1)]


def amounts_of(event: FindingSeen, calls: float) -> dict[str, float]:
    """Return what `calls` calls like this one would have cost, with their requests and answers, by the names of the
    rates; empty if no call is saved, and without a cost if the model has no price."""
    if not calls:
        return {}
    amounts: dict[str, float] = {"saved_calls": round(calls, 3), "saved_tokens": round(calls * event.tokens)}
    return amounts | {"saved_cost": round(calls * event.price, 6)} if event.price else amounts


class Saved:
    """Estimates the saved calls of findings, one after another. Not thread-safe."""

    def __init__(self) -> None:
        self._ahead: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def by(self, event: FindingSeen) -> float:
        """Return how many calls this finding adds to the saved ones.

        A lane's loops of one kind share the calls counted in advance, so the estimate is rather too low."""
        finding = event.verdict.finding
        if event.again or finding.stretch.part or not event.verdict.withholds:  # text that is cut off is not a call
            return 0.0
        loop = event.where.session, event.where.lane, finding.kind
        ahead = self._ahead.pop(loop, None)
        if ahead is None:
            ahead = following(finding.kind, finding.count - finding.threshold)
            saved = 1 + ahead
        else:
            counted = min(ahead, 1.0)
            ahead -= counted
            saved = 1 - counted
        self._ahead[loop] = ahead
        while len(self._ahead) > MOST_LOOPS:
            self._ahead.popitem(last=False)
        return saved
