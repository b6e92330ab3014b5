"""The frames of one answer that wait: a hold for each choice, and the queue of those that must not leave yet.

What waits is kept as bytes, and nothing parsed beside them: frames are parsed again when callfuse acts. Neighbours of
the same choices and with parts of the same calls share one run, so that a frame costs a pointer beside its bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from callfuse.dialects.base import Entry, OpenCall
from callfuse.guard.hold import Effect, Hold, Input

Trace = Callable[[str], None]
"""Takes a line about one transition of a hold."""

_NOWHERE: Final[Sequence[int]] = ()
_NO_ENTRIES: Final[tuple[Entry, ...]] = ()


class Run:
    """Frames that wait together. `behind` says that they came after the end of the answer."""

    __slots__ = ("behind", "choices", "entries", "frames")

    def __init__(self, choices: tuple[int, ...], entries: tuple[Entry, ...], *, behind: bool) -> None:
        self.choices = choices
        self.entries = entries
        self.behind = behind
        self.frames: list[bytes] = []

    def takes(self, choices: tuple[int, ...], entries: tuple[Entry, ...], *, behind: bool) -> bool:
        """Whether such a frame can join the run."""
        return self.behind is behind and self.choices == choices and self.entries == entries


class HoldQueue:
    """The holds of one answer's choices, the frames that wait, and those that may leave.

    `held`: the calls whose frames wait. `due`: the choices whose loop is to be judged. `size`: the bytes that wait.
    `spoke`: some of the answer has left, keep-alives aside. `is_open`: nothing is held any more.

    `ordered` is that of the format. `tell`, if there is one, is told of each frame that leaves; `trace` is given a line
    for each transition.
    """

    def __init__(
        self, *, ordered: bool, tell: Callable[[bytes], None] | None = None, trace: Trace | None = None
    ) -> None:
        self.held: set[OpenCall] = set()
        self.due: set[int] = set()
        self.size = 0
        self.spoke = False
        self.is_open = False
        self._ordered = ordered
        self._tell = tell
        self._trace = trace
        self._holds: dict[int, Hold] = {}
        self._runs: list[Run] = []
        self._blocked: set[int] = set()
        self._ended = False
        self._out: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        """Whether any frame waits."""
        return bool(self._runs)

    @property
    def choices(self) -> set[int]:
        """The choices that have a hold, because calls came in them."""
        return set(self._holds)

    def is_holding(self, choice: int) -> bool:
        """Whether the frames of a choice wait."""
        return choice in self._holds and self._holds[choice].state.queues

    def open_call(self, call: OpenCall, *, suspect: bool) -> None:
        """A call has begun; a suspect starts a hold with the frame that comes next."""
        self.step(call.choice, Input.SUSPECT if suspect else Input.FREE)
        if self.is_holding(call.choice):
            self.held.add(call)

    def step(self, choice: int, input_: Input) -> None:
        """Move the machine of a choice, and do what it says."""
        effect = self._move(choice, input_)
        if effect is Effect.JUDGE:
            self.due.add(choice)
        elif effect is Effect.RELEASE:
            self.held = {call for call in self.held if call.choice != choice}
            self._release()

    def end(self, *, complete: bool) -> None:
        """The answer is over; what comes now stands behind its end."""
        self._ended = True
        for choice in self._holds:
            self.step(choice, Input.END if complete else Input.CUT)

    def open(self) -> None:
        """Hold nothing any more: what waits leaves as it came."""
        self.is_open = True
        for choice in self._holds:
            self._move(choice, Input.LIMIT)
        self.release_all()

    def _move(self, choice: int, input_: Input) -> Effect:
        hold = self._holds.setdefault(choice, Hold())
        before = hold.state
        effect = hold.step(input_)
        if self._trace is not None:
            move = f"{before.name} {input_.name} -> {hold.state.name}"
            self._trace(f"choice {choice}: {move}, {effect.value}, {self.size} bytes waiting")
        return effect

    def put(self, frame: bytes, choices: Sequence[int] = _NOWHERE, entries: Sequence[Entry] = _NO_ENTRIES) -> None:
        """Let a frame go, or put it behind what waits. Without choices it speaks of the whole answer."""
        overtakes = bool(choices) and not self._ordered and self._blocked.isdisjoint(choices)
        if not any(map(self.is_holding, choices)) and (overtakes or not self._runs):
            self.send((frame,))
            return
        place = tuple(choices), tuple(entries)
        if not self._runs or not self._runs[-1].takes(*place, behind=self._ended):
            self._runs.append(Run(*place, behind=self._ended))
        self._runs[-1].frames.append(frame)
        self.size += len(frame)
        self._blocked.update(choices)

    def send(self, frames: Iterable[bytes]) -> None:
        """Frames of the answer leave; that they do does not depend on whether telling works."""
        begin = len(self._out)
        self._out += frames
        self.spoke |= len(self._out) > begin
        if self._tell is not None:
            for frame in self._out[begin:]:
                self._tell(frame)

    def slip(self, frame: bytes) -> None:
        """Bytes leave that are no part of the answer, past all that waits."""
        self._out.append(frame)

    def _release(self) -> None:
        """Send what need not wait any more: a frame waits if its choice does, or if one of its choice is before it."""
        waiting = {choice for choice in self._holds if self.is_holding(choice)} | self.due
        runs, self._runs = self._runs, []
        leaving: list[bytes] = []
        for run in runs:
            overtakes = bool(run.choices) and not self._ordered
            if waiting.isdisjoint(run.choices) and (overtakes or not self._runs):
                self.size -= sum(map(len, run.frames))
                leaving += run.frames
            else:
                waiting.update(run.choices)
                self._runs.append(run)
        self._blocked = waiting if self._runs else set()
        self.send(leaving)

    def release_all(self) -> None:
        """Everything that waits leaves, unchanged."""
        leaving = [frame for frame, _ in self.frames()]
        self.clear()
        self.send(leaving)

    def clear(self) -> None:
        """Forget what waits."""
        self._runs = []
        self.held.clear()
        self.due.clear()
        self._blocked.clear()
        self.size = 0

    def drain(self) -> bytes:
        """What may leave now."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def frames(self, *, behind_end: bool = True) -> Iterator[tuple[bytes, tuple[Entry, ...]]]:
        """The frames that wait, with the parts of calls in them. Those behind the end of the answer may have come with
        it, or be still to come."""
        for run in self._runs:
            if behind_end or not run.behind:
                for frame in run.frames:
                    yield frame, run.entries

    def has(self, frame: bytes) -> bool:
        """Whether this very frame waits, or may leave now."""
        return any(frame is kept for kept in self._out) or any(frame is kept for kept, _ in self.frames())


