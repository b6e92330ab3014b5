"""Queue the frames of one answer that must not leave yet, with one hold for each choice.

Frames wait as raw bytes and are parsed again if callfuse acts on the answer. Neighbouring frames of the same choices
and calls share one `Run`, so that a waiting frame costs one pointer besides its bytes. A choice's runs form its lane.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import Final

from callfuse.dialects.base import Entry, OpenCall
from callfuse.guard.hold import Effect, Hold, Input

Trace = Callable[[str], None]
"""Takes one line for each transition of a hold; must not raise."""

_NOWHERE: Final[Sequence[int]] = ()
_NO_ENTRIES: Final[tuple[Entry, ...]] = ()


class Run:
    """Neighbouring frames with the same choices and entries.

    `place`: its place among all runs. `free`: how many of its choices, the first ones, it no longer waits for.
    """

    __slots__ = ("choices", "entries", "frames", "free", "place")

    def __init__(self, place: int, choices: tuple[int, ...], entries: tuple[Entry, ...]) -> None:
        self.place = place
        self.choices = choices
        self.entries = entries
        self.frames: list[bytes] = []
        self.free = 0


class _Turns:
    """Tracks which choices have begun, and which are known but have not begun (`late`)."""

    __slots__ = ("begun", "late")

    def __init__(self) -> None:
        self.begun: set[int] = set()
        self.late: set[int] = set()

    def see(self, choice: int) -> None:
        """Note that a choice is known."""
        if choice not in self.begun:
            self.late.add(choice)

    def begin(self, choices: Iterable[int]) -> None:
        """Note that a frame of these choices leaves."""
        self.begun.update(choices)
        self.late.difference_update(choices)


class HoldQueue:
    """The holds of one answer's choices, the frames that wait, and the frames that may leave.

    `held`: calls whose frames wait. `to_judge`: choices that need a verdict. `size`: bytes that wait; 0 if no frame
    does. `spoke`: part of the answer, other than keep-alives, has left through the queue; chunks of a first answer may
    pass beside it. `ready`: the frames that may leave, which `drain` takes.

    `ordered`: frames must keep their order across choices (a property of the format). `in_turn`: choices must begin in
    the order of their indexes if one of them waits, because the official SDK's stream helper keeps them in a list: a
    choice that begins before a lower one would take the lower one's place. `tell` is called with each frame that
    leaves, `trace` with one line for each transition.
    """

    def __init__(
        self,
        *,
        ordered: bool,
        in_turn: bool = False,
        tell: Callable[[bytes], None] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.to_judge: set[int] = set()
        self.size = 0
        self.spoke = False
        self._ordered = ordered
        self._turns = _Turns() if in_turn else None
        self._is_last = False
        self._tell = tell
        self._trace = trace
        self._holds: dict[int, Hold] = {}
        self._held: dict[int, dict[OpenCall, None]] = {}
        self._runs: dict[int, Run] = {}
        self._lanes: dict[int, deque[Run]] = {}
        self._places = 0
        self.ready: list[bytes] = []

    @property
    def width(self) -> int:
        """How many choices are known: those with calls or, if choices must begin in turn, all that have come."""
        turns = self._turns
        return max(len(self._holds), len(turns.begun) + len(turns.late) if turns is not None else 0)

    @property
    def choices(self) -> set[int]:
        """The choices in which calls have come."""
        return set(self._holds)

    @property
    def held(self) -> list[OpenCall]:
        """The calls whose frames wait; within a choice, in the order of the answer."""
        return [call for calls in self._held.values() for call in calls]

    def holds_call(self, call: OpenCall) -> bool:
        """Whether the frames of this call wait."""
        return call in self._held.get(call.choice, ())

    def is_holding(self, choice: int) -> bool:
        """Whether the frames of a choice wait."""
        return choice in self._holds and self._holds[choice].state.queues

    def open_call(self, call: OpenCall, *, suspect: bool) -> None:
        """Note that a call has begun. A suspect starts a hold with the next frame that is put."""
        self.step(call.choice, Input.SUSPECT if suspect else Input.FREE)
        if self.is_holding(call.choice):
            self._held.setdefault(call.choice, {})[call] = None

    def step(self, choice: int, input_: Input) -> None:
        """Step the hold of a choice, and carry out its effect."""
        effect = self._move(choice, input_)
        if effect is Effect.JUDGE:
            self.to_judge.add(choice)
        elif effect is Effect.RELEASE:
            self._held.pop(choice, None)
            self._release(choice)

    def end(self, *, complete: bool) -> None:
        """End every hold, because the answer is over."""
        for choice in self._holds:
            self.step(choice, Input.END if complete else Input.CUT)

    def open(self) -> None:
        """Turn the holds off: waiting frames leave unchanged."""
        for choice in self._holds:
            self._move(choice, Input.LIMIT)
        self.release_all()

    def _move(self, choice: int, input_: Input) -> Effect:
        hold = self._holds.setdefault(choice, Hold())
        if self._turns is not None:
            self._turns.see(choice)
        before = hold.state
        effect = hold.step(input_)
        if self._trace is not None:
            move = f"{before.name} {input_.name} -> {hold.state.name}"
            self._trace(f"choice {choice}: {move}, {effect.value}, {self.size} bytes waiting")
        return effect

    def put(self, frame: bytes, choices: Sequence[int] = _NOWHERE, entries: Sequence[Entry] = _NO_ENTRIES) -> None:
        """Send a frame, or queue it. No choices: the frame concerns the whole answer, so it waits for all others."""
        where, place = tuple(choices), tuple(entries)
        last = self._runs.get(self._places)
        if last is None or last.choices != where or last.entries != place:
            if self._may_send(where):
                self._note_begun(where)
                self.send((frame,))
                return
            last = self._append_run(where, place)
        last.frames.append(frame)
        last.free = 0
        self.size += len(frame)

    def _may_send(self, choices: tuple[int, ...]) -> bool:
        """Whether a frame of these choices can be sent without waiting."""
        if any(map(self.is_holding, choices)):
            return False
        if not self._runs:
            return True
        overtakes = bool(choices) and not self._ordered and not any(map(self._lanes.get, choices))
        return overtakes and self._may_begin(choices, self._places + 1)

    def _may_begin(self, choices: Sequence[int], place: int) -> bool:
        """Whether a frame of these choices may overtake the frames before its place. It may not if it is the first
        frame of a choice while a lower choice, which has not begun, waits."""
        turns = self._turns
        if turns is None or turns.begun.issuperset(choices):
            return True
        lower = [choice for choice in turns.late if choice < max(choices)]
        return not any(self._waits(choice) or self._first_place(choice) < place for choice in lower)

    def _waits(self, choice: int) -> bool:
        return self.is_holding(choice) or choice in self.to_judge

    def _first_place(self, choice: int) -> float:
        """Return the place of a choice's first run that waits; infinite if none does."""
        lane = self._lanes.get(choice)
        return lane[0].place if lane else inf

    def _note_begun(self, choices: Iterable[int]) -> None:
        if self._turns is not None:
            self._turns.begin(choices)

    def _append_run(self, choices: tuple[int, ...], entries: tuple[Entry, ...]) -> Run:
        self._places += 1
        run = self._runs[self._places] = Run(self._places, tuple(dict.fromkeys(choices)), entries)
        for choice in run.choices:
            self._lanes.setdefault(choice, deque()).append(run)
            if self._turns is not None:
                self._turns.see(choice)
        return run

    def begin_last(self) -> None:
        """From now on, frames are the last ones of the answer: they overtake no other, whatever their choice."""
        self._ordered = self._is_last = True

    def send(self, frames: Iterable[bytes]) -> None:
        """Send frames of the answer. They are added to `ready` first, so that none is lost if `tell` raises."""
        begin = len(self.ready)
        self.ready += frames
        self.spoke |= len(self.ready) > begin
        if self._tell is not None:
            for frame in self.ready[begin:]:
                self._tell(frame)

    def bypass(self, frame: bytes) -> None:
        """Send bytes ahead of everything that waits, without counting them as part of the answer."""
        self.ready.append(frame)

    def keep_alive(self, frame: bytes) -> None:
        """Send a keep-alive ahead of everything that waits, unless it is the last frame."""
        if self._is_last and self._runs:
            self.put(frame)
        else:
            self.bypass(frame)

    def _release(self, choice: int) -> None:
        """Send the frames that no longer have to wait, now that this choice is free.

        A frame waits if one of its choices is held, or if an earlier frame of one of its choices waits. A frame without
        choices, and any frame of an ordered format, waits for all earlier frames. Only the first run of each lane is
        checked, each frame once, so that the cost is proportional to the frames sent.
        """
        leaving: list[Run] = []
        lanes = [choice, *self._not_begun()]
        while lanes and not self._ordered:
            lane = self._lanes.get(lanes.pop())
            while lane and self._is_free(lane[0]) and self._may_begin(lane[0].choices, lane[0].place):
                run = lane[0]
                leaving.append(run)
                lanes += run.choices
                if self._remove(run):
                    lanes += self._not_begun()
        while (first := next(iter(self._runs.values()), None)) is not None and self._is_free(first):
            leaving.append(first)
            self._remove(first)
        leaving.sort(key=attrgetter("place"))
        frames = [frame for run in leaving for frame in run.frames]
        self.size -= sum(map(len, frames))
        self.send(frames)

    def _is_free(self, run: Run) -> bool:
        """Whether a run waits for none of its choices. The check continues where it last stopped."""
        while run.free < len(run.choices):
            choice = run.choices[run.free]
            if self._lanes[choice][0] is not run or self._waits(choice):
                return False
            run.free += 1
        return True

    def _not_begun(self) -> list[int]:
        """Return the choices that wait and have not begun. After any release they may be able to begin."""
        return [] if self._turns is None else [choice for choice in self._turns.late if choice in self._lanes]

    def _remove(self, run: Run) -> bool:
        """Remove a run, the first of each of its choices, from the queue. Return whether a choice begins with it."""
        del self._runs[run.place]
        for choice in run.choices:
            self._lanes[choice].popleft()
        begins = self._turns is not None and not self._turns.begun.issuperset(run.choices)
        self._note_begun(run.choices)
        return begins

    def release_all(self) -> None:
        """Send everything that waits, unchanged."""
        leaving = [frame for frame, _ in self.frames()]
        self.clear()
        self.send(leaving)

    def clear(self) -> None:
        """Drop everything that waits."""
        self._runs = {}
        self._lanes = {}
        self._held = {}
        self.to_judge.clear()
        self.size = 0

    def drain(self) -> bytes:
        """Take the bytes that may leave now."""
        out, self.ready = self.ready, []
        return out[0] if len(out) == 1 else b"".join(out)

    def frames(self) -> list[tuple[bytes, tuple[Entry, ...]]]:
        """Return the frames that wait, with the entries of calls in them."""
        return [(frame, run.entries) for run in self._runs.values() for frame in run.frames]

    def is_newest(self, frame: bytes) -> bool:
        """Whether this frame (the same object) was the last one to be queued, or to be added to `ready`."""
        last = self._runs.get(self._places)
        return (bool(self.ready) and self.ready[-1] is frame) or (last is not None and last.frames[-1] is frame)


