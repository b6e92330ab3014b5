"""The rounds of a history that an earlier request has shown, so that they are not read again.

A seam is the position of an answer that follows a message which is not the model's. What stands behind a seam changes
nothing about the rounds before it, so these are the same in each request that begins with the same messages.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from callfuse.model import PastCall, PlainResult, Round, ToolCall

_Shown = tuple[int, Sequence[tuple[ToolCall, PlainResult | None]]]
"""A round as a history shows it: its position, and its calls with their results."""


class ReadHistory:
    """The rounds of a history before a seam, as requests have read them: newest first, None for each message of a
    person. It refers to nothing of a request but its results."""

    __slots__ = ("_known",)

    def __init__(self, end: int = 0, rounds: Sequence[_Shown | None] = ()) -> None:
        self._known = end, rounds  # set together: another thread may read them

    def up_to(self, count: int) -> "ReadHistory":
        """A copy for a request with the same first `count` messages; empty if the history is longer than that."""
        end, rounds = self._known
        return ReadHistory(end, rounds) if end <= count else ReadHistory()

    def __bool__(self) -> bool:
        return bool(self._known[0])

    def rounds(
        self, read: Callable[[int], Iterator[Round | None]], is_seam: Callable[[int], bool]
    ) -> Iterator[Round | None]:
        """All rounds of a request, newest first: those that `read` yields from a position on, then the known ones. When
        the new ones are exhausted they are known, too, up to the last seam."""
        begin, known = self._known
        if not is_seam(begin):
            begin, known = 0, ()
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
        self._known = end, (*closed, *known)


def _shown(one: Round) -> _Shown:
    """A round as it is kept, before anybody completes it."""
    calls = [past.call if past.call.exact is None else past.call.detached() for past in one.calls]
    return one.position, [*zip(calls, [past.result for past in one.calls], strict=True)]