class KeptBytes:
    """The raw bytes of one answer, as far as its limit allows: the model's turn is made of them, and from those that
    have left the writer learns what the client has.

    `spliced`: what waits are other bytes than these, so they are kept in one piece, not each beside its frame.
    """

    __slots__ = ("_chunks", "_joined", "_limit", "size")

    def __init__(self, limit: int, *, spliced: bool) -> None:
        self._limit = limit
        self._joined = bytearray() if spliced else None
        self._chunks: list[bytes] = []
        self.size = 0

    @property
    def spliced(self) -> bool:
        """Whether the client gets other bytes than these."""
        return self._joined is not None

    @property
    def chunks(self) -> list[bytes]:
        """The bytes, in order."""
        return self._chunks if self._joined is None else [bytes(self._joined)]

    @property
    def is_all(self) -> bool:
        """Whether the answer has not been too long to be kept."""
        return self.size <= self._limit

    def has_room(self, chunk: bytes) -> bool:
        """Whether the answer is within its limit with this chunk, too."""
        return self.size + len(chunk) <= self._limit

    def add(self, chunk: bytes) -> None:
        """Keep what came next."""
        self.size += len(chunk)
        if self.size > self._limit:
            return
        if self._joined is None:
            self._chunks.append(chunk)
        else:
            self._joined += chunk

    def drop(self, chunk: bytes) -> None:
        """Forget this very chunk: the client does not get it."""
        self._chunks = [kept for kept in self._chunks if kept is not chunk]

    def without(self, held: HoldQueue) -> list[bytes]:
        """The chunks of which no frame waits in the queue; a frame there is the very chunk that was kept."""
        waiting = {id(frame) for frame, _ in held.frames()}
        return [chunk for chunk in self.chunks if id(chunk) not in waiting]
