"""Compare held calls, while their arguments come, with the calls that they could be equal to.

Rules:

1. A call whose arguments so far equal none of them cannot be withheld, whatever still comes (`detect/comparison.py`).
2. A call is compared only while no other call of its choice is growing: pieces of several calls may come by turns, and
   waiting frames are released as a whole.
3. The name of a call counts as complete when its first arguments come, as for the hold itself. Arguments that are
   repeated (as in a vendor's last event) are compared again.
"""

from collections.abc import Iterable

from callfuse.detect.comparison import Comparison
from callfuse.dialects.base import OpenCall
from callfuse.guard.hold import Input
from callfuse.guard.judge import Judge
from callfuse.guard.queue import HoldQueue


class _Prefix:
    """A held call, its comparison once arguments have come, and how many of its pieces were compared."""

    __slots__ = ("call", "compared", "comparison", "name", "pieces")

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self.name = call.name
        self.comparison: Comparison | None = None
        self.pieces = call.pieces
        self.compared = 0


class HeldPrefixes:
    """Compares the held calls of one answer, at most one per choice."""

    __slots__ = ("_judge", "_of_choice", "_queue")

    def __init__(self, judge: Judge, queue: HoldQueue) -> None:
        self._judge = judge
        self._queue = queue
        self._of_choice: dict[int, _Prefix] = {}

    def begin(self, call: OpenCall, *, alone: bool) -> None:
        """Start to compare a held call that has opened. `alone`: no other call of its choice is growing."""
        if alone:
            self._of_choice[call.choice] = _Prefix(call)
        else:
            self._of_choice.pop(call.choice, None)

    def end(self, call: OpenCall) -> None:
        """Stop comparing a call, because it is complete."""
        prefix = self._of_choice.get(call.choice)
        if prefix is not None and prefix.call is call:
            del self._of_choice[call.choice]

    def compare(self, choices: Iterable[int]) -> None:
        """Compare the new pieces of the calls in these choices, and release each choice whose call now differs: it can
        no longer be a loop. Such a call is not compared again, nor is a call that can only be judged at its end."""
        for choice in choices if self._of_choice else ():
            prefix = self._of_choice.get(choice)
            if prefix is None:
                continue
            call, comparison = prefix.call, prefix.comparison
            if call.pieces is not prefix.pieces:
                prefix.pieces, prefix.compared, comparison = call.pieces, 0, None
            new = call.pieces[prefix.compared :]
            prefix.compared += len(new)
            if not any(new):
                prefix.comparison = comparison
                continue
            if comparison is None and call.has_name:
                prefix.name, comparison = call.name, self._judge.comparison(call.name, call.namespace)
            prefix.comparison = comparison
            if comparison is None or call.name != prefix.name:
                del self._of_choice[choice]
                continue
            for piece in new:
                comparison.feed(piece)
            if comparison.differs:
                del self._of_choice[choice]
                self._queue.step(choice, Input.DIFFERENT)
