"""One streamed answer on its way to the client: frames in, what may leave out, the rest in the queue.

Runs the hold of each choice over what the dialect's reader says. Where the answer continues an earlier one, each frame
is spliced before anything else looks at it.
"""

from collections.abc import Sequence
from contextlib import suppress

from callfuse.dialects.base import Dialect, Event, Frame, OpenCall, What, Writer
from callfuse.framing import Format, Payload
from callfuse.jsontext import NotJSON
from callfuse.model import ToolCall
from callfuse.stream.hold import Effect, Hold, Input
from callfuse.stream.judge import Judge


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
        self.queue: list[tuple[Frame, Sequence[int]]] = []
        self.held: set[OpenCall] = set()
        self.held_bytes = 0
        self._dialect = dialect
        self._judge = judge
        self._writer = writer
        self._format = form
        self._framer = form.framer()
        self._reader = dialect.reader(trace=True)
        self._holds: dict[int, Hold] = {}
        self._complete: dict[OpenCall, ToolCall] = {}
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
    def would_complete(self) -> bool:
        """Whether the answer is complete if nothing more comes: it has ended, or every choice has finished."""
        return self.complete or (not self.over and bool(self._finished) and self._finished.issuperset(self._holds))

    def finish(self) -> bytes:
        """The upstream has ended, perhaps without a terminal frame: what may leave now."""
        return b"" if self.over else self._end(complete=self.would_complete)

    def cut(self) -> bytes:
        """The upstream broke off: what waits leaves as it came. Not what is due: that answer was complete."""
        return b"" if self.over else self._end(complete=False) + self._framer.rest()

    def open(self) -> bytes:
        """Hold nothing any more: what waits leaves as it came. An answer that continues none is not even split: after
        the frames that have been, `last_frame` and all the rest pass."""
        self.is_open = True
        self.passes = self._writer is None
        for hold in self._holds.values():
            hold.step(Input.LIMIT)
        return self.release_all()

    def release_all(self) -> bytes:
        """Everything that waits, unchanged."""
        out = b"".join([self._sent(frame) for frame, _ in self.queue])
        self.clear()
        return out

    def clear(self) -> None:
        """Forget what waits."""
        self.queue.clear()
        self.held.clear()
        self.due.clear()
        self.held_bytes = 0

    def calls(self, choice: int) -> dict[OpenCall, ToolCall]:
        """The complete calls of a choice, in order; what was cut off is no evidence."""
        whole = [call for call in self._reader.calls if call.closed and call.name and call not in self._cut]
        if not self.over:
            return {call: call.complete() for call in whole if call.choice == choice}
        return {call: self._complete.setdefault(call, call.complete()) for call in whole if call.choice == choice}

    def choices(self) -> set[int]:
        """The choices that have calls."""
        return {call.choice for call in self._reader.calls}

    def has_others(self, choice: int, calls: set[OpenCall]) -> bool:
        """Whether a choice has calls beside these, complete or not."""
        return any(call.choice == choice and call not in calls for call in self._reader.calls)

    def frame(self, raw: bytes) -> bytes:
        """What may leave once this frame has been read. Raises BrokenStreamError where that is not known."""
        try:
            payload = self._format.payload(raw)
            if self._writer is not None:
                raw = self._writer.splice(raw, payload)
                payload = self._format.payload(raw) if raw else None
        except NotJSON as error:
            if self.queue:
                raise BrokenStreamError("malformed frame") from error
            return raw
        if not raw or self.is_open or self._dialect.is_keep_alive(raw, payload):
            return raw
        if self.over:
            return self._pass(Frame(raw, payload), ())
        if payload is None:
            out = self._pass(Frame(raw, None), ())
            return out + (self._end(complete=True) if self._dialect.is_end(raw) else b"")
        events = self._reader.read(payload)
        out = b"".join([self._apply(event) for event in events])
        out += self._pass(Frame(raw, payload, tuple(self._reader.entries)), self._dialect.choices_of(payload))
        if any(event.what is What.ENDED for event in events):
            out += self._end(complete=True)
        return out

    def _apply(self, event: Event) -> bytes:
        """Move the machine of the event's choice; what that releases."""
        call = event.call
        if event.what is What.OPENED and call is not None:
            out = self._step(event.choice, Input.SUSPECT if self._judge.must_hold(call.name) else Input.FREE)
            if self._holds[event.choice].state.queues:
                self.held.add(call)
            return out
        if event.what is What.CLOSED and call is not None:
            return self._closed(event.choice, call)
        if event.what is What.BROKE and self.queue:
            raise BrokenStreamError("error in the stream")
        if event.what in (What.FINISHED, What.CUT):
            self._finished.add(event.choice)
            if call is not None:
                self._cut.add(call)
        return b""

    def _closed(self, choice: int, call: OpenCall) -> bytes:
        """A call is complete: innocent or looping, and perhaps the news that frees another."""
        if not self._holds[choice].state.queues:
            return b""
        complete = call.complete()
        calls = [one for mine, one in self.calls(choice).items() if mine is not call]
        out = b""
        if call in self.held:
            finding = self._judge.finding(complete, calls)
            out = self._step(choice, Input.LOOPING if finding else Input.INNOCENT)
        if self._judge.is_news(complete) and not self._judge.verdicts((*calls, complete)):
            out += self._step(choice, Input.NEWS)
        return out

    def _step(self, choice: int, input_: Input) -> bytes:
        effect = self._holds.setdefault(choice, Hold()).step(input_)
        if effect is Effect.JUDGE:
            self.due.add(choice)
        if effect is not Effect.RELEASE:
            return b""
        self.held = {call for call in self.held if call.choice != choice}
        return self._release()

    def _end(self, *, complete: bool) -> bytes:
        self.over = True
        self.complete = complete
        return b"".join([self._step(choice, Input.END if complete else Input.CUT) for choice in self._holds])

    def _pass(self, frame: Frame, choices: Sequence[int]) -> bytes:
        """Let a frame go, or put it behind what waits."""
        waits = any(choice in self._holds and self._holds[choice].state.queues for choice in choices)
        if not self.queue and not waits:
            return self._sent(frame)
        self.queue.append((frame, choices))
        self.held_bytes += len(frame.raw)
        return b"" if waits or not choices else self._release()

    def _release(self) -> bytes:
        """What need not wait any more: a frame waits if its choice does, or if one of its choice is before it."""
        waiting = {choice for choice, hold in self._holds.items() if hold.state.queues} | self.due
        queue, self.queue = self.queue, []
        out: list[bytes] = []
        for frame, choices in queue:
            if waiting.isdisjoint(choices) and (choices or not self.queue):
                self.held_bytes -= len(frame.raw)
                out.append(self._sent(frame))
            else:
                waiting.update(choices)
                self.queue.append((frame, choices))
        return b"".join(out)

    def _sent(self, frame: Frame) -> bytes:
        self.spoke = True
        if self._writer is not None and frame.payload is not None:
            self._writer.sent(frame.payload)
        return frame.raw


def payloads_of(form: Format, raw: Sequence[bytes]) -> list[Payload]:
    """The payloads in the bytes of an answer; frames that are broken have none."""
    framer = form.framer()
    payloads: list[Payload] = []
    for frame in (*(frame for chunk in raw for frame in framer.feed(chunk)), framer.rest()):
        with suppress(NotJSON):
            if frame and (payload := form.payload(frame)) is not None:
                payloads.append(payload)
    return payloads
