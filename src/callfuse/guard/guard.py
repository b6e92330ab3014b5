"""Guards one client's answer, streamed or whole: chunks of the model's answer go in, the bytes that may leave come out.

Rules:

1. Until the verdict, every error and every limit releases what is held, unchanged and in order, including the frame at
   fault. With `fail_closed`, a block takes the place of calls that could not be judged.
2. After the verdict, a withheld call is gone for good. A failure takes the next rung of the ladder, at last the block's
   text. If even that cannot be written, the answer breaks off.
3. No public method raises. `_attempt` is the only place that catches.
4. Bytes that need no change leave as they came. Frames wait as raw bytes, parsed again only if callfuse acts on them.
5. The order of bytes decides, never the chunk: frames are taken one by one, and those behind the end of an answer wait
   unread until its verdict is carried out.

Theory of operation. The driver (an ASGI exchange, a test) calls:

    guard.follow(request, judge)               # at once, if a call may have to be held, else once assembly.is_suspect
    out = guard.feed(chunk)                    # for each chunk; at the end finish(), or cut() if the upstream broke off
    if guard.needs_verdict:
        step = guard.apply(guard.verdicts())   # a callback may change the verdicts in between
        if step.ask:                           # send step.ask.body to the model; then one of
            guard.begin_next_answer()          #   it answers: feed that answer, from the top
            step = guard.escalate()            #   it fails: the step of the next rung
    guard.settle()                             # the answer is delivered: keep its calls
    guard.close()                              # in any case

What becomes of a frame depends on the guard's mode (`Mode`):

- ASSEMBLING: it leaves when it is complete, and calls are put together on the side (`assembly.py`), until one opens
  that could be one too many: the frame that opens it is the first one in FOLLOWING. What only a suspect answer needs is
  made then;
- FOLLOWING: `_read` (limits) -> `_take` -> `_splice` (only if it continues an earlier answer) -> `_follow`, which steps
  the holds (`hold.py`) and then sends or queues it. One that only adds a piece to a call (`template.py`) is not parsed.
  Until the end of the answer, an error or a limit;
- PASSING: it leaves unread, and so does an incomplete one, without waiting for its end;
- SPLICING: as PASSING in an answer that continues an earlier one: it is rewritten as its continuation, and leaves;
- CLOSED: as PASSING or SPLICING behind the end of an answer that has lost calls: it leaves unless it may have a call or
  cannot be read, for a withheld call may be told once more there;
- SILENT: it is dropped. Until another answer begins.

When all choices have finished and a call is condemned, the guard waits for the verdict; `_act` then does one of three
things:

- release: no call is withheld, and the queue leaves unchanged. PASSING or SPLICING;
- ask: every call is withheld, and the rung asks. Text that was held leaves, calls and the finish do not. SILENT until
  the next answer, which gets a fresh framer, queue and reader, but the same writer, which splices its frames into the
  client's answer;
- thin: some calls are withheld, or all are blocked. The writer sends the queue without them, with the block's text.
  CLOSED;
- cut short: the answer was `flooded` and has not ended. As thin, and the writer ends the stream. The step says that
  it `ends`: the driver leaves the model. SILENT.

A verdict is also due before the end, once an answer is flooded: so many calls are too many whatever comes. Not if it
has several choices, which would lose theirs, nor if the vendor stores it, for a request may continue it by its id.

While an asked answer is `pending` (nothing of it has left), an error or a limit drops it (SILENT) and `escalate` takes
the next rung. Once part of it has left, rule 1 holds again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.dialects.base import Dialect, Entry, Event, Request, What
from callfuse.dialects.codec import codec_of
from callfuse.guard.acting import AnswerActs, Blocks
from callfuse.guard.assembly import Assembly
from callfuse.guard.calls import AnswerCalls
from callfuse.guard.judge import Judge
from callfuse.guard.queue import HoldQueue, KeptBytes, Trace
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.rewriter import Rewriter
from callfuse.guard.state import NOTHING_WAITS, GuardState, Mode
from callfuse.guard.steer_loop import SteerLoop
from callfuse.guard.step import Step
from callfuse.guard.unread import Unread
from callfuse.policy.ladder import Verdict
from callfuse.wire import EVENTS, Format, NotFramed, Payload
from callfuse.wire.jsontext import NotJSON, UnreadableJSON

T = TypeVar("T")
MOST_CHOICES: Final = 128
"""Choices of one answer, the most that OpenAI gives (`n`). With one more it is let go: each choice has a hold."""
MAX_CAUSE: Final = 500
"""Characters of an error's message that are logged: it may quote a whole answer."""
_BROKEN_FRAME: Final = "malformed frame"
_BROKEN_STREAM: Final = "malformed stream"
_UNREADABLE: Final = "unreadable JSON"
_TOO_WIDE: Final = "choices"


