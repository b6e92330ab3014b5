"""Queues the frames of one answer that must not leave yet, with one hold for each choice.

Frames wait as raw bytes and are parsed again if callfuse acts on the answer. Neighbouring frames of the same choices
and calls share one `Run`, so that a waiting frame costs one pointer besides its bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from callfuse.dialects.base import Entry, OpenCall
from callfuse.guard.hold import Effect, Hold, Input

Trace = Callable[[str], None]
"""Takes one line for each transition of a hold; must not raise."""

_NOWHERE: Final[Sequence[int]] = ()
_NO_ENTRIES: Final[tuple[Entry, ...]] = ()


class Run:
    """Neighbouring frames with the same choices and entries. `behind`: they came after the end of the answer."""

    __slots__ = ("behind", "choices", "entries", "frames")

    def __init__(self, choices: tuple[int, ...], entries: tuple[Entry, ...], *, behind: bool) -> None:
        self.choices = choices
        self.entries = entries
        self.behind = behind
        self.frames: list[bytes] = []

    def takes(self, choices: tuple[int, ...], entries: tuple[Entry, ...], *, behind: bool) -> bool:
        """Whether a frame with these attributes can join the run."""
        return self.behind is behind and self.choices == choices and self.entries == entries


class Order(Enum):
    """What the frames of an answer keep their order with."""

    OF_CHOICES = "the frames of their own choices"
    KEPT = "all frames, as the format demands it"
    LAST = "all frames, as the last one has nothing behind it"


class HoldQueue:
    """The holds of one answer's choices, the frames that wait, and the frames that may leave.

    `held`: calls whose frames wait. `to_judge`: choices that need a verdict. `size`: bytes that wait. `spoke`: part of
    the answer, other than keep-alives, has left. `is_open`: the holds are off, everything passes.

    `ordered`: frames must keep their order across choices (a property of the format). `in_turn`: choices must begin in
    the order of their indexes if one of them waits, because the official SDK's stream helper keeps them in a list: one
    that begins before a lower one takes its place there. `tell` is called with each frame that leaves, `trace` with one
    line for each transition.
    """

    def __init__(
        self,
        *,
        ordered: bool,
        in_turn: bool = False,
        tell: Callable[[bytes], None] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.held: set[OpenCall] = set()
        self.to_judge: set[int] = set()
        self.size = 0
        self.spoke = False
        self.is_open = False
        self._order = Order.KEPT if ordered else Order.OF_CHOICES
        self._begun: set[int] | None = set() if in_turn else None
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
        """The choices in which calls have come."""
        return set(self._holds)

    def is_holding(self, choice: int) -> bool:
        """Whether the frames of a choice wait."""
        return choice in self._holds and self._holds[choice].state.queues

    def open_call(self, call: OpenCall, *, suspect: bool) -> None:
        """A call has begun. A suspect starts a hold with the next frame that is put."""
        self.step(call.choice, Input.SUSPECT if suspect else Input.FREE)
        if self.is_holding(call.choice):
            self.held.add(call)
            self._holds[call.choice].calls.append(call)

    def step(self, choice: int, input_: Input) -> None:
        """Step the hold of a choice, and carry out its effect."""
        effect = self._move(choice, input_)
        if effect is Effect.JUDGE:
            self.to_judge.add(choice)
        elif effect is Effect.RELEASE:
            hold = self._holds[choice]
            self.held.difference_update(hold.calls)
            hold.calls.clear()
            self._release()

    def end(self, *, complete: bool) -> None:
        """The answer is over; later frames count as behind its end."""
        self._ended = True
        for choice in self._holds:
            self.step(choice, Input.END if complete else Input.CUT)

    def open(self) -> None:
        """Turn the holds off: what waits leaves as it came, and everything passes from now on."""
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
        """Send a frame, or queue it. No choices: the frame concerns the whole answer, so it waits behind any other."""
        if not any(map(self.is_holding, choices)) and (not self._runs or self._may_overtake(choices, self._blocked)):
            self._note_begun(choices)
            self.send((frame,))
            return
        place = tuple(choices), tuple(entries)
        if not self._runs or not self._runs[-1].takes(*place, behind=self._ended):
            self._runs.append(Run(*place, behind=self._ended))
        self._runs[-1].frames.append(frame)
        self.size += len(frame)
        self._blocked.update(choices)

    def _may_overtake(self, choices: Sequence[int], waiting: set[int]) -> bool:
        """Whether a frame of these choices may leave before frames of the choices that are waiting."""
        if not choices or self._order is not Order.OF_CHOICES or not waiting.isdisjoint(choices):
            return False
        if self._begun is None or self._begun.issuperset(choices):
            return True
        return not any(choice < max(choices) for choice in waiting - self._begun)

    def _note_begun(self, choices: Iterable[int]) -> None:
        if self._begun is not None:
            self._begun.update(choices)

    def begin_last(self) -> None:
        """What is put from now on has nothing behind it: it overtakes nothing, whatever its choice."""
        self._order = Order.LAST

    def send(self, frames: Iterable[bytes]) -> None:
        """Let frames of the answer leave. They are queued for output first, so that a `tell` that raises loses none."""
        begin = len(self._out)
        self._out += frames
        self.spoke |= len(self._out) > begin
        if self._tell is not None:
            for frame in self._out[begin:]:
                self._tell(frame)

    def bypass(self, frame: bytes) -> None:
        """Let bytes leave ahead of everything that waits, without counting as part of the answer."""
        self._out.append(frame)

    def keep_alive(self, frame: bytes) -> None:
        """Let a frame that says nothing leave ahead of everything that waits, unless it is the last."""
        if self._order is Order.LAST and self._runs:
            self.put(frame)
        else:
            self.bypass(frame)

    def _release(self) -> None:
        """Send the frames that need not wait any more. A frame waits if its choice is held, or if an earlier frame of
        its choice waits."""
        runs, self._runs = self._runs, []
        waiting = {choice for run in runs for choice in run.choices if self.is_holding(choice)} | self.to_judge
        leaving: list[bytes] = []
        for run in runs:
            free = waiting.isdisjoint(run.choices) and not self._runs
            if free or self._may_overtake(run.choices, waiting):
                self._note_begun(run.choices)
                self.size -= sum(map(len, run.frames))
                leaving += run.frames
            else:
                waiting.update(run.choices)
                self._runs.append(run)
        self._blocked = waiting if self._runs else set()
        self.send(leaving)

    def release_all(self) -> None:
        """Let everything that waits leave unchanged."""
        leaving = [frame for frame, _ in self.frames()]
        self.clear()
        self.send(leaving)

    def clear(self) -> None:
        """Drop everything that waits."""
        self._runs = []
        self.held.clear()
        self.to_judge.clear()
        self._blocked.clear()
        self.size = 0

    def drain(self) -> bytes:
        """Take the bytes that may leave now."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def frames(self, *, behind_end: bool = True) -> Iterator[tuple[bytes, tuple[Entry, ...]]]:
        """The frames that wait, with the entries of calls in them. `behind_end=False` leaves out those that came after
        the end of the answer."""
        for run in self._runs:
            if behind_end or not run.behind:
                for frame in run.frames:
                    yield frame, run.entries

    def has(self, frame: bytes) -> bool:
        """Whether this frame (the same object) waits or is about to leave."""
        return any(frame is kept for kept in self._out) or any(frame is kept for kept, _ in self.frames())