class KeptBytes:
    """The raw bytes of one answer, up to `limit` bytes.

    The model's turn is rebuilt from them, and the writer gets those that have left, to know what the client has.
    `spliced`: the client gets rewritten frames instead of these bytes, so these are joined in one buffer. `size`:
    bytes of the answer; `kept_bytes`: those in memory.
    """

    __slots__ = ("_chunks", "_joined", "kept_bytes", "limit", "size", "spliced")

    def __init__(self, limit: int, *, spliced: bool) -> None:
        self.limit = limit
        self.spliced = spliced
        self._joined = bytearray() if spliced else None
        self._chunks: list[bytes] = []
        self.size = self.kept_bytes = 0

    @property
    def chunks(self) -> list[bytes]:
        """The bytes, in order."""
        return self._chunks if self._joined is None else [bytes(self._joined)]

    @property
    def is_all(self) -> bool:
        """Whether the whole answer is kept, i.e. it was within the limit."""
        return self.size <= self.limit

    def add(self, chunk: bytes) -> None:
        """Append a chunk, if there is room."""
        self.size += len(chunk)
        if self.size > self.limit:
            return
        self.kept_bytes = self.size
        if self._joined is None:
            self._chunks.append(chunk)
        else:
            self._joined += chunk

    def clear(self) -> None:
        """Drop everything, and keep nothing from now on."""
        self._chunks = []
        self._joined = None if self._joined is None else bytearray()
        self.size, self.limit, self.kept_bytes = 1, 0, 0

    def drop(self, chunk: bytes) -> None:
        """Remove this chunk (the same object): the client does not get it."""
        self._chunks = [kept for kept in self._chunks if kept is not chunk]

    def without(self, held: HoldQueue) -> list[bytes]:
        """Return the chunks that do not wait in the queue; a waiting frame is the same object as the kept chunk."""
        waiting = {id(frame) for frame, _ in held.frames()}
        return [chunk for chunk in self.chunks if id(chunk) not in waiting]
