"""Compares held calls, while their arguments come, with the calls that they could be equal to.

Rules:

1. A call whose arguments so far equal none of them cannot be withheld, whatever still comes (`detect/comparison.py`).
2. A call is compared only while it is the only one that grows in its choice: pieces of several may come by turns, and
   what waits is released as a whole.
3. The name of a call is complete when its first arguments come, as it is for the hold itself. Arguments that come once
   more (a vendor's last event may repeat them) are compared once more.
"""

from collections.abc import Iterable

from callfuse.detect.comparison import Comparison
from callfuse.dialects.base import OpenCall
from callfuse.guard.hold import Input
from callfuse.guard.judge import Judge
from callfuse.guard.queue import HoldQueue


class _Prefix:
    """A held call, with its comparison once arguments have come, and how many pieces of them were compared."""

    __slots__ = ("call", "compared", "comparison", "name", "pieces")

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self.name = call.name
        self.comparison: Comparison | None = None
        self.pieces = call.pieces
        self.compared = 0


class HeldPrefixes:
    """The held calls of one answer that are compared, at most one of each choice."""

    __slots__ = ("_judge", "_of_choice", "_queue")

    def __init__(self, judge: Judge, queue: HoldQueue) -> None:
        self._judge = judge
        self._queue = queue
        self._of_choice: dict[int, _Prefix] = {}

    def begin(self, call: OpenCall, *, alone: bool) -> None:
        """A held call has opened. `alone`: no other call of its choice is growing."""
        if alone:
            self._of_choice[call.choice] = _Prefix(call)
        else:
            self._of_choice.pop(call.choice, None)

    def end(self, call: OpenCall) -> None:
        """A call is complete."""
        prefix = self._of_choice.get(call.choice)
        if prefix is not None and prefix.call is call:
            del self._of_choice[call.choice]

    def compare(self, choices: Iterable[int]) -> None:
        """Compare what has come since in these choices, and release those whose call is different now: it can no longer
        be a loop, and is not compared any more."""
        for choice in choices if self._of_choice else ():
            prefix = self._of_choice.get(choice)
            differs = self._differs(prefix) if prefix is not None else False
            if differs is not False:
                del self._of_choice[choice]
            if differs:
                self._queue.step(choice, Input.DIFFERENT)

    def _differs(self, prefix: _Prefix) -> bool | None:
        """Whether a call is different from all others by now; None if only its end can tell."""
        call = prefix.call
        if call.pieces is not prefix.pieces:
            prefix.pieces, prefix.compared, prefix.comparison = call.pieces, 0, None
        new = call.pieces[prefix.compared :]
        prefix.compared += len(new)
        if not any(new):
            return False
        if prefix.comparison is None:
            prefix.name = call.name
            prefix.comparison = self._judge.comparison(call.name, call.namespace) if call.has_name else None
        if prefix.comparison is None or call.name != prefix.name:
            return None
        for piece in new:
            prefix.comparison.feed(piece)
        return prefix.comparison.differs
