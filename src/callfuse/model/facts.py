"""What one walk over a timeline tells, for everybody who asks before looking closer.

Judge, notes, hindsight and foresight take the same object, and none of it depends on who has asked.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from callfuse.model.rounds import Round
from callfuse.model.signature import Signature

T = TypeVar("T")


class Facts:
    """The rounds of one timeline, newest first, and what recurs in them. Never changed.

    `calls`: their number, equal ones of a round each. `again`: for each round 0 if none of its calls has come in an
    earlier one; else the number of rounds of which that is true, it and those right before it. `repeated`: the calls of
    which an equal one has come before, in their own round or in an earlier one. `has_nameless`: a call has no name,
    which makes it evidence of nothing.
    """

    __slots__ = ("_known", "again", "calls", "has_nameless", "repeated", "rounds")

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = rounds
        self.calls, self.again, self.repeated, self.has_nameless = _walk(rounds)
        self._known: dict[tuple[Any, int], Any] = {}

    def memoized(self, work_out: "Callable[[Facts, int], T]", least: int) -> T:
        """`work_out(self, least)`, computed once."""
        key = (work_out, least)
        if key not in self._known:
            self._known[key] = work_out(self, least)
        found: T = self._known[key]
        return found


class _Walked(NamedTuple):
    calls: int
    again: Sequence[int]
    repeated: int
    has_nameless: bool


def _walk(newest_first: Sequence[Round]) -> _Walked:
    seen = set[Signature]()
    again: list[int] = []
    run = total = named = 0
    for round_ in reversed(newest_first):
        mine: list[Signature] = []
        for one in round_.calls:
            call = one.call
            if call.name:
                mine.append(call._signature or call.signature)
        total += len(round_.calls)
        if not mine:  # no evidence: a stretch goes on beyond it
            again.append(0)
            continue
        named += len(mine)
        run = 0 if seen.isdisjoint(mine) else run + 1
        seen.update(mine)
        again.append(run)
    return _Walked(total, again[::-1], named - len(seen), named < total)
