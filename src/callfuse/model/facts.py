"""Facts about the rounds of a timeline, for cheap checks before a closer look.

Judge, notes and hindsight share one object; its values do not depend on who reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from callfuse.model.rounds import Round
from callfuse.model.signature import Signature

T = TypeVar("T")


class Facts:
    """The rounds of one timeline, newest first, and which calls recur in them. Never changed.

    `calls`: the number of calls; equal calls of a round all count. `has_nameless`: whether any call has no name, and so
    is not evidence.
    """

    __slots__ = ("_again", "_has_gaps", "_known", "_repeated", "calls", "has_nameless", "rounds")

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = rounds
        names = [one.call.name for round_ in rounds for one in round_.calls]
        self.calls = len(names)
        self.has_nameless = "" in names
        self._has_gaps: bool | None = None
        self._again: Sequence[int] | None = None
        self._repeated = 0
        self._known: dict[tuple[Any, int], Any] = {}

    @property
    def has_gaps(self) -> bool:
        """Whether a call did not reach the client, or a round has no calls, so that windows reach further back."""
        if self._has_gaps is None:
            withheld = [one.withheld for round_ in self.rounds for one in round_.calls]
            self._has_gaps = True in withheld or () in [one.calls for one in self.rounds]
        return self._has_gaps

    @property
    def again(self) -> Sequence[int]:
        """For each round, 0 if all its calls are new; else how many consecutive rounds, up to and with this round, have
        a call that an earlier round has."""
        if self._again is None:
            self._again, self._repeated = _walk(self.rounds)
        return self._again

    @property
    def repeated(self) -> int:
        """How many calls equal a call before them, in their own round or in an earlier one."""
        return self._repeated if self.again else 0

    def memoized(self, work_out: "Callable[[Facts, int], T]", least: int) -> T:
        """Return `work_out(self, least)`, computed once."""
        key = (work_out, least)
        if key not in self._known:
            self._known[key] = work_out(self, least)
        found: T = self._known[key]
        return found


def _walk(newest_first: Sequence[Round]) -> tuple[Sequence[int], int]:
    """Return `Facts.again` and `Facts.repeated`, in one walk that begins at the oldest round."""
    seen = set[Signature]()
    again: list[int] = []
    run = named = 0
    for round_ in reversed(newest_first):
        mine: list[Signature] = []
        for one in round_.calls:
            call = one.call
            if call.name:
                mine.append(call._signature or call.signature)
        if not mine:  # no evidence: it does not end a stretch
            again.append(0)
            continue
        named += len(mine)
        run = 0 if seen.isdisjoint(mine) else run + 1
        seen.update(mine)
        again.append(run)
    return again[::-1], named - len(seen)
