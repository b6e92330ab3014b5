"""Estimates what was saved: withheld calls, calls that the loop would still have made, tokens, and money.

A withheld call is one that was not run: that is counted. What the model would have done without callfuse nobody knows;
what others did is measured: in 3,487 recorded runs that nobody stopped (tau-bench, tau2, MCPMark, BFCL, OpenClaw,
terminal-bench), how many calls with a finding still followed a finding at that count, on average
(`python -m benchmarks.continuation`). So a loop saves the calls of it that were withheld, or the first of them and the
calls that follow on average, whichever is more. Warnings save nothing here, although they do.

Tokens are saved because requests are not made: each saved call spares one, with its answer. It would have cost at least
what the request with the withheld call has cost: as the vendor has told by then, else a token for four characters. If
the model has a price, these tokens have one, too. Text that is cut off saves the rest of its answer, of which nobody
knows the length: it counts as nothing.
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
"""By kind, and by how far the count is above the soft limit (the last for all beyond): the findings that follow. Kinds
without a measurement save what is withheld alone."""
MOST_LOOPS: Final = 1000
"""Loops whose number of calls counted in advance is remembered; beyond, the one unseen for longest is forgotten."""


def following(kind: str, above: int) -> float:
    """Return how many calls follow a finding on average. `above`: how far its count is above the soft limit."""
    measured = FOLLOW.get(kind, (0.0,))
    return measured[min(max(above, 0), len(measured) - 1)]


def amounts_of(event: FindingSeen, calls: float) -> dict[str, float]:
    """Return what so many calls like this one would have cost, with their requests and answers, by the names of the
    rates; nothing if no call is saved, and no money without a price."""
    if not calls:
        return {}
    amounts: dict[str, float] = {"saved_calls": round(calls, 3), "saved_tokens": round(calls * event.tokens)}
    return amounts | {"saved_cost": round(calls * event.price, 6)} if event.price else amounts


class Saved:
    """Estimates the saved calls of findings, one after another. Not to be used by two threads at once."""

    def __init__(self) -> None:
        self._ahead: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def by(self, event: FindingSeen) -> float:
        """Return how many calls this finding adds to the saved ones.

        A lane's loops of one kind share what was counted in advance, so that the estimate is rather too low."""
        finding = event.verdict.finding
        if event.again or finding.stretch.part or not event.verdict.withholds:  # what is cut off of a text is no call
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
