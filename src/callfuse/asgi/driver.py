"""Drives one client's answer: takes the app's messages, feeds the guard, and sends the client what may leave.

Its messages come to `AnswerDriver.send`, in the app's own `send`. How they go on depends on what may have to be held:

- nothing, or not yet: a chunk of text leaves unread, in the server's own awaitable; one with a call is read on the
  side. Where a call could still be one too many of its answer, frames leave whole, and a whole answer at its end;
- a call that could be a loop: the guard says what leaves. One client's answer may then take several answers of the app
  (`calls.py`), each read from its start.

Whether the guard follows the answer from its start or from a call on, it is the same guard, stream and driver.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol

from anyio.lowlevel import checkpoint

from callfuse.asgi import off_loop
from callfuse.asgi.answer import BODY, START, UNDECLARED, Intake, Shape, is_success, split_blanks
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import GRAIN
from callfuse.asgi.codings import UnreadableBodyError
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import Stage
from callfuse.asgi.hold_timer import HoldTimer
from callfuse.asgi.keep import Keeper
from callfuse.asgi.opening import AnswerOpening, Quiet, Watching
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.slices import SLICE_BYTES, slices
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Message, Send
from callfuse.dialects.typed import OwnAnswer
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.step import Ask
from callfuse.observe import log
from callfuse.observe.events import AskFailed
from callfuse.policy import texts
from callfuse.wire.jsontext import BACKSLASH, may_hide_letters

MOST_UNPACKED_BYTES = 8 * 1024 * 1024
"""Bytes that one message may unpack to and still be read while it waits: about 10 ms, in which no other stream goes
on."""


class Runner(Protocol):
    """Who calls the app for an answer."""

    def after_message(self) -> None:
        """A message has been taken: a hold may have begun, or the answer may be complete before the app's call is."""
        ...

    async def drop(self) -> None:
        """The app has sent a message behind the end of an answer that was cut short."""
        ...