class KeptBytes:
    """The raw bytes of one answer, up to `limit` bytes.

    The model's turn is rebuilt from them, and the writer learns from those that have left what the client has.
    `spliced`: the frames that wait are not these bytes but rewritten ones, so these are joined in one buffer.
    """

    __slots__ = ("_chunks", "_joined", "_limit", "size")

    def __init__(self, limit: int, *, spliced: bool) -> None:
        self._limit = limit
        self._joined = bytearray() if spliced else None
        self._chunks: list[bytes] = []
        self.size = 0

    @property
    def spliced(self) -> bool:
        """Whether the client gets rewritten bytes instead of these."""
        return self._joined is not None

    @property
    def chunks(self) -> list[bytes]:
        """The bytes, in order."""
        return self._chunks if self._joined is None else [bytes(self._joined)]

    @property
    def is_all(self) -> bool:
        """Whether the whole answer is kept, i.e. it was within the limit."""
        return self.size <= self._limit

    def has_room(self, chunk: bytes) -> bool:
        """Whether the answer stays within its limit with this chunk."""
        return self.size + len(chunk) <= self._limit

    def add(self, chunk: bytes) -> None:
        """Append a chunk, if there is room."""
        self.size += len(chunk)
        if self.size > self._limit:
            return
        if self._joined is None:
            self._chunks.append(chunk)
        else:
            self._joined += chunk

    @property
    def kept_bytes(self) -> int:
        """Bytes that are in memory: none beyond the limit, where no more are added."""
        return min(self.size, self._limit)

    def clear(self) -> None:
        """Drop everything, and keep nothing from now on."""
        self._chunks = []
        self._joined = None if self._joined is None else bytearray()
        self.size, self._limit = 1, 0

    def drop(self, chunk: bytes) -> None:
        """Remove this chunk (the same object): the client does not get it."""
        self._chunks = [kept for kept in self._chunks if kept is not chunk]

    def without(self, held: HoldQueue) -> list[bytes]:
        """The chunks that do not wait in the queue; a waiting frame is the same object as the chunk kept here."""
        waiting = {id(frame) for frame, _ in held.frames()}
        return [chunk for chunk in self.chunks if id(chunk) not in waiting]
