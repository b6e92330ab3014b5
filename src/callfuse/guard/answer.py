"""One streamed answer on its way to the client: frames in, what may leave out, the rest in the queue.

Runs the hold of each choice over what the dialect's reader says. Where the answer continues an earlier one, each frame
is spliced before anything else looks at it.
"""

from collections.abc import Sequence
from contextlib import suppress

from callfuse.dialects.base import Dialect, Event, Frame, OpenCall, What, Writer
from callfuse.guard.hold import Effect, Hold, Input
from callfuse.guard.judge import Judge
from callfuse.model import ToolCall
from callfuse.wire import BOM, Format, Payload
from callfuse.wire.jsontext import NotJSON


class BrokenStreamError(Exception):
    """A frame cannot be trusted while something is held."""


class Answer:
    """The state of one answer.

    `over`: it has ended; `complete`: as it should. `spoke`: something of it has gone out. `due`: the choices whose
    loop is then to be judged. `is_open`: nothing is held any more; `passes`: its bytes are not even looked at.
    """

    def __init__(self, dialect: Dialect, form: Format, judge: Judge, writer: Writer | None) -> None:
        self.due: set[int] = set()
        self.over = False
        self.complete = False
        self.spoke = False
        self.is_open = False
        self.passes = False
        self._broke = False
        self.queue: list[tuple[Frame, Sequence[int]]] = []
        self._end_at = 0
        self.held: set[OpenCall] = set()
        self.held_bytes = 0
        self._dialect = dialect
        self._judge = judge
        self._writer = writer
        self._format = form
        self._framer = form.framer()
        self._reader = dialect.reader(trace=True)
        self._holds: dict[int, Hold] = {}
        self._out: list[bytes] = []
        self._complete: dict[OpenCall, tuple[int, ToolCall]] = {}
        self._condemned: dict[int, list[ToolCall]] = {}
        self._news: set[int] = set()
        self._blocked: set[int] = set()
        self._finished: set[int] = set()
        self._cut: set[OpenCall] = set()

    @property
    def waiting(self) -> int:
        """Bytes held, and bytes of a frame that has no end yet."""
        return self.held_bytes + self._framer.waiting

    def is_quiet(self, chunk: bytes) -> bool:
        """Whether a chunk may pass by a glance: nothing waits, no call has come, and none is in it."""
        return (
            not self._reader.calls
            and not self.queue
            and self._framer.empty
            and self._writer is None
            and self._dialect.call_mark not in chunk
            and chunk.endswith(self._format.frame_end)
        )

    def frames(self, chunk: bytes) -> list[bytes]:
        """The frames that a chunk completes."""
        return self._framer.feed(chunk)

    def last_frame(self) -> bytes:
        """What is left once the upstream has ended: a frame that lacks its end."""
        return self._framer.rest()

    @property
    def _is_finished(self) -> bool:
        """Whether every choice has come to its end, and no error between."""
        return bool(self._finished) and self._finished.issuperset(self._holds) and not self._broke

    @property
    def would_complete(self) -> bool:
        """Whether the answer is complete if nothing more comes: it has ended, or every choice has finished."""
        return self.complete or (not self.over and self._is_finished)

    def finish(self) -> None:
        """The upstream has ended, perhaps without a terminal frame."""
        if not self.over:
            self._end(complete=self.would_complete)

    def cut(self) -> bytes:
        """The upstream broke off: what waits leaves as it came. Not what is due: that answer was complete."""
        if self.over:
            return b""
        self._end(complete=False)
        return self.drain() + self._framer.rest()

    def open(self) -> None:
        """Hold nothing any more: what waits leaves as it came. An answer that continues none is not even split: after
        the frames that have been, `last_frame` and all the rest pass."""
        self.is_open = True
        self.passes = self._writer is None
        for hold in self._holds.values():
            hold.step(Input.LIMIT)
        self.release_all()

    def release_all(self) -> None:
        """Everything that waits leaves, unchanged."""
        for frame, _ in self.queue:
            self._send(frame)
        self.clear()

    def drain(self) -> bytes:
        """What may leave now."""
        out, self._out = b"".join(self._out), []
        return out

    def clear(self) -> None:
        """Forget what waits."""
        self.queue.clear()
        self.held.clear()
        self.due.clear()
        self._blocked.clear()
        self.held_bytes = 0

    def calls(self, choice: int) -> dict[OpenCall, ToolCall]:
        """The complete calls of a choice, in order; what was cut off is no evidence."""
        return {
            call: self._whole(call)
            for call in self._reader.calls
            if call.choice == choice and call.closed and call.name and call not in self._cut
        }

    def _whole(self, call: OpenCall) -> ToolCall:
        """A complete call as a value, the same one each time it is asked for."""
        known = self._complete.get(call)
        if known is None or known[0] != len(call.pieces):
            (whole,) = self._judge.apply_ignored_arguments([call.complete()])
            known = self._complete[call] = (len(call.pieces), whole)
        return known[1]

    def waiting_frames(self, *, behind_end: bool = True) -> list[Frame]:
        """The frames that wait; those behind the end of the answer may have come with it, or be still to come."""
        return [frame for frame, _ in (self.queue if behind_end else self.queue[: self._end_at])]

    def choices(self) -> set[int]:
        """The choices that have calls."""
        return {call.choice for call in self._reader.calls}

    def has_others(self, choice: int, calls: set[OpenCall]) -> bool:
        """Whether a choice has calls beside these, complete or not."""
        return any(call.choice == choice and call not in calls for call in self._reader.calls)

    def spliced(self, raw: bytes) -> Frame:
        """A frame as the client is to see it, with its payload; empty where it is not to. Raises NotJSON."""
        payload = self._format.payload(raw)
        if self._writer is None:
            return Frame(raw, payload)
        raw = self._writer.splice(raw.removeprefix(BOM), payload)  # only a stream may begin with it
        return Frame(raw, self._format.payload(raw) if raw else None)

    def take(self, frame: Frame) -> None:
        """Read a frame; `drain` then tells what may leave. Raises BrokenStreamError where that is not known."""
        raw, payload, _ = frame
        if self.is_open:
            self._send(frame)
        elif not raw or (not self.over and self._dialect.is_keep_alive(raw, payload)):
            self._out.append(raw)
        elif self.over:
            self._pass(frame, ())
        elif payload is None:
            self._follow(frame, (), self._reader.end() if self._dialect.is_end(raw) else ())
        else:
            events = self._reader.read(payload)
            frame = Frame(raw, payload, tuple(self._reader.entries))
            self._follow(frame, self._dialect.choices_of(payload), events)

    def _follow(self, frame: Frame, choices: Sequence[int], events: Sequence[Event]) -> None:
        """Do as a frame says, the frame itself included."""
        for event in events:
            self._apply(event)
        self._pass(frame, choices)
        if any(event.what is What.ENDED for event in events):
            self._end(complete=self._is_finished)

    def _apply(self, event: Event) -> None:
        """Move the machine of the event's choice."""
        call = event.call
        if event.what is What.OPENED and call is not None:
            must_hold = self._judge.must_hold(call.name, call.namespace)
            self._step(event.choice, Input.SUSPECT if must_hold else Input.FREE)
            if self._holds[event.choice].state.queues:
                self.held.add(call)
        elif event.what is What.CLOSED and call is not None:
            self._close(event.choice, call)
        elif event.what is What.BROKE:
            self._broke = True
            if self.queue or (self._writer is not None and not self.spoke):
                raise BrokenStreamError("error in the stream")
        elif event.what in (What.FINISHED, What.CUT):
            self._finished.add(event.choice)
            if call is not None:
                self._cut.add(call)

    def _close(self, choice: int, call: OpenCall) -> None:
        """A call is complete: innocent or looping, and perhaps the news that frees another."""
        complete = self._whole(call)
        brings_news = self._judge.is_news(complete)
        self._news |= {choice} if brings_news else set()
        if not self._holds[choice].state.queues:
            return
        if call in self.held:
            looping = self._judge.finding(complete, news=choice in self._news) is not None
            self._step(choice, Input.LOOPING if looping else Input.INNOCENT)
            if looping:
                self._condemned.setdefault(choice, []).append(complete)
        condemned = self._condemned.get(choice, ())
        if brings_news and not any(self._judge.finding(one, news=True) for one in condemned):
            self._step(choice, Input.NEWS)

    def _step(self, choice: int, input_: Input) -> None:
        effect = self._holds.setdefault(choice, Hold()).step(input_)
        if effect is Effect.JUDGE:
            self.due.add(choice)
        elif effect is Effect.RELEASE:
            self.held = {call for call in self.held if call.choice != choice}
            self._release()

    def _end(self, *, complete: bool) -> None:
        self.over = True
        self.complete = complete
        self._end_at = len(self.queue)
        for choice in self._holds:
            self._step(choice, Input.END if complete else Input.CUT)

    def _pass(self, frame: Frame, choices: Sequence[int]) -> None:
        """Let a frame go, or put it behind what waits."""
        waits = any(choice in self._holds and self._holds[choice].state.queues for choice in choices)
        overtakes = bool(choices) and not self._format.ordered and self._blocked.isdisjoint(choices)
        if not waits and (overtakes or not self.queue):
            self._send(frame)
            return
        self.queue.append((frame, choices))
        self.held_bytes += len(frame.raw)
        self._blocked.update(choices)

    def _release(self) -> None:
        """Send what need not wait any more: a frame waits if its choice does, or if one of its choice is before it."""
        waiting = {choice for choice, hold in self._holds.items() if hold.state.queues} | self.due
        queue, self.queue = self.queue, []
        for frame, choices in queue:
            overtakes = bool(choices) and not self._format.ordered
            if waiting.isdisjoint(choices) and (overtakes or not self.queue):
                self.held_bytes -= len(frame.raw)
                self._send(frame)
            else:
                waiting.update(choices)
                self.queue.append((frame, choices))
        self._blocked = waiting if self.queue else set()

    def _send(self, frame: Frame) -> None:
        self.spoke = True
        self._out.append(frame.raw)
        if self._writer is not None and frame.payload is not None:
            self._writer.sent(frame.payload)


def payloads_of(form: Format, raw: Sequence[bytes]) -> list[Payload]:
    """The payloads in the bytes of an answer; frames that are broken have none."""
    framer = form.framer()
    payloads: list[Payload] = []
    for frame in (*(frame for chunk in raw for frame in framer.feed(chunk)), framer.rest()):
        with suppress(NotJSON):
            if frame and (payload := form.payload(frame)) is not None:
                payloads.append(payload)
    return payloads