class AnswerDriver:
    """Drives one client's answer.

    `evidence`: what is known of its request. `watching`: None if the guard follows the answer from its start. `runner`:
    who calls the app. `guard`: None until an answer that can be read has begun, and once it need not be read any more.
    `ask`: the request to make when the current call of the app is over; None if there is none. `review` lets a callback
    see verdicts; `timer` is that of the holds.
    """

    __slots__ = (
        "_body",
        "_grows",
        "_intake",
        "_opening",
        "_quiet",
        "_send",
        "ask",
        "client",
        "evidence",
        "guard",
        "keeper",
        "review",
        "runner",
        "timer",
    )

    def __init__(
        self,
        evidence: ExchangeEvidence,
        keeper: Keeper,
        body: RequestBody,
        send: Send,
        *,
        review: Review | None = None,
        watching: Watching | None = None,
    ) -> None:
        self.ask: Ask | None = None
        self.client = ClientStream(send)
        self.guard: SafeGuard | None = None
        self.keeper = keeper
        self.review = review
        self.runner: Runner = Host()
        self.timer: HoldTimer | None = None
        self._body = body
        self.evidence = evidence
        self._grows: Callable[[bytes], bool] | None = None
        self._intake: Intake | None = None
        self._quiet: Quiet | None = None
        self._send = send
        self._opening = AnswerOpening(evidence, keeper, watching)

    @property
    def is_wanted(self) -> bool:
        """Whether the client is still there."""
        return not self._body.gone

    @property
    def names_model(self) -> bool:
        """Whether the request names a model, in its body or its path."""
        return bool(self.evidence.request.model)

    @property
    def settles_text(self) -> bool:
        """Whether an answer without calls is kept, too: for its id, or because the request has brought something."""
        evidence, kept = self.evidence, self.evidence.kept
        return self._opening.reads_all or kept.is_new or bool(kept.told) or evidence.hindsight is not None

    def send(self, message: Message) -> Awaitable[None]:
        """Take a message of the app's first answer. Most are passed on at once: text, and pieces of a call that need
        not be held."""
        chunk, quiet = message.get("body", b""), self._quiet
        if (
            quiet is not None
            and type(chunk) is bytes
            and chunk.find(quiet.mark) < 0  # a third faster than `in`
            and (not quiet.kept_mark or chunk.find(quiet.kept_mark) < 0)
            and (chunk.endswith(quiet.frame_end) or not chunk)
            and (BACKSLASH not in chunk or not may_hide_letters(chunk))
        ):
            return self._send(message)
        if (
            self._grows is not None
            and type(chunk) is bytes
            and len(chunk) <= SLICE_BYTES
            and message.get("more_body")
            and self._grows(chunk)
        ):
            return self._send(message)
        return self._read_on(message)

    def _read_on(self, message: Message) -> Awaitable[None]:
        """Read a message of a stream that comes plain, in which no call need be held so far, and pass it on: at once,
        unless something of it waits, or it is to be held. Others are taken."""
        guard, intake, chunk = self.guard, self._intake, message.get("body") or b""
        if guard is None or guard.assembly is None or intake is None or not intake.direct:
            return self.take(message)
        if message["type"] != BODY or not message.get("more_body") or len(chunk) > SLICE_BYTES:
            return self.take(message)
        out = guard.feed(chunk, final=False)
        is_counted = 0 <= guard.buffered_bytes - self._body.share.answer < GRAIN
        if is_counted and not (guard.is_broken or guard.assembly.is_suspect):
            self._note_reading(guard, intake)
            return self._send(message) if out is chunk else self.client.write(out)
        return self._carry_on(guard, out)

    async def _carry_on(self, guard: SafeGuard, out: bytes) -> None:
        """Go on with what the guard has released, where more may have to be done."""
        await self._carry_out(guard, out, final=False)
        if guard.assembly is None:
            self.runner.after_message()

    def send_to_the_end(self, message: Message) -> Awaitable[None]:
        """As `send`, but settles even an answer without calls: the request brought something to keep."""
        if message["type"] == BODY and not message.get("more_body"):
            self._quiet = None
        return self.send(message)

    async def take(self, message: Message) -> None:
        """Take a message of the app's first answer that is not passed on unread."""
        intake, guard, kind = self._intake, self.guard, message["type"]
        if intake is not None and intake.direct and guard is not None and kind == BODY:
            if await self._take_direct(guard, message):
                return
        elif self.client.is_cut:
            await self.runner.drop()
            return
        elif kind == START:
            await self._take_start(message)
        elif intake is None:
            await self.client.pass_on(message)
        elif kind == BODY:
            await self._take_body(intake, message)
        else:
            await self._take_other(intake, message)
        if self._opening.watching is None or (self.guard is not None and self.guard.assembly is None):
            self.runner.after_message()

    async def _take_body(self, intake: Intake, message: Message) -> None:
        """Take a body message of an answer whose guard is not made yet, or does not take it as it comes."""
        if self._is_text(intake, message):
            await self._pass_text(intake, message)
        elif intake.raw:
            await self._look(intake, message)
        elif intake.shape is UNDECLARED:
            await self._detect(intake, message)
        elif (guard := self._guard_of(intake)) is not None:
            await self.feed(guard, message)
        elif intake.led:
            await self._pass_plain(intake, message, intake.plain_of(message))
        else:
            await self.client.pass_on(message)

    async def _take_other(self, intake: Intake, message: Message) -> None:
        """Take a message that is not a body part: trailers, a file to send, or a server's extension."""
        if intake.shape is UNDECLARED and not intake.raw:
            await self._detect(intake, message)
        else:
            await self._stop_assembling()
            await self.client.pass_on(message)

    async def _take_direct(self, guard: SafeGuard, message: Message) -> bool:
        """Take a body message of a stream that comes plain. Whether there is nothing more to be done: it only waits, as
        others before it."""
        chunk, final = message.get("body") or b"", not message.get("more_body", False)
        if final or len(chunk) > SLICE_BYTES:
            await self._take_plain(guard, chunk, final=final)
            return False
        out, timer = guard.feed(chunk, final=False), self.timer
        is_counted = 0 <= guard.buffered_bytes - self._body.share.answer < GRAIN
        holds = timer is not None and timer.is_running and guard.state.holding
        if holds and is_counted and not (out or guard.state.needs_verdict):
            return True
        await self._carry_out(guard, out, final=False)
        return False

    def _is_text(self, intake: Intake, message: Message) -> bool:
        """Whether no call has come so far, and none comes with this message."""
        stream, chunk = intake.shape.stream, message.get("body") or b""
        if self.guard is not None or self._opening.watching is None or stream is None or intake.packed:
            return False
        return type(chunk) is bytes and self._opening.quiet_of(intake.shape).passes(chunk)

    async def _pass_text(self, intake: Intake, message: Message) -> None:
        """Pass on a message of an answer without a call so far. At its end, what the request has brought is kept."""
        intake.begin = intake.begin or message.get("body") or b""
        if message.get("more_body"):
            self._quiet = self._opening.quiet_of(intake.shape)
        else:
            if self.is_wanted:
                await self.keeper.settle(ExchangeRecord(self.evidence.request.choices))
            self._body.answered = True
            self._stop()
        await self._send(message)

    async def _take_start(self, message: Message) -> None:
        """Take the start of the answer, unless its status, encoding or form rules out that it is read."""
        self.keeper.tally.status = message["status"]
        stage = self._opening.stage()
        with stage:
            if is_success(message):
                self._open(message, stage)
        intake = self._intake
        if stage.failed and self._opening.watching is None and self.evidence.settings.fail_closed:
            await self._block()
        elif intake is None or stage.failed:
            self._stop()
            await self.client.pass_on(message)
        elif intake.shape is UNDECLARED and not intake.raw:
            if self._opening.watching is None or intake.waits_for_body:
                intake.delayed.append(message)
            else:
                await self._begin(message)
        else:
            await self._start(intake, message)

    def _open(self, message: Message, stage: Stage) -> None:
        """Find out in what form the answer comes, and make its guard if that is known."""
        intake = self._opening.intake_of(message)
        if intake is None:
            return
        self._intake = intake
        if self._opening.watching is None and intake.shape is not UNDECLARED:
            self._make_guard(intake, stage)
        elif intake.shape.stream and intake.raw and not intake.packed:
            self._quiet = self._opening.quiet_of(intake.shape)

    def _make_guard(self, intake: Intake, stage: Stage) -> SafeGuard:
        self.guard = guard = self._opening.guard_of(intake, stage)
        return guard

    def _guard_of(self, intake: Intake) -> SafeGuard | None:
        """The guard of an answer whose form is known; None if it cannot be read. Made with its first bytes, if no call
        need be held."""
        if self.guard is None and not intake.shape.unreadable:
            stage = self._opening.stage()
            with stage:
                return self._make_guard(intake, stage)
            self._intake = None
        return self.guard

    async def _start(self, intake: Intake, message: Message) -> None:
        """Start the client's answer, unless it has begun."""
        if self.client.has_begun:
            return
        is_stream = intake.shape.stream is not None
        if self._opening.watching is None:
            await self.client.start(intake.start(message), at_once=is_stream)
        elif intake.waits_for_body and not (is_stream or intake.raw):
            await self.client.start(message, at_once=False)
        else:
            await self._begin(message)

    def _begin(self, message: Message) -> Awaitable[None]:
        """Send the start of an answer in which no call need be held so far, as it came."""
        self.client.has_begun = True
        return self._send(message)

    async def _look(self, intake: Intake, message: Message) -> None:
        """Read a body message of an answer that passes as it comes, for what it has of calls."""
        final = not message.get("more_body")
        stage = self._opening.stage()
        with stage:
            await self._read(intake, message, final=final)
        if stage.failed or (self.guard is not None and self.guard.is_broken):
            self._stop()
        if final and self.guard is not None:
            await self._settle(self.guard)
            self._stop()
        await self._send(message)

    async def _read(self, intake: Intake, message: Message, *, final: bool) -> None:
        """Read a message of such an answer."""
        pieces = intake.plain_of(message)
        begin = intake.detect_shape(pieces, final=final) if intake.shape is UNDECLARED else b""
        shape = intake.shape
        if shape is UNDECLARED:
            return
        if shape.unreadable:
            self._give_up(shape.unreadable)
            return
        guard = self.guard or self._make_guard(intake, self._opening.stage())
        size, long = 0, shape.stream is not None and not intake.packed
        try:
            guard.feed(begin, final=False)
            for piece in pieces:
                for part in slices(piece) if long and len(piece) > SLICE_BYTES else (piece,):
                    if part is not piece:
                        await checkpoint()
                    guard.feed(part, final=False)
                size += len(piece)
                if intake.packed and size > MOST_UNPACKED_BYTES:
                    self._give_up("content-encoding")
                    return
        except UnreadableBodyError:
            self._give_up("content-encoding")
            return
        if final:
            await off_loop.run(partial(guard.feed, b"", final=True), guard.buffered_bytes)
        else:
            self._count(guard)
            self._note_reading(guard, intake)

    def _note_reading(self, guard: SafeGuard, intake: Intake) -> None:
        """Chunks of text, and those that only add to a call, need not come here any more."""
        self._quiet = None
        assembly = guard.assembly
        if assembly is not None and intake.shape.stream and not (intake.packed or assembly.is_suspect):
            if assembly.idle:
                self._quiet = self._opening.quiet_of(intake.shape)
            elif assembly.reader.calls:
                self._grows = assembly.grows

    def _give_up(self, cause: str) -> None:
        """Stop reading an answer in which nothing need be held, and tell why."""
        self.keeper.tally.unwatched(cause)
        self._stop()

    def _stop(self) -> None:
        """Stop reading: the rest of the answer passes as it comes."""
        if self.guard is not None and self.guard.assembly is None:
            self.guard.close()
        self.guard = self._intake = self._quiet = self._grows = None

    async def _stop_assembling(self) -> None:
        """Stop reading an answer in which nothing need be held so far, and send what has waited of it."""
        guard = self.guard
        if guard is not None and guard.assembly is not None and not self.client.closed:
            out = guard.cut()
            self._stop()
            await self.client.write(out)

    async def _detect(self, intake: Intake, message: Message) -> None:
        """Take a message while the form of the answer is not known. Only white space leaves until it is."""
        intake.delayed.append(message)
        final = message["type"] != BODY or not message.get("more_body", False)
        pieces = intake.plain(message.get("body") or b"", final=final)
        begin = b""
        stage = self._opening.stage()
        with stage:
            begin = intake.detect_shape(pieces, final=final)
            if intake.shape.unreadable and intake.shape is not UNDECLARED:
                self._opening.tell_unread(intake.shape.unreadable)
            elif intake.shape is not UNDECLARED:
                self._make_guard(intake, stage)
        if self.guard is not None:
            await self._begin_body(self.guard, intake, begin, pieces, final=final)
        elif stage.failed and self._opening.watching is None and self.evidence.settings.fail_closed:
            intake.delayed.clear()
            await self._block()
        elif intake.shape is UNDECLARED and not stage.failed:
            await self._send_blanks(intake)
        elif intake.led:
            intake.delayed.clear()
            await self.client.write(begin[intake.led :])
            await self._pass_plain(intake, message, pieces)
        else:
            await self._pass_delayed()

    async def _begin_body(
        self, guard: SafeGuard, intake: Intake, begin: bytes, pieces: Iterator[bytes], *, final: bool
    ) -> None:
        """Take the beginning of an answer that has shown its form, of which some white space may have left."""
        start, *_ = intake.delayed
        intake.delayed.clear()
        await self._start(intake, start)
        if intake.shape.stream is not None:
            self.client.ahead = begin[: intake.led]
        else:
            begin = begin[intake.led :]
        await self._take_plain(guard, begin, final=False)
        if self.guard is None:
            await self._pass_plain(intake, {"type": BODY, "more_body": not final}, pieces)
        else:
            await self._take_pieces(guard, intake, pieces, final=final)

    async def _send_blanks(self, intake: Intake) -> None:
        """Send the white space at the beginning of an answer, and its start before it."""
        blanks = b"" if intake.has_length else intake.lead()
        if not blanks:
            return
        if not self.client.has_begun:
            await self.client.start(intake.start(intake.delayed[0]), at_once=True)
        await self.client.write(blanks)

    async def _pass_plain(self, intake: Intake, message: Message, pieces: Iterator[bytes]) -> None:
        """Pass on a message of an answer without a guard that has begun with plain bytes. `pieces`: those of its body
        that have not left."""
        more = not intake.spoiled
        while more:
            piece, stage = None, self._opening.stage()
            with stage:
                piece = next(pieces, None)
            more, intake.spoiled = piece is not None, stage.failed
            await self.client.write(piece or b"")
            await checkpoint()
        final = message["type"] == BODY and not message.get("more_body", False)
        if message["type"] != BODY:
            await self.client.pass_on(message)
        elif final and intake.spoiled:
            await self._break_off()
        else:
            await self.client.write(b"", final=final)

    async def _pass_delayed(self) -> None:
        """Send what has waited for the form to be known, as it came."""
        while self._intake is not None and self._intake.delayed:
            await self.client.pass_on(self._intake.delayed.pop(0))

    async def _block(self) -> None:
        """Answer in place of the app, whose answer no guard can be made for, and leave the app."""
        answer: OwnAnswer | None = None
        with self._opening.stage():
            answer = self.evidence.request.get().synthetic_reply(texts.unchecked_call(""))
        has_begun, self.client.is_cut = self.client.has_begun, True
        if answer is not None and has_begun:
            await self.client.write(answer[1], final=True)
        self.client.closed = True
        if answer is not None and not has_begun:
            content_type, content = answer
            start = [(b"content-type", content_type), (b"content-length", str(len(content)).encode())]
            action = (b"x-callfuse-action", b"block")
            await self.client.pass_on({"type": START, "status": 200, "headers": [*start, action]})
            await self.client.pass_on({"type": BODY, "body": content, "more_body": False})

    def refusal(self, message: Message) -> str:
        """Why a later answer, by its start, cannot continue the client's; empty if it can, or if that is to be seen by
        its first bytes."""
        with self.keeper.fail_open.stage("while asking"):
            if not is_success(message):
                return f"it answered with status {message['status']}"
            self._intake = intake = Intake(message, self.evidence.request.stream_format)
            if intake.shape is UNDECLARED:
                return ""
            if intake.shape.unreadable:
                return f"its answer cannot be read: {intake.shape.unreadable}"
            return "" if self._continues(intake.shape) else "its answer came in another form"
        return "its answer cannot be read"

    def _continues(self, shape: Shape) -> bool:
        return self.guard is not None and shape == self.guard.shape

    async def feed(self, guard: SafeGuard, message: Message) -> None:
        """Take a body message of an answer that is not refused, the first or a later one."""
        intake, chunk, final = self._intake, message.get("body") or b"", not message.get("more_body", False)
        if intake is not None and (intake.packed or intake.spoiled or intake.shape is UNDECLARED):
            await self._take_pieces(guard, intake, intake.plain(chunk, final=final), final=final)
        else:
            await self._take_plain(guard, chunk, final=final)

    async def _take_pieces(self, guard: SafeGuard, intake: Intake, pieces: Iterator[bytes], *, final: bool) -> None:
        """Take the plain bytes of a chunk. If it cannot be unpacked the answer has broken off, for the client, too."""
        stage = self._opening.stage()
        more = True
        while more and self.ask is None and not intake.spoiled:
            piece: bytes | None = None
            with stage:
                piece = self._next_piece(intake, pieces, final=final)
            more = piece is not None
            if stage.failed:
                intake.spoiled = True
            elif piece or (final and not (more or intake.spoiled)):
                await self._take_plain(guard, piece or b"", final=final and not more)
                await checkpoint()  # a chunk may unpack to many pieces
        if final and intake.spoiled and not guard.state.pending:
            await self._break_off()

    def _next_piece(self, intake: Intake, pieces: Iterator[bytes], *, final: bool) -> bytes | None:
        """The next plain bytes of a chunk; None at its end. The form of a later answer may not be known yet."""
        if intake.shape is not UNDECLARED:
            return next(pieces, None)
        begin = intake.detect_shape(pieces, final=final)
        intake.spoiled = intake.shape is not UNDECLARED and not self._continues(intake.shape)
        return begin or None

    async def _take_plain(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Feed the guard, and do what is due then."""
        if self.client.closed:
            return
        is_whole = guard.shape.stream is None
        if is_whole:
            if not (final or guard.buffered_bytes or self.client.has_said):
                chunk = await self._lead(chunk)
            if final:  # a whole answer is parsed at its end
                out = await off_loop.run(partial(guard.feed, chunk, final=True), guard.buffered_bytes + len(chunk))
            else:
                out = guard.feed(chunk, final=False)
        elif len(chunk) > SLICE_BYTES:
            await self._take_slices(guard, chunk, final=final)
            return
        else:
            out = guard.feed(chunk, final=final)
        await self._carry_out(guard, out, final=final)

    async def _lead(self, chunk: bytes) -> bytes:
        """Send the white space before a whole answer, and its start with it; returns the rest. One that declares its
        length is not kept open."""
        if self._intake is not None and self._intake.has_length:
            return chunk
        blanks, rest = split_blanks(chunk)
        if blanks:
            await self.client.lead(blanks)
        return rest

    async def _carry_out(self, guard: SafeGuard, out: bytes, *, final: bool) -> None:
        """Carry out a verdict that is needed, and write what may leave."""
        if guard.assembly is not None:
            out += await self._go_on_assembling(guard, final=final)
        if not 0 <= guard.buffered_bytes - self._body.share.answer < GRAIN:
            out += self._count(guard)
        if asked := guard.state.needs_verdict:
            if guard.shape.stream is not None:  # a callback takes its time: what may leave does not wait for it
                await self.client.write(out)
                out = b""
                self.runner.after_message()
            out += await self._decide(guard)
        if self.guard is None:
            await self.client.write(out, final=final)
        elif (final or self.client.is_cut) and not guard.state.pending:
            await self._finish(guard, out)
        else:
            if out:
                await self.client.write(out)
            if asked:
                self.keeper.tell(guard.record)  # the answer may go on for minutes

    async def _go_on_assembling(self, guard: SafeGuard, *, final: bool) -> bytes:
        """Have the guard follow the answer if a call could be one too many; returns what leaves then."""
        if guard.is_broken:
            self._stop()
        elif guard.assembly is not None and guard.assembly.is_suspect:
            return await self._follow(guard, final=final)
        elif not final and self._intake is not None:
            self._note_reading(guard, self._intake)
        return b""

    async def _follow(self, guard: SafeGuard, *, final: bool) -> bytes:
        """Have the guard hold calls from now on. If that fails, what waits leaves, and the rest passes."""
        watching, evidence, fail_open = self._opening.watching, self.evidence, self.keeper.fail_open
        self._quiet = self._grows = None
        with fail_open.stage("while watching"):
            if watching is not None:
                self.review = await watching.revive()
            request, stage = evidence.request.get(), fail_open.stage("while guarding")
            out = guard.follow(request, evidence.judge, stage, log.tracer(self.keeper.session))
            self.keeper.tally.mode = "guarded"
            return out + guard.feed(b"", final=True) if final else out
        out = guard.cut()
        self._stop()
        return out

    async def _decide(self, guard: SafeGuard) -> bytes:
        """Get the verdicts and carry them out; returns what leaves."""
        review = self.review
        if review is None:  # not where a guard follows an answer
            return guard.fail("no review")
        step = await self.keeper.tally.time_decision(guard.decide(review.review))
        self.ask, self.client.is_cut = step.ask, step.ends
        if self._intake is not None and step.ends:
            self._intake.direct = False  # what still comes is dropped
        return step.out

    async def _take_slices(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Take a long chunk of a stream. Every few bytes may be a frame, and others wait meanwhile."""
        end = len(chunk)
        for piece in slices(chunk):
            end -= len(piece)
            if self.guard is None:
                await self.client.write(piece, final=final and not end)
            else:
                await self._take_plain(guard, piece, final=final and not end)
            if self.ask is not None or self.client.is_cut:
                return
            if end:
                await checkpoint()

    def _count(self, guard: SafeGuard) -> bytes:
        """Count what is kept of the answer; if that is too much, returns what the guard then releases."""
        share = self._body.share
        if share.hold(guard.measure()) or guard.state.needs_verdict or not guard.buffered_bytes:
            return b""
        if guard.assembly is not None:
            out = guard.cut()
            self._give_up("max_total_bytes")
            share.hold(0)
            return out
        out = guard.give_way("max_total_bytes")
        share.hold(guard.measure())
        return out

    async def escalate(self, cause: str) -> None:
        """The model could not be asked again, for this cause: take the next rung."""
        if self.guard is None:
            return
        self.keeper.bus.emit(AskFailed(cause, self.keeper.tally.where))
        step = await self.guard.escalate()
        self.ask = step.ask
        if step.ask is None:
            await self._finish(self.guard, step.out)
        else:
            await self.client.write(step.out)
            self.keeper.tell(self.guard.record)

    def hold_began(self) -> bool:
        """Note whether a hold has begun or ended. Returns True if `run` of the timer has to be started."""
        guard = self.guard
        if guard is None or guard.assembly is not None:
            return False
        if self.timer is None:
            meter = self.keeper.tally.measure_holds(guard, self.tell)
            evidence = self.evidence
            heartbeat = evidence.request.dialect.heartbeat
            self.timer = HoldTimer(guard, self.client, evidence.settings, heartbeat, meter)
        return self.timer.update()

    async def cut(self) -> None:
        """The call of the app is over. If its answer is not, send what was held and leave the answer unfinished."""
        guard = self.guard
        if guard is not None and not self.client.closed:
            self.keeper.tally.broke_off = guard.assembly is None
            await self.client.abandon(guard.cut())
        await self._pass_delayed()

    async def _break_off(self) -> None:
        """The app has ended its answer, of which the end cannot be unpacked: it breaks off for the client, and the app
        is told that it has gone, for the answer has no end that it could wait for."""
        await self.cut()
        self.client.is_cut = self.client.closed = True

    def tell(self) -> None:
        """Log and count what is on record now, while the answer goes on."""
        if self.guard is not None:
            self.keeper.tell(self.guard.record)

    def report(self) -> None:
        """Log and count what is still on record, e.g. after an answer that broke off."""
        if self.guard is not None and self.guard.assembly is None:
            self.keeper.report(self.guard.record)

    def close(self) -> None:
        """The exchange is over: drop what is kept of its answers, and what leads to it. What the app still sends behind
        an answer that was cut short leads nowhere."""
        if self.timer is not None:
            self.timer.stop()
        self.report()
        if self.client.is_cut or (self.guard is not None and self.guard.assembly is None):
            self.client.drop()
        self._stop()
        self.runner, self.timer, self.review, self._opening.watching = Host(), None, None, None

    async def _settle(self, guard: SafeGuard) -> str:
        """Keep what the answer has brought, before its last bytes leave: the client may send its next request right
        after. Returns the value of the header `x-callfuse-action`."""
        weight = len(self.evidence.request.body) if guard.may_judge else 0
        action = await off_loop.run(guard.settle, weight)
        if self.is_wanted:
            await self.keeper.settle(guard.record)
        self._body.answered = True
        return action

    async def _finish(self, guard: SafeGuard, out: bytes) -> None:
        """Settle the exchange, and write the last bytes."""
        if self._intake is not None:
            self._intake.direct = False  # what still comes is dropped
        action = await self._settle(guard)
        await self.client.write(out, final=True, action=action)
        if guard.assembly is not None:
            self._stop()


class Host:
    """The runner of an answer of which nothing is ever held: the host's own call of the app."""

    __slots__ = ()

    def after_message(self) -> None:
        """Nothing is held, and nothing cut short."""

    async def drop(self) -> None:
        """What comes behind an exchange goes nowhere."""
