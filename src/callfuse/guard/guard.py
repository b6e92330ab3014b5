"""The guard of one client's answer, streamed or whole: chunks in, the bytes that may leave out, at an answer's end what
is to be done.

It is driven so: `feed` each chunk, `finish` (or `cut`) at the end; where `due`, `act` on the `verdicts`; where the step
asks, send the request, then `answered` and feed its answer, or `unanswered`; at last `settle`.

Until the verdict any error and any limit releases what is held, unchanged and in order, the frame at fault too; under
`fail_closed` a block takes the place of calls that could not be judged. From the verdict on the call is gone: a failure
takes the next rung, in the end the block's text; if even that cannot be written, the answer breaks off. No public
method raises: `_attempt` is the one place that catches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from callfuse.boundary import Boundary
from callfuse.dialects.base import AskError, Block, Dialect, Frame, OpenCall, Request, What, Writer
from callfuse.dialects.codec import codec_of
from callfuse.guard.calls import AnswerCalls
from callfuse.guard.judge import Judge
from callfuse.guard.queue import HoldQueue, KeptBytes, Trace
from callfuse.guard.steer_loop import SteerLoop, all_ask
from callfuse.guard.step import Step
from callfuse.model import ToolCall
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import BOM, EVENTS, Format, Payload
from callfuse.wire.jsontext import NotJSON

T = TypeVar("T")
_NO_NAME = ""
"""The name of the tool where no call is known."""


class Guard:
    """Guards one client's answer, over as many answers of the model as it takes.

    `form` is how the answer comes: a stream's format, or `WHOLE`. `trace` is given one line for each transition of a
    hold (choice, state, input, new state, effect, bytes waiting); it must not raise.
    """

    def __init__(
        self, dialect: Dialect, request: Request, judge: Judge, form: Format = EVENTS, *, trace: Trace | None = None
    ) -> None:
        self._codec = codec_of(dialect, form)
        self._loop = SteerLoop(dialect, request, judge)
        self.record = self._loop.record
        self._request = request
        self._judge = judge
        self._trace = trace
        self._writer: Writer | None = None
        self._silent = False
        self._begin()

    def _begin(self) -> None:
        """Ready for the first, or the next, answer."""
        form, writer = self._codec.form, self._writer
        tell = partial(_tell, form, writer) if writer is not None else None
        self._framer = form.framer()
        self._queue = HoldQueue(ordered=form.ordered, tell=tell, trace=self._trace)
        self._calls = AnswerCalls(self._codec.reader(trace=True), self._judge, self._queue)
        self._kept = KeptBytes(self._judge.settings.max_response_bytes, spliced=writer is not None)
        self._recorded = False
        self._unjudged = False

    @property
    def due(self) -> bool:
        """Whether the answer is over and a verdict is wanted: `verdicts()`, then `act(verdicts)`."""
        return bool(self._queue.due)

    @property
    def holding(self) -> bool:
        """Whether a stream waits that the client has seen begin; nothing of a whole answer has begun."""
        return not self._codec.whole and (self._queue.is_waiting or self.pending)

    @property
    def complete(self) -> bool:
        """Whether the current answer has come to its proper end."""
        return self._calls.complete

    @property
    def pending(self) -> bool:
        """Whether the model has been asked again and nothing of its answer has gone out: `unanswered()` is possible."""
        return bool(self._loop.asked)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait: held, or of a frame that has no end yet."""
        return self._queue.size + self._framer.waiting

    @property
    def _continues(self) -> bool:
        """Whether this answer goes on from an earlier one, so that its frames are spliced. What stands behind the end
        of an answer that was acted on is not."""
        return self._kept.spliced

    @property
    def _passes(self) -> bool:
        """Whether the bytes of this answer are not even looked at."""
        return self._queue.is_open and not self._continues

    def feed(self, chunk: bytes) -> bytes:
        """What may leave of this chunk and of what waited."""
        if self._silent:
            return b""
        if self._passes:
            return chunk
        if self._is_quiet(chunk) and self._kept.has_room(chunk):
            self._kept.add(chunk)
            return chunk
        out = self._attempt(partial(self._feed, chunk))
        return self._salvage(chunk) if out is None else out

    def finish(self) -> bytes:
        """The upstream has ended its body: what may leave now."""
        if self._silent:
            return b""
        out = self._attempt(self._finish)
        return self._salvage() if out is None else out

    def cut(self) -> bytes:
        """The upstream has broken off: what is held, and not yet judged, leaves as it came. What continues an answer,
        and of which nothing has gone out, is dropped."""
        if self._silent or self.pending or self._calls.over:
            return b""
        out = self._attempt(self._cut)
        return self._salvage() if out is None else out

    def fail(self, cause: str) -> bytes:
        """An error or a limit: what is held leaves, and everything passes from now on."""
        self.record.fail_open.append(cause)
        out = self._attempt(self._fail)
        return self._salvage() if out is None else out

    def verdicts(self) -> list[Verdict]:
        """What policy says about the calls that wait; nothing, which lets them go, where that cannot be known."""
        found = self._attempt(partial(self._verdicts, self._queue.due))
        self._unjudged = found is None
        return found or []

    def act(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry the verdicts out, as policy gave them or a callback changed them."""
        choices = set(self._queue.due) or {0}
        step = self._attempt(partial(self._act, verdicts))
        if step is None:
            self._loop.settled()
            return Step(self._close(*self._last_words(choices, verdicts)))
        return step

    def answered(self) -> None:
        """The model has begun to answer the request of the last step: what is fed now is that answer. Where going on
        fails, it is judged as if it were the first."""
        self._attempt(self._go_on)
        self._silent = False
        self._begin()

    def unanswered(self) -> Step:
        """The request of the last step has failed, or its answer has before any of it went out: the next rung."""
        self._recorded = True
        ask = self._attempt(self._loop.next)
        if ask is not None:
            return Step(b"", ask)
        self._queue.clear()
        return Step(self._close(*self._last_words({0}, self._loop.settled())))

    def settle(self) -> None:
        """The answer has been delivered whole: keep its calls, with the verdicts of rungs that leave it alone, unless
        a verdict has done so."""
        if not self.complete or self._recorded:
            return
        verdicts = self._attempt(lambda: self._verdicts(self._calls.choices)) or []
        self._attempt(lambda: self._keep(list(self._calls.of(0).values()), verdicts))

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """What the work gives; None where it fails, and the cause is on record. The guard's one boundary."""
        with Boundary() as boundary:
            return work()
        self.record.fail_open.append(boundary.cause)
        return None

    def _is_quiet(self, chunk: bytes) -> bool:
        """Whether a chunk may pass unread: nothing waits, no call has come, and none is in it."""
        return (
            not self._calls.any
            and not self._queue.is_waiting
            and self._framer.empty
            and not self._continues
            and not self._codec.names_call(chunk)
            and chunk.endswith(self._codec.form.frame_end)
        )

    def _feed(self, chunk: bytes) -> bytes:
        for frame in self._framer.feed(chunk):
            self._read(frame)
        cause, limit = self._limit()
        if self._passes:
            self._queue.slip(self._framer.flush())
        elif self.held_bytes > limit and not (self._silent or self._queue.is_open or self.due):
            if self._codec.whole and self.pending:  # it could only leave as one body with the answer before it
                self._silent = True
                self._framer.flush()
            else:
                self.record.fail_open.append(cause)
                self._fail_frames()
        return self._leave()

    def _limit(self) -> tuple[str, int]:
        """How many bytes may wait, and the setting that says so: a whole answer waits to its end, suspect or not."""
        settings = self._judge.settings
        if self._codec.whole:
            return "max_response_bytes", settings.max_response_bytes
        return "max_held_bytes", settings.max_held_bytes

    def _finish(self) -> bytes:
        if rest := self._framer.flush():
            self._read(rest)
        calls = self._calls
        if not calls.over and (not self.pending or self._queue.spoke or calls.would_complete):
            calls.end()
        return self._leave()

    def _cut(self) -> bytes:
        self._calls.end(complete=False)
        self._queue.slip(self._framer.flush())
        return self._queue.drain()

    def _fail(self) -> bytes:
        self._fail_frames()
        return self._queue.drain()

    def _fail_frames(self) -> None:
        """Let go of what waits, and of a frame that has no end yet."""
        self._let_go()
        rest = self._framer.flush() if self._passes or self._silent else b""
        if not self._silent:
            self._queue.slip(rest)

    def _salvage(self, chunk: bytes = b"") -> bytes:
        """Everything that has not left, where even letting go has failed: whatever its writer knows of it."""
        if self._drops:
            self._silent = True
            return b""
        self._attempt(self._queue.open)
        self._queue.slip(self._framer.flush() + chunk)
        return self._queue.drain()

    def _leave(self) -> bytes:
        """Bytes go out: once an answer has spoken, or ended, there is no other way than to go on with it."""
        if self._queue.spoke or (self._calls.complete and not self.due):
            self._loop.settled()
        return self._queue.drain()

    def _read(self, raw: bytes) -> None:
        """Put a frame where it belongs. An error lets everything go, the frame at fault too."""
        queue, settings = self._queue, self._judge.settings
        if self._silent:
            return
        cause = ""
        if queue.is_waiting and not self._calls.over and queue.size + len(raw) > settings.max_held_bytes:
            cause = "max_held_bytes"
        elif not (self._kept.has_room(raw) or queue.is_open or self._calls.over):
            cause = "max_response_bytes"
        if cause:
            self.record.fail_open.append(cause)
            self._let_go()
        if self._passes:
            queue.slip(raw)
        elif not self._silent:
            self._kept.add(raw)
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        """Splice a frame, if the answer continues another, then read it."""
        frame = self._attempt(partial(self._splice, raw))
        if frame is None:
            self._fall(b"" if self._continues else raw)
        elif self._attempt(partial(self._follow, *frame)) is None:
            self._fall(frame[0])

    def _fall(self, at_fault: bytes) -> None:
        """An error before the verdict. An answer that was asked for, and has not spoken, is dropped: the next rung is
        taken once the app has ended it."""
        if self._drops:
            self._silent = True
        else:
            self._let_go(at_fault)

    @property
    def _drops(self) -> bool:
        """Whether an error drops the answer: it was asked for, and nothing of it has gone out."""
        return self.pending and not self._queue.spoke

    def _splice(self, raw: bytes) -> tuple[bytes, Payload | None, bool]:
        """A frame as the client is to see it (empty where it is not to), its payload, and whether it is broken."""
        payload_of = self._codec.form.payload
        try:
            payload = payload_of(raw)
            if not self._continues:
                return raw, payload, False
            raw = self._writing().splice(raw.removeprefix(BOM), payload)  # only a stream may begin with it
            return raw, payload_of(raw) if raw else None, False
        except NotJSON:
            return raw, None, True

    def _follow(self, raw: bytes, payload: Payload | None, broken: bool) -> bool:
        """Do as a frame says, the frame itself included. True, for `_attempt`."""
        queue, calls, codec = self._queue, self._calls, self._codec
        if broken:
            self._pass_broken(raw)
        elif queue.is_open:
            queue.send((raw,))
        elif not raw or (not calls.over and codec.is_keep_alive(raw, payload)):
            queue.slip(raw)
        elif calls.over:
            queue.put(raw)
        else:
            if payload is not None:
                events, entries = calls.read(payload)
                choices = codec.choices_of(payload)
            else:
                events, entries, choices = calls.read_end() if codec.is_end(raw) else (), (), ()
            for event in events:
                calls.apply(event)
                if event.what is What.BROKE and (queue.is_waiting or (self._continues and not queue.spoke)):
                    if not self._drops:
                        self.record.fail_open.append("error in the stream")
                    self._fall(raw)
                    return True
            queue.put(raw, choices, entries)
            if any(event.what is What.ENDED for event in events):
                calls.end()
        return True

    def _pass_broken(self, raw: bytes) -> None:
        """A frame that cannot be read: it ends a hold, and behind the end of an answer it waits as all does."""
        if self._queue.is_waiting and self._calls.over:
            self._queue.put(raw)
        elif self._queue.is_waiting:
            self.record.fail_open.append("malformed frame")
            self._let_go(raw)
        elif not self.pending:  # what another answer begins with must be of it
            self._queue.slip(raw)

    def _let_go(self, at_fault: bytes | None = None) -> None:
        """The frames that wait leave, and the one at fault. Under `fail_closed` no call leaves unjudged: held calls end
        in a block, and a frame at fault passes only if it speaks of none."""
        queue = self._queue
        left = at_fault if at_fault and not queue.has(at_fault) else b""
        queue.spoke |= bool(at_fault)
        if not self._judge.settings.fail_closed:
            queue.open()
            queue.slip(left)
        elif at_fault is not None and not queue.held and not self._codec.names_call(at_fault):
            queue.slip(left)
        else:
            names = {call.choice: call.name for call in queue.held} or {0: _NO_NAME}
            if at_fault:
                self._kept.drop(at_fault)  # the client does not get it
            queue.slip(self._close(partial(_unjudged, names)))

    def _verdicts(self, choices: Iterable[int]) -> list[Verdict]:
        """The verdicts over choices, but those that would withhold what has gone out."""
        found: list[Verdict] = []
        for choice in sorted(choices):
            calls = self._calls.of(choice)
            gone = {complete for call, complete in calls.items() if call not in self._queue.held}
            verdicts = self._judge.verdicts(list(calls.values()))
            found += [verdict for verdict in verdicts if not (verdict.withholds and verdict.call in gone)]
        return found

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        queue = self._queue
        self._loop.settled()
        if self._unjudged and self._judge.settings.fail_closed:
            names = {call.choice: call.name for call in queue.held}
            return Step(self._close(partial(_unjudged, names)))
        calls = {
            call: whole for choice in sorted(self._calls.choices) for call, whole in self._calls.of(choice).items()
        }
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        withheld = {call for call, whole in calls.items() if whole in guilty}
        lost = [choice for choice in sorted(queue.due) if not self._calls.has_others(choice, withheld)]
        if lost:
            verdicts = self._loop.as_one(verdicts)
        if lost and not self._may_lose(verdicts):
            verdicts = [replace(verdict, rung=None) for verdict in verdicts]
            withheld = set()
        self._recorded = True
        self._keep(list(calls.values()), verdicts)
        if not withheld:
            queue.release_all()
            return Step(queue.drain())
        if lost and all_ask(verdicts):
            return self._ask(verdicts, withheld)
        self._loop.note([whole for call, whole in calls.items() if call not in withheld], verdicts)
        where = {whole: call.choice for call, whole in calls.items()}
        blocks = {choice: self._loop.block(one for one in verdicts if where[one.call] == choice) for choice in lost}
        out = self._writing().thin(self._frames(), withheld, blocks)
        queue.clear()
        return Step(out)

    def _ask(self, verdicts: Sequence[Verdict], withheld: set[OpenCall]) -> Step:
        """Ask the model again, or take the next rung where its turn cannot be put together."""
        writer = self._writing()
        ask = self._loop.ask(verdicts, partial(self._turn, writer))
        if ask:
            out = writer.before_asking(self._frames(behind_end=False), withheld)
            self._silent = True
        else:
            out = writer.thin(self._frames(), withheld, {0: self._loop.block(self._loop.settled())})
        self._queue.clear()
        return Step(out, ask)

    def _turn(self, writer: Writer) -> bytes:
        """The model's turn; raises AskError where it cannot be put together, or no other answer can go on from it."""
        if not writer.may_continue:
            raise AskError("structured text")
        if not self._kept.is_all:
            raise AskError("length")
        return self._codec.turn(self._kept.chunks)

    def _may_lose(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer may lose all its calls: not to a block while a server-side tool waits for its result, and
        to another answer only while the client has not seen that tool's call."""
        if not self._codec.is_unfinished(self._kept.chunks):
            return True
        sent = self._kept.without(self._queue) if self._queue.spoke else []
        return all_ask(verdicts) and not self._codec.is_unfinished(sent)

    def _go_on(self) -> None:
        """Have the writer and the steer loop go on with the next answer."""
        self._writing().next_answer(foreign=self._loop.foreign)
        self._loop.answered()

    def _keep(self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Keep a round, and the answer as one that its vendor may remember."""
        self._loop.keep(calls, verdicts, lambda: self._codec.payloads(self._kept.chunks))

    def _last_words(
        self, choices: set[int], verdicts: Sequence[Verdict]
    ) -> Iterable[Callable[[], Mapping[int, Block]]]:
        """The texts to end with, the best first; a text that fails may do so because of what is held beside it."""

        def reasons() -> Mapping[int, Block]:
            return {choice: self._loop.block(verdicts) for choice in sorted(choices)}

        return reasons, reasons, partial(_unjudged, dict.fromkeys(sorted(choices), _NO_NAME))

    def _close(self, *ends: Callable[[], Mapping[int, Block]]) -> bytes:
        """End the client's answer with the first of these texts that can be written; if none can, it breaks off."""
        for blocks in ends:
            out = self._attempt(partial(self._write_end, blocks))
            if out is not None:
                return out
        self._silent = True
        return b""

    def _write_end(self, blocks: Callable[[], Mapping[int, Block]]) -> bytes:
        """End the client's answer; of what waits go out the parts that are no calls. A second try is without them."""
        writer = self._writing()
        frames = [] if self._codec.whole else self._frames()
        held = set(self._queue.held)
        self._silent = True
        self._queue.clear()
        out = writer.before_asking(frames, held) if frames else b""
        return out + writer.close(blocks())

    def _writing(self) -> Writer:
        """The writer, told of everything that the client has."""
        if self._writer is None:
            self._writer = self._codec.writer(self._request, usage=self._judge.settings.usage)
            for payload in self._codec.payloads(self._kept.without(self._queue)):
                self._writer.sent(payload)
        return self._writer

    def _frames(self, *, behind_end: bool = True) -> list[Frame]:
        """The frames that wait, parsed again for the writer."""
        payload_of = self._codec.form.payload
        return [
            Frame(raw, _payload(payload_of, raw), entries) for raw, entries in self._queue.frames(behind_end=behind_end)
        ]


def _payload(payload_of: Callable[[bytes], Payload | None], frame: bytes) -> Payload | None:
    """The payload of a frame; None where it is broken."""
    try:
        return payload_of(frame)
    except NotJSON:
        return None


def _tell(form: Format, writer: Writer, frame: bytes) -> None:
    """Tell the writer of a frame that leaves."""
    payload = _payload(form.payload, frame)
    if payload is not None:
        writer.sent(payload)


def _unjudged(names: Mapping[int, str]) -> Mapping[int, Block]:
    """The blocks for calls of these tools, by choice, that could not be judged."""
    return {choice: Block(texts.unchecked_call(name)) for choice, name in names.items()}
