"""Keeps what was read from a history in earlier requests (its rounds and its nudges), so that it is not read again.

A seam is the position of an answer that follows a message which is not the model's. Messages after a seam do not change
the rounds before it, so these are the same in each request that begins with the same messages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Final

from callfuse.model import PastCall, PlainResult, Round, SharedResult, ToolCall

_Shown = tuple[int, Sequence[tuple[ToolCall, PlainResult | None]]]
"""A round as a history contains it: its position, and its calls with their results."""


@dataclass(frozen=True, slots=True)
class Nudges:
    """The positions of nudges (see `dialects/nudges.py`), and the digests of all user messages after results, by
    position. Messages that differ only in numbers, states and images have equal digests.

    `end`: the position of the model's last message; requests with these messages have the same nudges before it.
    `before`: the digests of the user messages after the last results before that position.
    """

    added: Set[int]
    digests: Mapping[int, bytes]
    end: int
    before: Set[bytes]


NO_NUDGES: Final = Nudges(frozenset(), {}, 0, frozenset())


class ReadHistory:
    """The part of a history that was read in earlier requests, and what this request adds for the next.

    Contains the rounds before a seam, newest first, with None for each message of a person; and the nudges. Keeps
    nothing of a request in memory except its results. `is_kept`: another request may continue from here.
    """

    __slots__ = ("_before", "_known", "_nudges", "is_kept")

    def __init__(
        self, end: int = 0, rounds: Sequence[_Shown | None] = (), nudges: Nudges = NO_NUDGES, *, is_kept: bool = True
    ) -> None:
        self._known = end, rounds  # set together: another thread may read them
        self._before = nudges
        self._nudges: Nudges | None = None
        self.is_kept = is_kept

    def up_to(self, count: int) -> "ReadHistory":
        """Return a copy for a request with the same first `count` messages, with only the rounds of these messages."""
        end, rounds = self._known
        nudges = self._nudges or self._before
        known = (end, rounds) if end <= count else (0, ())
        return ReadHistory(*known, nudges if nudges.end < count else NO_NUDGES)

    def __bool__(self) -> bool:
        return bool(self._known[0])

    def nudges(self, find: Callable[[Nudges], Nudges]) -> Nudges:
        """Return the nudges of a request. The search runs only once, and starts from the nudges already known."""
        if self._nudges is None:
            self._nudges = find(self._before)
        return self._nudges

    def rounds(
        self, read: Callable[[int], Iterator[Round | None]], is_seam: Callable[[int], bool]
    ) -> Iterator[Round | None]:
        """Yield all rounds of a request, newest first: those that `read` yields from a position on, then the known
        ones. When the new rounds are exhausted, those up to the last seam become known, too."""
        if not self.is_kept:
            return read(0)
        begin, known = self._known
        if not is_seam(begin):
            begin, known = 0, ()
        rounds = [
            one and Round((PastCall(*one[1][0]),) if len(one[1]) == 1 else tuple(starmap(PastCall, one[1])), one[0])
            for one in known
        ]
        return chain(self._read_on(read(begin), is_seam, begin, known), rounds)

    def _read_on(
        self,
        new: Iterator[Round | None],
        is_seam: Callable[[int], bool],
        begin: int,
        known: Sequence[_Shown | None],
    ) -> Iterator[Round | None]:
        """Yield the new rounds, from `begin` on, and then add them to the known ones."""
        closed: list[_Shown | None] = []
        end = begin
        for one in new:
            if end > begin:
                closed.append(None if one is None else _shown(one))
            elif one is not None and is_seam(one.position):
                end = one.position
            yield one
        if self.is_kept:
            self._known = end, (*closed, *known)


def _shown(one: Round) -> _Shown:
    """Return a round as it is kept, without what the ledger adds. Outcomes are computed once for all requests."""
    for past in one.calls:
        past.result = past.result and SharedResult(past.result)
    calls = [past.call if past.call.exact is None else past.call.detached() for past in one.calls]
    return one.position, [*zip(calls, [past.result for past in one.calls], strict=True)]
