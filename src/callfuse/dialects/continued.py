"""Goes on with the rounds of a history that an earlier request has shown: they are not read again.

An answer at a seam follows something that is not the model's. What stands behind a seam changes nothing about the
rounds before it, so these are the same in each request that begins with the same messages.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from callfuse.model import PastCall, PlainResult, Round, ToolCall

_Shown = tuple[int, Sequence[tuple[ToolCall, PlainResult | None]]]
"""A round as a history shows it: its position, and its calls with their results."""


class ReadHistory:
    """The rounds of a history before the answer at `end`, which is a seam, as requests have read them: newest first,
    None for each message of a person. It refers to nothing of a request but its results."""

    __slots__ = ("end", "rounds")

    def __init__(self, end: int = 0, rounds: Sequence[_Shown | None] = ()) -> None:
        self.end = end
        self.rounds = rounds

    def copy(self) -> "ReadHistory":
        """The same, for another request to go on."""
        return ReadHistory(self.end, self.rounds)

    def go_on(
        self, read: Callable[[int], Iterator[Round | None]], is_seam: Callable[[int], bool]
    ) -> Iterator[Round | None]:
        """All rounds of a request, newest first: those that `read` gives from a position on, and those that are known.
        Once they have been taken, the former are known, too."""
        begin = self.end if is_seam(self.end) else 0
        known = self.rounds if begin else ()
        rounds = [
            shown
            and Round(
                (PastCall(*shown[1][0]),) if len(shown[1]) == 1 else tuple([PastCall(*one) for one in shown[1]]),
                shown[0],
            )
            for shown in known
        ]
        return chain(self._read_on(read(begin), is_seam, begin, known), rounds)

    def _read_on(
        self,
        new: Iterator[Round | None],
        is_seam: Callable[[int], bool],
        begin: int,
        known: Sequence[_Shown | None],
    ) -> Iterator[Round | None]:
        """The new rounds, which stand from `begin` on, before the known ones."""
        closed: list[_Shown | None] = []
        end = begin
        for one in new:
            if end > begin:
                closed.append(None if one is None else _shown(one))
            elif one is not None and is_seam(one.position):
                end = one.position
            yield one
        self.rounds, self.end = (*closed, *known), end


def _shown(one: Round) -> _Shown:
    """A round as it is kept, before anybody completes it."""
    calls = [past.call if past.call.exact is None else past.call.detached() for past in one.calls]
    return one.position, [*zip(calls, [past.result for past in one.calls], strict=True)]
