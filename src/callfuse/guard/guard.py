"""Guards one client's answer, streamed or whole: chunks of the model's answer go in, the bytes that may leave come out.

Rules:

1. Until the verdict, every error and every limit releases what is held, unchanged and in order, including the frame at
   fault. With `fail_closed`, a block takes the place of calls that could not be judged.
2. After the verdict, a withheld call is gone for good. A failure takes the next rung of the ladder, at last the block's
   text. If even that cannot be written, the answer breaks off.
3. No public method raises. `_attempt` is the only place that catches.
4. Bytes that need no change leave as they came. Frames wait as raw bytes, parsed again only if callfuse acts on them.

Theory of operation. The driver (an ASGI exchange, a test) calls:

    out = guard.feed(chunk)                    # for each chunk; at the end finish(), or cut() if the upstream broke off
    if guard.needs_verdict:
        step = guard.apply(guard.verdicts())   # a callback may change the verdicts in between
        if step.ask:                           # send step.ask.body to the model; then one of
            guard.begin_next_answer()          #   it answers: feed that answer, from the top
            step = guard.escalate()            #   it fails: the step of the next rung
    guard.settle()                             # the answer is delivered: keep its calls

Each frame takes this path: `_read` (limits) -> `_take` -> `_splice` (only if it continues an earlier answer) ->
`_follow`, which steps the holds (`hold.py`) and then sends or queues the frame. When all choices have finished and a
call is condemned, the guard waits for the verdict; `_act` then does one of three things:

- release: no call is withheld, and the queue leaves unchanged;
- ask: every call is withheld, and the rung asks. Text that was held leaves, calls and the finish do not. The next
  answer gets a fresh framer, queue and reader, but the same writer, which splices its frames into the client's answer;
- thin: some calls are withheld, or all are blocked. The writer sends the queue without them, with the block's text.

While an asked answer is `pending` (nothing of it has left), an error drops it silently and `escalate` takes the next
rung. Once part of it has left, rule 1 holds again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from callfuse.boundary import Boundary
from callfuse.dialects.base import Block, CannotReplay, Dialect, Entry, Event, Frame, OpenCall, Request, What, Writer
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
"""The tool's name in a block's text if no call is known."""


class Guard:
    """Guards one client's answer, which may be spliced from several answers of the model.

    `form`: how answers come, a stream's format or `WHOLE` (default: server-sent events). `trace` gets one line for each
    transition of a hold (choice, state, input, new state, effect, bytes waiting); it must not raise. `record` collects
    what the exchange brings.
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
        """Reset for the first, or the next, answer."""
        form, writer = self._codec.form, self._writer
        tell = partial(_note_sent, form, writer) if writer is not None else None
        self._framer = form.framer()
        self._queue = HoldQueue(ordered=form.ordered, in_turn=self._request.choices > 1, tell=tell, trace=self._trace)
        self._calls = AnswerCalls(self._codec.reader(trace=True), self._judge, self._queue)
        self._kept = KeptBytes(self._judge.settings.max_response_bytes, spliced=writer is not None)
        self._recorded = False
        self._unjudged = False

    @property
    def needs_verdict(self) -> bool:
        """Whether the answer waits for its verdict: call `apply(verdicts())` next."""
        return bool(self._queue.to_judge)

    @property
    def holding(self) -> bool:
        """Whether a stream waits that the client has seen begin, so that it needs heartbeats. Never for a whole
        answer."""
        return not self._codec.whole and (self._queue.is_waiting or self.pending)

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
    def held_bytes(self) -> int:
        """Bytes that are held: frames that wait, and an incomplete frame behind them or of a pending answer. Of a whole
        answer all that have come."""
        size = self._queue.size
        return size + self._framer.waiting if size or self.pending or self._codec.whole else 0

    @property
    def has_all_left(self) -> bool:
        """Whether every byte that has come has left, or was dropped: none waits, not even of an incomplete frame."""
        return not (self._queue.size or self._framer.waiting)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of this answer that are in memory: those that wait, and those that have left and may be needed for the
        model's turn."""
        return max(self.held_bytes, self._kept.kept_bytes + self._framer.waiting)

    @property
    def _continues(self) -> bool:
        """Whether this answer continues an earlier one, so that its frames are spliced. Bytes behind the end of the
        answer before it are not."""
        return self._kept.spliced

    @property
    def passes(self) -> bool:
        """Whether the rest of this answer passes unread."""
        return self._queue.is_open and not self._continues

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of any size; returns the bytes that may leave now, perhaps with some that waited."""
        if self._silent:
            return b""
        if self.passes:
            return chunk
        if self._is_quiet(chunk) and self._kept.has_room(chunk):
            self._kept.add(chunk)
            return chunk
        out = self._attempt(partial(self._feed, chunk))
        return self._salvage(chunk) if out is None else out

    def finish(self) -> bytes:
        """End of the body; returns the bytes that may leave now."""
        if self._silent:
            return b""
        out = self._attempt(self._finish)
        return self._salvage() if out is None else out

    def cut(self) -> bytes:
        """The upstream broke off: returns what is held and not yet judged, as it came. A pending answer is dropped."""
        if self._silent or self.pending or self._calls.over:
            return b""
        out = self._attempt(self._cut)
        return self._salvage() if out is None else out

    def fail(self, cause: str) -> bytes:
        """Give up on this answer for a cause that goes to the log: returns what is held; the rest passes unread."""
        self.record.fail_open.append(cause)
        out = self._attempt(self._fail)
        return self._salvage() if out is None else out

    def give_way(self, cause: str) -> bytes:
        """Give up on this answer as for a limit of its own, and keep nothing of it: returns what is held, and the rest
        passes unread. A whole answer that was asked for is dropped instead, and `pending` stays."""
        out = self._attempt(partial(self._give_way_now, cause))
        self._kept.clear()
        return self._salvage() if out is None else out

    def verdicts(self) -> list[Verdict]:
        """The verdicts on the calls that wait. Empty, which releases them, if judging failed (see rule 1)."""
        found = self._attempt(partial(self._verdicts, self._queue.to_judge))
        self._unjudged = found is None
        return found or []

    def apply(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry out the verdicts, as the policy gave them or a callback changed them."""
        choices = set(self._queue.to_judge) or {0}
        step = self._attempt(partial(self._act, verdicts))
        if step is None:
            self._loop.stop_asking()
            self._keep_blocked(verdicts)
            return Step(self._close(*self._last_words(choices, verdicts)))
        return step

    def begin_next_answer(self) -> None:
        """The model has begun to answer the request of the last step; feed that answer from now on. If the writer fails
        to continue, the answer is judged as if it were the first."""
        self._attempt(self._go_on)
        self._silent = False
        self._begin()

    def escalate(self) -> Step:
        """Take the next rung: the request of the last step failed, or its answer did before any of it left."""
        self._recorded = True
        ask = self._attempt(self._loop.next)
        if ask is not None:
            return Step(b"", ask)
        self._queue.clear()
        return Step(self._close(*self._last_words({0}, self._loop.stop_asking())))

    def settle(self) -> None:
        """The answer is delivered: record its calls, with verdicts that change nothing (a warning), unless `apply` did
        so."""
        if not self.complete or self._recorded:
            return
        verdicts = self._attempt(lambda: self._verdicts(self._calls.choices)) or []
        self._attempt(lambda: self._keep(list(self._calls.of((0,))[0].values()), verdicts))

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """Run `work`; None if it raises, with the cause on record. The guard's only boundary."""
        with Boundary() as boundary:
            return work()
        self.record.fail_open.append(boundary.cause)
        return None

    def _is_quiet(self, chunk: bytes) -> bool:
        """Whether a chunk may pass unread: whole frames without a call, before any call, while nothing waits. Never of
        several choices: which of them have begun must be known."""
        return (
            not self._calls.any
            and self._request.choices <= 1
            and not self._queue.is_waiting
            and self._framer.empty
            and not self._continues
            and not self._codec.names_call(chunk)
            and chunk.endswith(self._codec.form.frame_end)
        )

    def _feed(self, chunk: bytes) -> bytes:
        for frame in self._framer.feed(chunk):
            self._read(frame)
        waiting = self._framer.waiting
        if self.passes:
            self._queue.bypass(self._framer.flush())
        elif (
            waiting
            and (cause := self._limit(waiting))
            and not (self._silent or self._queue.is_open or self.needs_verdict)
        ):
            self._give_way(cause)
        return self._leave()

    def _give_way_now(self, cause: str) -> bytes:
        self._give_way(cause)
        return self._leave()

    def _give_way(self, cause: str) -> None:
        """Release what waits."""
        if self._codec.whole and self.pending:  # it could only leave as one body with the answer before it
            self._silent = True
            self._framer.flush()
        else:
            self.record.fail_open.append(cause)
            self._fail_frames()

    def _limit(self, waiting: int) -> str:
        """The setting that is exceeded with so many bytes of an incomplete frame; empty if none.

        Such a frame is held only behind frames that are: else it may be as long as an answer.
        """
        settings = self._judge.settings
        if self._queue.is_waiting and self._queue.size + waiting > settings.max_held_bytes:
            return "max_held_bytes"
        return "" if self._kept.size + waiting <= settings.max_response_bytes else "max_response_bytes"

    def _finish(self) -> bytes:
        if rest := self._framer.flush():
            self._queue.begin_last()  # it lacks its end: what came behind it would be read as its continuation
            self._read(rest)
        calls = self._calls
        if not calls.over and (not self.pending or self._queue.spoke or calls.would_complete):
            calls.end()
        return self._leave()

    def _cut(self) -> bytes:
        self._calls.end(complete=False)
        self._queue.bypass(self._framer.flush())
        return self._queue.drain()

    def _fail(self) -> bytes:
        self._fail_frames()
        return self._queue.drain()

    def _fail_frames(self) -> None:
        """Release what waits, and an incomplete frame."""
        self._let_go()
        rest = self._framer.flush() if self.passes or self._silent else b""
        if not self._silent:
            self._queue.bypass(rest)

    def _salvage(self, chunk: bytes = b"") -> bytes:
        """Everything that has not left, after releasing it the usual way failed. The writer may not learn of it."""
        if self._drops_answer:
            self._silent = True
            return b""
        self._attempt(self._queue.open)
        self._queue.bypass(self._framer.flush() + chunk)
        return self._queue.drain()

    def _leave(self) -> bytes:
        """Take the bytes that may leave. Once part of an answer leaves, or it ends, no other answer can replace it."""
        if self._queue.spoke or (self._calls.complete and not self.needs_verdict):
            self._loop.stop_asking()
        return self._queue.drain()

    def _read(self, raw: bytes) -> None:
        """Process a frame within the limits; beyond them everything is released, this frame included."""
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
        if self.passes:
            queue.bypass(raw)
        elif not self._silent:
            self._kept.add(raw)
            self._take(raw)
            is_long = len(raw) > settings.max_held_bytes  # looked at here, not behind the chunk: no cut matters
            if is_long and queue.is_waiting and not (self._calls.over or self._silent):
                self.record.fail_open.append("max_held_bytes")
                self._let_go()

    def _take(self, raw: bytes) -> None:
        """Splice a frame if the answer continues another, then follow it. An error in either ends the hold."""
        frame = self._attempt(partial(self._splice, raw))
        if frame is None:
            self._fail_before_verdict(b"" if self._continues else raw)
        elif self._attempt(partial(self._follow, *frame)) is None:
            self._fail_before_verdict(frame[0])

    def _fail_before_verdict(self, at_fault: bytes) -> None:
        """An error before the verdict: release everything, or drop a pending answer. The driver calls `escalate` when
        the app has ended that answer."""
        if self._drops_answer:
            self._silent = True
        else:
            self._let_go(at_fault)

    @property
    def _drops_answer(self) -> bool:
        """Whether an error drops the answer instead of releasing it: it was asked for, and nothing of it has left."""
        return self.pending and not self._queue.spoke

    def _splice(self, raw: bytes) -> tuple[bytes, Payload | None, bool]:
        """A frame as the client gets it (empty: it does not), its payload, and whether it is broken."""
        payload_of = self._codec.form.payload
        try:
            payload = payload_of(raw)
            if not self._continues:
                return raw, payload, False
            raw = self._get_writer().splice(raw.removeprefix(BOM), payload)  # only a stream may begin with it
            return raw, payload_of(raw) if raw else None, False
        except NotJSON:
            return raw, None, True

    def _follow(self, raw: bytes, payload: Payload | None, broken: bool) -> bool:
        """Process the events of a frame, then send, queue or drop it. Returns True, for `_attempt`."""
        queue, calls, codec = self._queue, self._calls, self._codec
        if broken:
            self._pass_broken(raw)
        elif queue.is_open:
            queue.send((raw,))
        elif not raw or (not calls.over and codec.is_keep_alive(raw, payload)):
            queue.keep_alive(raw)
        elif calls.over:
            queue.put(raw)
        elif payload is not None:
            self._process(raw, *calls.read(payload), codec.choices_of(payload))
        else:
            self._process(raw, calls.read_end() if codec.is_end(raw) else ())
        return True

    def _process(
        self, raw: bytes, events: Sequence[Event], entries: Sequence[Entry] = (), choices: Sequence[int] = ()
    ) -> None:
        """Step the holds by the events of a frame, then send or queue it."""
        queue = self._queue
        for event in events:
            self._calls.apply(event)
            if event.what is What.BROKE and (queue.is_waiting or (self._continues and not queue.spoke)):
                if not self._drops_answer:
                    self.record.fail_open.append("error in the stream")
                self._fail_before_verdict(raw)
                return
        queue.put(raw, choices, entries)
        if What.ENDED in [event.what for event in events]:
            self._calls.end()

    def _pass_broken(self, raw: bytes) -> None:
        """A frame that cannot be parsed: it ends a hold, and waits like any other behind the end of the answer."""
        if self._queue.is_waiting and self._calls.over:
            self._queue.put(raw)
        elif self._queue.is_waiting:
            self.record.fail_open.append("malformed frame")
            self._let_go(raw)
        elif not self.pending:  # a pending answer must begin with a frame of its own
            self._queue.bypass(raw)

    def _let_go(self, at_fault: bytes | None = None) -> None:
        """Release the frames that wait and the one at fault. With `fail_closed` no call leaves unjudged: held calls end
        in a block, and the frame at fault passes only if it has no call."""
        queue = self._queue
        left = at_fault if at_fault and not queue.has(at_fault) else b""
        queue.spoke |= bool(at_fault)
        if not self._judge.settings.fail_closed:
            queue.open()
            queue.bypass(left)
        elif at_fault is not None and not queue.held and not self._codec.names_call(at_fault):
            queue.bypass(left)
        else:
            if at_fault:
                self._kept.drop(at_fault)  # the client does not get it
            queue.bypass(self._close(partial(_unjudged, self._held_names() or {0: _NO_NAME})))

    def _held_names(self) -> dict[int, str]:
        """The tool of the last held call of each choice that has one, in order of the answer."""
        return {call.choice: call.name for call in self._calls.in_order(self._queue.held)}

    def _verdicts(self, choices: Iterable[int]) -> list[Verdict]:
        """The verdicts on choices, without those that would withhold a call that has left already."""
        found: list[Verdict] = []
        for calls in self._calls.of(set(choices)).values():
            gone = {complete for call, complete in calls.items() if call not in self._queue.held}
            verdicts = self._judge.verdicts(list(calls.values()))
            found += [verdict for verdict in verdicts if not (verdict.withholds and verdict.call in gone)]
        return found

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        """Release, ask or thin (see the theory above), and record the round."""
        queue = self._queue
        self._loop.stop_asking()
        if self._unjudged and self._judge.settings.fail_closed:
            return Step(self._close(partial(_unjudged, self._held_names())))
        calls = self._calls.complete_calls()
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        withheld = {call for call, whole in calls.items() if whole in guilty}
        lost = sorted(queue.to_judge - self._calls.choices_beside(withheld))
        if lost:
            verdicts = self._loop.apply_hardest_rung(verdicts)
            if not self._may_lose(verdicts):
                verdicts = [replace(verdict, rung=None) for verdict in verdicts]
                withheld = set()
        self._recorded = True
        self._keep(list(calls.values()), verdicts)
        if not withheld:
            queue.release_all()
            return Step(queue.drain())
        nameless = self._calls.nameless(lost)
        withheld |= nameless if self._codec.whole else nameless & queue.held
        if lost and all_ask(verdicts):
            return self._ask(verdicts, withheld)
        return self._thin(calls, verdicts, withheld, lost)

    def _thin(
        self,
        calls: Mapping[OpenCall, ToolCall],
        verdicts: Sequence[Verdict],
        withheld: set[OpenCall],
        lost: Iterable[int],
    ) -> Step:
        """Send the queue without the withheld calls; in choices that have `lost` all of theirs, with a block's text."""
        self._loop.note([whole for call, whole in calls.items() if call not in withheld], verdicts)
        where = {whole: call.choice for call, whole in calls.items()}
        found: dict[int, list[Verdict]] = {choice: [] for choice in lost}
        for verdict in verdicts:
            found.get(where[verdict.call], []).append(verdict)
        blocks = {choice: self._loop.block(of_choice) for choice, of_choice in found.items()}
        out = self._get_writer().thin(self._frames(), withheld, blocks)
        self._queue.clear()
        return Step(out)

    def _ask(self, verdicts: Sequence[Verdict], withheld: set[OpenCall]) -> Step:
        """Ask the model again; block if no rung can, e.g. because the model's turn cannot be rebuilt."""
        writer = self._get_writer()
        ask = self._loop.ask(verdicts, partial(self._model_turn, writer))
        if ask:
            out = writer.before_asking(self._frames(behind_end=False), withheld)
            self._silent = True
        else:
            out = writer.thin(self._frames(), withheld, {0: self._loop.block(self._loop.stop_asking())})
        self._queue.clear()
        return Step(out, ask)

    def _model_turn(self, writer: Writer) -> bytes:
        """The model's turn. Raises CannotReplay if it cannot be rebuilt, or another answer cannot continue this one."""
        if not writer.may_continue:
            raise CannotReplay("structured text")
        if not self._kept.is_all:
            raise CannotReplay("length")
        return self._codec.model_turn(self._kept.chunks)

    def _may_lose(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer may lose all its calls. If a server-side tool in it waits for its result: not to a block,
        and to another answer only if the client has not seen that tool's call."""
        if not self._codec.is_unfinished(self._kept.chunks):
            return True
        sent = self._kept.without(self._queue) if self._queue.spoke else []
        return all_ask(verdicts) and not self._codec.is_unfinished(sent)

    def _keep_blocked(self, verdicts: Sequence[Verdict]) -> None:
        """Record the round of verdicts that could not be carried out, so that the answer ends in a block."""
        blocked = [self._judge.to_block(verdict) if verdict.withholds else verdict for verdict in verdicts]
        if self._recorded:
            self.record.replace_last(blocked)
        else:
            self._recorded = True
            self._attempt(lambda: self._keep(list(self._calls.complete_calls().values()), blocked))

    def _go_on(self) -> None:
        """Switch the writer and the steer loop to the next answer."""
        self._get_writer().next_answer(foreign=self._loop.foreign)
        self._loop.begin_next_answer()

    def _keep(self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Record a round and, for a stateful vendor, the id of the answer."""
        self._loop.keep(calls, verdicts, lambda: self._codec.payloads(self._kept.chunks))

    def _last_words(
        self, choices: set[int], verdicts: Sequence[Verdict]
    ) -> Iterable[Callable[[], Mapping[int, Block]]]:
        """The texts to end with, best first. The first is tried twice: it may fail because of what is held beside it,
        and the second try is without that."""

        def reasons() -> Mapping[int, Block]:
            return {choice: self._loop.block(verdicts) for choice in sorted(choices)}

        return reasons, reasons, partial(_unjudged, dict.fromkeys(sorted(choices), _NO_NAME))

    def _close(self, *ends: Callable[[], Mapping[int, Block]]) -> bytes:
        """End the client's answer with the first of these texts that can be written; empty, so that it breaks off, if
        none can."""
        for blocks in ends:
            out = self._attempt(partial(self._write_end, blocks))
            if out is not None:
                return out
        self._silent = True
        return b""

    def _write_end(self, blocks: Callable[[], Mapping[int, Block]]) -> bytes:
        """End the client's answer with blocks, after the held parts that are no calls. The queue is cleared first, so
        that a second try is without them."""
        writer = self._get_writer()
        frames = [] if self._codec.whole else self._frames()
        held = set(self._queue.held)
        self._silent = True
        self._queue.clear()
        out = writer.before_asking(frames, held) if frames else b""
        return out + writer.close(blocks())

    def _get_writer(self) -> Writer:
        """The writer, made on first use and told of everything that the client has so far."""
        if self._writer is None:
            self._writer = self._codec.writer(self._request, usage=self._judge.settings.usage)
            for payload in self._codec.payloads(self._kept.without(self._queue)):
                self._writer.note_sent(payload)
        return self._writer

    def _frames(self, *, behind_end: bool = True) -> list[Frame]:
        """The frames that wait, parsed for the writer."""
        payload_of = self._codec.form.payload
        return [
            Frame(raw, _payload(payload_of, raw), entries) for raw, entries in self._queue.frames(behind_end=behind_end)
        ]


def _payload(payload_of: Callable[[bytes], Payload | None], frame: bytes) -> Payload | None:
    """The payload of a frame; None if it is broken."""
    try:
        return payload_of(frame)
    except NotJSON:
        return None


def _note_sent(form: Format, writer: Writer, frame: bytes) -> None:
    """Tell the writer about a frame that leaves."""
    payload = _payload(form.payload, frame)
    if payload is not None:
        writer.note_sent(payload)


def _unjudged(names: Mapping[int, str]) -> Mapping[int, Block]:
    """The blocks, by choice, for calls that could not be judged. `names`: the tool of each choice."""
    return {choice: Block(texts.unchecked_call(name)) for choice, name in names.items()}