_READS: Final = (Mode.FOLLOWING, Mode.SPLICING, Mode.CLOSED)
"""The modes in which frames are read one by one."""


class Guard:
    """Guards one client's answer, which may be spliced from several answers of the model.

    `form`: how answers come, a stream's format or `WHOLE` (default: server-sent events). `assembly` reads an answer of
    which no call need be held so far. `record` collects what the exchange brings.
    """

    def __init__(
        self,
        dialect: Dialect,
        form: Format = EVENTS,
        *,
        choices: int = 1,
        assembly: Assembly | None = None,
    ) -> None:
        self.record = ExchangeRecord(choices)
        self._assembly = assembly
        self._codec = codec_of(dialect, form) if assembly is None else assembly.codec
        self._trace: Trace | None = None
        self._mode = Mode.ASSEMBLING

    def follow(self, request: Request, judge: Judge, trace: Trace | None = None) -> bytes:
        """Hold calls from now on that could be loops; returns what may leave of what has come of a suspect answer.

        `trace` gets one line for each change of the mode, and one for each transition of a hold (choice, state, input,
        new state, effect, bytes waiting); it must not raise."""
        assembly, self._assembly, self._trace = self._assembly, None, trace
        self._loop = SteerLoop(self._codec.dialect, request, judge, self.record)
        self._rewriter = Rewriter(self._codec, request, usage=judge.settings.usage)
        self._begin()
        if assembly is None:
            return b""
        return self._run(partial(self._adopt, assembly), self._read_on)

    def _begin(self) -> None:
        """Reset for the first, or the next, answer."""
        form, continues = self._codec.form, self._rewriter.has_written
        self._unread = Unread(form.framer())
        self._parts: tuple[Sequence[Entry], Sequence[int]] = ((), ())
        tell = self._rewriter.tell if continues else None
        self._queue = HoldQueue(ordered=form.ordered, in_turn=self.record.choices > 1, tell=tell, trace=self._trace)
        self._calls = AnswerCalls(self._codec.reader(trace=True), self._loop.judge, self._queue, form.payload)
        self._kept = KeptBytes(self._loop.judge.settings.max_response_bytes, spliced=continues)
        self._rewriter.begin(self._queue, self._kept)
        self._acts = AnswerActs(self._codec, self._loop, self._rewriter, self._queue, self._calls, self._kept)
        self._mode = Mode.FOLLOWING

    @property
    def needs_verdict(self) -> bool:
        """Whether the answer waits for its verdict: call `apply(verdicts())` next."""
        return bool(self._queue.to_judge)

    @property
    def complete(self) -> bool:
        """Whether the current answer has ended properly."""
        return self._calls.complete

    @property
    def pending(self) -> bool:
        """Whether the model has been asked again and nothing of its answer has left, so that `escalate()` is
        possible."""
        return bool(self._loop.asked)

    @property
    def state(self) -> GuardState:
        """What waits now."""
        if self._assembly is not None:  # what waits of a frame, or of a whole answer, is no hold
            return NOTHING_WAITS._replace(buffered_bytes=self._assembly.waiting)
        queue, pending, is_whole = self._queue, bool(self._loop.asked), self._codec.whole
        unread = self._unread.framer.waiting
        if self._unread.frames:
            unread = self._unread.size
        held = queue.size + unread if queue.size or pending or is_whole else 0
        return GuardState(
            needs_verdict=bool(queue.to_judge),
            holding=not is_whole and (queue.size > 0 or pending),
            pending=pending,
            held_bytes=held,
            buffered_bytes=max(held, self._kept.kept_bytes + unread),
            has_all_left=not (queue.size or unread),
        )

    @property
    def _continues(self) -> bool:
        """Whether this answer continues an earlier one, so that its frames are spliced."""
        return self._kept.spliced

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of any size; returns the bytes that may leave now, perhaps with some that waited."""
        if self._assembly is not None:
            return self._assembly.feed(chunk)
        if self._mode is Mode.PASSING:
            return chunk
        if self._mode is Mode.SILENT:
            return b""
        if self._queue.size:
            if self._is_held_piece(chunk):
                return self._run(partial(self._hold_piece, chunk), self._read_on)
        elif self._leaves_at_once(chunk):
            self._kept.add(chunk)
            return chunk
        self._unread.chunk = chunk
        return self._run(self._read_on)

    def _adopt(self, assembly: Assembly) -> bytes:
        """Go on with an answer from the frame that opens a suspect call."""
        sent, unread = assembly.sent, Unread(assembly.framer)
        if sent is None or sent.opening is None:
            raise LookupError("no call of the answer is suspect")
        self._unread = unread
        unread.frames += assembly.rest
        raw, payload, events, entries = sent.opening
        unread.at_work = raw
        for frame in sent.before:
            self._kept.add(frame)
        self._calls.adopt(assembly.reader, assembly.ending, events)
        self._kept.add(raw)
        self._process(raw, events, entries, self._codec.choices_of(payload))
        unread.at_work = None
        return self._read_on()

    def finish(self) -> bytes:
        """End of the body; returns the bytes that may leave now."""
        if self._assembly is not None:
            return self._assembly.finish()
        return self._run(self._finish) if self._mode is not Mode.SILENT else b""

    def cut(self) -> bytes:
        """The upstream broke off: returns what is held and not yet judged, as it came. A pending answer is dropped."""
        if self._assembly is not None:
            return self._assembly.release()
        if self._mode is Mode.SILENT or self.pending or self.needs_verdict:
            return b""
        return self._run(self._cut)

    def fail(self, cause: str) -> bytes:
        """Give up on this answer for a cause that goes to the log: returns what is held; the rest passes unread."""
        self.record.fail(cause)
        return self._run(self._fail)

    def give_way(self, cause: str) -> bytes:
        """Give up on this answer as for a limit of its own, and keep nothing of it: returns what is held, and the rest
        passes unread. An answer that was asked for is dropped instead, and `pending` stays."""
        out = self._run(partial(self._give_way, cause))
        self._kept.clear()
        return out

    def verdicts(self) -> list[Verdict]:
        """The verdicts on the calls that wait. Empty, which releases them, if judging failed (see rule 1)."""
        found = self._attempt(partial(self._acts.verdicts, self._queue.to_judge))
        self._acts.unjudged = found is None
        return found or []

    def apply(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry out the verdicts, as the policy gave them or a callback changed them."""
        choices = set(self._queue.to_judge) or {0}
        step = self._attempt(partial(self._act, verdicts))
        if step is None:
            self._loop.stop_asking()
            self._attempt(partial(self._acts.keep_blocked, verdicts))
            step = Step(self._close(*self._acts.last_words(choices, verdicts)))
        return replace(step, out=step.out + self._run(self._read_on))

    def begin_next_answer(self) -> None:
        """The model has begun to answer the request of the last step; feed that answer from now on. If the writer fails
        to continue, the answer is judged as if it were the first."""
        self._attempt(self._go_on)
        self._begin()

    def escalate(self) -> Step:
        """Take the next rung: the request of the last step failed, or its answer did before any of it left."""
        self._acts.recorded = True
        ask = self._attempt(self._loop.next)
        if ask is not None:
            return Step(b"", ask)
        self._queue.clear()
        return Step(self._close(*self._acts.last_words({0}, self._loop.stop_asking())))

    def settle(self) -> None:
        """The answer is delivered: record its calls, with verdicts that change nothing (a warning), unless `apply` did
        so."""
        if self._assembly is not None:
            self._assembly.settle(self.record)
            return
        if not self._acts.recorded:
            self.record.is_incomplete = self._calls.broke or (self._calls.any and not self.complete)
        if not self.complete or self._acts.recorded:
            return
        verdicts = self._attempt(lambda: self._acts.verdicts(self._calls.choices)) or []
        self._attempt(lambda: self._acts.keep_delivered(verdicts))

    def close(self) -> None:
        """The exchange is over, in whatever way: drop all bytes and calls, which an exception's traceback could keep
        alive. Only `record` stays."""
        if self._mode is Mode.ASSEMBLING:
            self._assembly, self._mode = None, Mode.SILENT
            return
        self._rewriter.close()
        self._begin()
        self._mode = Mode.SILENT
        self._loop.close()

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """Run `work`; None if it raises, with the cause on record. The guard's only boundary."""
        with Boundary() as boundary:
            return work()
        self.record.fail(boundary.cause[:MAX_CAUSE])
        return None

    def _run(self, work: Callable[[], bytes], behind: Callable[[], bytes] | None = None) -> bytes:
        """The bytes that leave by `work`. If a frame makes it raise, that ends the hold, and `behind` (default: `work`)
        goes on behind this frame; if anything else does, everything that has not left leaves."""
        out = self._attempt(work)
        while out is None and (frame := self._unread.at_work) is not None:
            self._unread.at_work = None
            out = self._attempt(partial(self._skip_failed, frame, behind or work))
        return self._salvage() if out is None else out

    def _skip_failed(self, frame: bytes, go_on: Callable[[], bytes]) -> bytes:
        """A frame cannot be processed: end the hold, then go on behind it."""
        self._fail_before_verdict(frame)
        if self._loop.asked:
            self._commit()
        return go_on()

    def _enter(self, mode: Mode) -> None:
        if self._trace is not None and mode is not self._mode:
            self._trace(f"answer: {self._mode.name} -> {mode.name}, {self._queue.size} bytes waiting")
        self._mode = mode

    def _pass_rest(self) -> None:
        """The holds are over: all that still comes of this answer leaves."""
        self._enter(Mode.SPLICING if self._continues else Mode.PASSING)

    def _leaves_at_once(self, chunk: bytes) -> bool:
        """Whether a chunk may leave by itself, while nothing waits: whole frames that name no call, before any call; or
        such that only add pieces to a call, which is read then. Never of several choices, which must be known to
        have begun; nor of a pending answer, of which nothing has left so far."""
        if (
            self.record.choices != 1
            or self._loop.asked
            or self._kept.spliced
            or not self._unread.framer.empty
            or not self._kept.has_room(len(chunk))
        ):
            return False
        if self._calls.any:
            return self._mode is Mode.FOLLOWING and self._calls.grows(chunk)
        return not self._codec.names_call(chunk) and chunk.endswith(self._codec.form.frame_end)

    def _read_on(self) -> bytes:
        """Read what has come, up to the end of an answer that needs a verdict; returns what may leave."""
        if self._unread.chunk:
            self._unread.split()
        self._read_frames()
        waiting = self._unread.framer.waiting
        if waiting and self._mode in _READS and not self.needs_verdict and (cause := self._limit(waiting)):
            self._exceed(cause)
        return self._leave()

    def _is_held_piece(self, chunk: bytes) -> bool:
        """Read a chunk that is one frame and only adds a piece to a call that waits, as most do behind its beginning;
        False if it has to be split. Only within the limits, and not of an answer that continues another."""
        queue, size = self._queue, len(chunk)
        return (
            self._mode is Mode.FOLLOWING
            and self.record.choices == 1
            and not self._loop.asked
            and not self._kept.spliced
            and not queue.to_judge
            and not self._unread.frames
            and self._unread.framer.empty
            and queue.size + size <= self._loop.judge.settings.max_held_bytes
            and self._kept.has_room(size)
            and self._calls.grows(chunk, once=True)
        )

    def _hold_piece(self, frame: bytes) -> bytes:
        """Compare a call that waits with those that it could be equal to, now that it has grown by this frame, and
        queue the frame."""
        entries, choices = self._parts
        self._unread.at_work = frame
        self._kept.add(frame)
        self._calls.compare(choices)
        self._queue.put(frame, choices, entries)
        self._unread.at_work = None
        return self._queue.drain()

    def _read_frames(self) -> None:
        unread = self._unread.frames
        while unread and self._mode in _READS and not self._queue.to_judge:
            raw = unread.popleft()
            if unread and raw.isspace() and not (self._continues or self.pending or self._limit(len(raw))):
                self._take_blanks(raw)
            else:
                self._read(raw)

    def _take_blanks(self, first: bytes) -> None:
        """Take a run of blank frames at once, as far as the limits allow: every byte or two of a stream may be one.

        They are of one kind, and so of one kind with the first: equal to it, or each a byte between two elements."""
        unread, run, size = self._unread.frames, [first], len(first)
        is_byte = size == 1
        while unread and (unread[0] == first or (is_byte and len(unread[0]) == 1 and unread[0].isspace())):
            if self._limit(size + len(unread[0])):
                break
            run.append(unread.popleft())
            size += len(run[-1])
        blanks = b"".join(run)
        self._kept.add(blanks)
        if self._mode is Mode.CLOSED:
            self._queue.send((blanks,))
        elif self._codec.is_keep_alive(first, None):
            self._queue.keep_alive(blanks)
        else:
            self._queue.put(blanks)

    def _leave(self) -> bytes:
        """Take the bytes that may leave."""
        if self._mode is Mode.PASSING:
            self._queue.bypass(self._unread.take())
        elif self._mode is Mode.SILENT:
            self._unread.take()
        return self._queue.drain()

    def _limit(self, size: int) -> str:
        """The setting that so many more bytes exceed, of a frame or of one that is not complete; empty if none.

        An incomplete frame counts like the complete one, so that the cut does not matter: as held bytes only behind
        others, else as bytes of the answer. That of a later answer of which nothing is held must fit alone."""
        settings, queue = self._loop.judge.settings, self._queue
        if self._mode in (Mode.SPLICING, Mode.CLOSED):
            return "max_response_bytes" if size > settings.max_response_bytes else ""
        if queue.size and queue.size + size > settings.max_held_bytes:
            return "max_held_bytes"
        return "" if self._kept.has_room(size) else "max_response_bytes"

    def _exceed(self, cause: str) -> None:
        """A limit is exceeded: release what waits, or drop a pending answer."""
        if self._drops_answer:
            self._enter(Mode.SILENT)
            return
        self.record.fail(cause)
        if self._mode is Mode.SPLICING:
            self._enter(Mode.PASSING)
        else:
            self._let_go()

    def _give_way(self, cause: str) -> bytes:
        if self._mode is Mode.FOLLOWING:
            self._exceed(cause)
        return self._leave()

    def _finish(self) -> bytes:
        if rest := self._unread.framer.flush():
            self._queue.begin_last()  # it lacks its end: what came behind it would be read as its continuation
            self._unread.frames.append(rest)
        self._read_frames()
        calls = self._calls
        if not calls.over and self._mode is not Mode.SILENT and (not self._drops_answer or calls.would_complete):
            calls.end()
            self._commit()
        return self._leave()

    def _cut(self) -> bytes:
        if not self._calls.over:
            self._calls.end(complete=False)
        self._queue.bypass(self._unread.take())
        return self._queue.drain()

    def _fail(self) -> bytes:
        if self._mode is Mode.FOLLOWING:
            self._let_go()
        return self._leave()

    def _salvage(self) -> bytes:
        """Everything that has not left, after releasing it the usual way failed. The writer may not learn of it."""
        if self._drops_answer:
            self._enter(Mode.SILENT)
            return b""
        if self._loop.judge.settings.fail_closed and self._mode is Mode.FOLLOWING:
            return self._queue.drain() + self._close_unjudged()
        self._attempt(self._queue.open)
        self._pass_rest()
        self._queue.bypass(self._unread.take())
        return self._queue.drain()

    def _commit(self) -> None:
        """Once part of an answer leaves, or it ends, no other answer can replace it."""
        if self._queue.spoke or (self._calls.complete and not self.needs_verdict):
            self._loop.stop_asking()

    def _read(self, raw: bytes) -> None:
        """Process a frame within the limits; beyond them everything is released, this frame included."""
        if cause := self._limit(len(raw)):
            self._exceed(cause)
        if self._mode is Mode.PASSING:
            self._queue.bypass(raw)
        elif self._mode is not Mode.SILENT:
            self._kept.add(raw)
            self._take(raw)
            if self._loop.asked:
                self._commit()
            is_long = self._queue.size > self._loop.judge.settings.max_held_bytes
            if is_long and self._mode is Mode.FOLLOWING and not self.needs_verdict:
                self._exceed("max_held_bytes")  # the first frame that waits is too long by itself

    def _take(self, raw: bytes) -> None:
        """Splice a frame if the answer continues another, then follow it. An error in either ends the hold: `_run` goes
        on behind the frame at fault."""
        unread, continues = self._unread, self._continues
        unread.at_work = b"" if continues else raw
        if not continues and self._mode is Mode.FOLLOWING and self._calls.grows(raw):
            self._process(raw, (), *self._parts)
        else:
            frame, payload, broken = self._splice(raw)
            unread.at_work = frame
            self._follow(frame, payload, broken)
        unread.at_work = None

    def _fail_before_verdict(self, at_fault: bytes, cause: str = "") -> None:
        """An error before the verdict: release everything, or drop a pending answer. The driver calls `escalate` when
        the app has ended that answer."""
        if self._drops_answer:
            self._enter(Mode.SILENT)
            return
        if cause:
            self.record.fail(cause)
        self._let_go(at_fault)

    @property
    def _drops_answer(self) -> bool:
        """Whether an error drops the rest of the answer instead of releasing it: it was asked for, and nothing of it
        has left, or it stands behind the end of one that has lost calls."""
        return self._mode is Mode.CLOSED or (self.pending and not self._queue.spoke)

    def _splice(self, raw: bytes) -> tuple[bytes, Payload | None, str]:
        """A frame as the client gets it (empty: it does not), its payload, and what is wrong if it is broken."""
        payload_of = self._codec.form.payload
        try:
            payload = payload_of(raw)
            if not self._continues:
                return raw, payload, ""
            raw = self._rewriter.splice(raw, payload)
            return raw, payload_of(raw) if raw else None, ""
        except NotFramed:
            return raw, None, _BROKEN_STREAM
        except UnreadableJSON:
            return raw, None, _UNREADABLE
        except NotJSON:
            return raw, None, _BROKEN_FRAME

    def _follow(self, raw: bytes, payload: Payload | None, broken: str) -> None:
        """Process the events of a frame, then send, queue or drop it."""
        queue, calls, codec = self._queue, self._calls, self._codec
        if broken:
            self._pass_broken(raw, broken)
        elif self._mode is not Mode.FOLLOWING:
            if self._mode is Mode.SPLICING or not codec.names_call(raw):
                queue.send((raw,))
        elif not raw or codec.is_keep_alive(raw, payload):
            queue.keep_alive(raw)
        elif payload is not None:
            events, entries = calls.read(raw, payload)
            self._parts = entries, codec.choices_of(payload)
            self._process(raw, events, *self._parts)
        else:
            is_end = self._may_end and codec.is_end(raw)
            self._process(raw, calls.read_end() if is_end else ())

    def _process(
        self, raw: bytes, events: Sequence[Event], entries: Sequence[Entry] = (), choices: Sequence[int] = ()
    ) -> None:
        """Step the holds by the events of a frame, then send or queue it."""
        queue = self._queue
        for event in events:
            self._calls.apply(event)
            if cause := self._end_of_hold(event):
                self._fail_before_verdict(raw, cause)
                return
        self._calls.compare(choices)
        queue.put(raw, choices, entries)
        if not events:
            return
        if self._calls.is_flooded and not self._calls.over and not self._codec.whole and self._loop.may_cut:
            self._calls.cut_short()
            return
        if self._may_end and What.ENDED in [event.what for event in events]:
            self._calls.end()
            if not self.needs_verdict:
                self._pass_rest()

    @property
    def _may_end(self) -> bool:
        """Whether an end counts: not before the first call, where it may have passed unread, by its chunk."""
        return self._calls.any or self._continues

    def _end_of_hold(self, event: Event) -> str:
        """Why nothing can be held any longer after this event; empty if it can."""
        queue = self._queue
        if event.what is What.BROKE and (queue.size or (self._continues and not queue.spoke)):
            return "error in the stream"
        return _TOO_WIDE if queue.width > MOST_CHOICES else ""

    def _pass_broken(self, raw: bytes, cause: str) -> None:
        """A frame that cannot be parsed: it ends a hold, and so does one with a call that a client may read. No frame
        behind one that leaves the format can be found."""
        may_call = cause == _UNREADABLE and self._mode is Mode.FOLLOWING and self._codec.names_call(raw)
        if self._queue.size or cause == _BROKEN_STREAM or may_call:
            self._fail_before_verdict(raw, cause)
            if cause == _BROKEN_STREAM and self._mode in _READS:
                self._enter(Mode.PASSING)
        elif not self._drops_answer:  # a pending answer must begin with a frame of its own
            self._queue.bypass(raw)

    def _let_go(self, at_fault: bytes | None = None) -> None:
        """Release the frames that wait and the one at fault. With `fail_closed` no call leaves unjudged: held calls end
        in a block, and the frame at fault passes only if it has no call."""
        queue = self._queue
        left = at_fault if at_fault and not queue.is_newest(at_fault) else b""
        if not self._loop.judge.settings.fail_closed:
            self._pass_rest()
            queue.open()
            queue.bypass(left)
        elif at_fault is not None and not queue.held and not self._codec.names_call(at_fault):
            queue.bypass(left)
        else:
            if at_fault:
                self._kept.drop(at_fault)  # the client does not get it
            queue.bypass(self._close_unjudged())

    def _close_unjudged(self) -> bytes:
        """End the answer with a block in place of what is held."""
        return self._close(self._acts.unjudged_blocks())

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        """Release, ask or thin (see the theory above)."""
        self._loop.stop_asking()
        if self._acts.unjudged and self._loop.judge.settings.fail_closed:
            return Step(self._close_unjudged())
        mode, carry_out = self._acts.plan(verdicts)
        if mode is None:
            self._pass_rest()
        else:
            self._enter(mode)
        return carry_out()

    def _go_on(self) -> None:
        """Switch the writer and the steer loop to the next answer."""
        self._rewriter.next_answer(foreign=self._loop.foreign)
        self._loop.begin_next_answer()

    def _close(self, *ends: Blocks) -> bytes:
        """End the client's answer with the first of these texts that can be written; empty, so that it breaks off, if
        none can."""
        self._enter(Mode.SILENT)
        for blocks in ends:
            out = self._attempt(partial(self._rewriter.end, blocks))
            if out is not None:
                return out
        return b""
