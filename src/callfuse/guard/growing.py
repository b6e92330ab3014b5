"""Search the arguments of an answer's calls for endless repetition, while they grow.

A call is searched at the frame in which its text exceeds a multiple of `LOOK` characters, wherever chunks end: a
template adds pieces while there is `room`, and then calls `fits`. So the frame in which repetition is found is always
read.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from callfuse.detect.runaway import LEAST, LOOK, GrowingText
from callfuse.detect.runaway_call import runs_away
from callfuse.dialects.base import Event, OpenCall, What

MOST: Final = 8
"""How many calls, the newest ones, are searched while they grow; usually only one grows. Others are searched at the
end."""


class GrowingArguments:
    """The arguments of one call. The first `read` of its `pieces` are counted, and the first `added` are in `text`,
    which exists from the first search on. `room`: the characters that may come before the next search. `value_at`: the
    length at which the call is next searched as a whole."""

    __slots__ = ("added", "pieces", "read", "room", "text", "value_at")

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces
        self.read = self.added = 0
        self.room = LOOK - 1
        self.value_at = LEAST
        self.text: GrowingText | None = None

    def run_away(self, new: Sequence[str] = ()) -> bool:
        """Search the arguments so far, with the `new` pieces; return whether they run away."""
        text = self.text = self.text or GrowingText()
        found = text.add("".join([*self.pieces[self.added :], *new]))
        self.added = self.read = len(self.pieces) + len(new)
        self.room = text.missing - 1
        return found is not None

    def fits(self, piece: str) -> bool:
        """Search with one more piece, which exceeds the room; return whether it may be added unread. If not, the
        arguments run away, and the frame has to be read."""
        if not self.run_away((piece,)):
            return True
        self.read, self.room = len(self.pieces), -1
        return False


class GrowingCalls:
    """The growing calls of one answer. `found`: calls whose arguments run away, which may have ended since. `endless`:
    the call for which the answer was ended."""

    __slots__ = ("_growing", "_new", "endless", "found")

    def __init__(self) -> None:
        self.endless: OpenCall | None = None
        self.found: set[OpenCall] = set()
        self._growing: dict[OpenCall, GrowingArguments] = {}
        self._new: list[OpenCall] = []

    def read(self, events: Iterable[Event]) -> bool:
        """Search the pieces that a frame with these events has added; return whether another call was found."""
        known, growing = len(self.found), self._growing
        ended: Sequence[OpenCall] = self._take_events(events) if events else ()
        for call, arguments in (*growing.items(),):
            pieces = call.pieces
            if pieces is not arguments.pieces:  # the vendor's last event repeats all pieces
                arguments = growing[call] = GrowingArguments(pieces)
            read, arguments.read = arguments.read, len(pieces)
            if read == arguments.read - 1:  # as nearly always
                arguments.room -= len(pieces[read])
            else:
                arguments.room -= sum(map(len, pieces[read:]))
            if arguments.room < 0 and arguments.run_away():
                self._find(call)
            if call.grown >= arguments.value_at:
                arguments.value_at = 2 * call.grown  # so that all searches together cost no more than the last two
                if runs_away(call.complete()):
                    self._find(call)
        for call in ended:
            is_read = growing.pop(call, None) is not None and call.value is None
            if not (is_read or call in self.found) and runs_away(call.complete()):
                self._find(call)
        return len(self.found) > known

    def _take_events(self, events: Iterable[Event]) -> Sequence[OpenCall]:
        """Start to search the calls that open; return those that end."""
        ended: list[OpenCall] = []
        for what, _, call in events:
            if call is None:
                continue
            if what is not What.OPENED:
                ended.append(call)
            elif not (call.value is not None and call.closed) and call not in self.found:
                self._growing.setdefault(call, GrowingArguments(call.pieces))
                if len(self._growing) > MOST:
                    del self._growing[next(iter(self._growing))]
        return ended

    def _find(self, call: OpenCall) -> None:
        self._growing.pop(call, None)
        self.found.add(call)
        self._new.append(call)

    def take(self) -> Sequence[OpenCall]:
        """Return the calls that were found since the last time."""
        new, self._new = self._new, []
        return new

    def arguments_of(self, pieces: Sequence[str]) -> GrowingArguments | None:
        """Return the arguments that grow by these pieces; None if they are not searched."""
        for arguments in self._growing.values():
            if arguments.pieces is pieces:
                return arguments
        return None
