"""Delivers a guarded answer: feeds the app's messages to the guard and sends the client what the guard releases. One
client's answer may take several answers of the app.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from anyio.lowlevel import checkpoint

from callfuse.asgi import off_loop
from callfuse.asgi.answer import BODY, START, UNDECLARED, WHOLE, Intake, Shape, is_success, split_blanks
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import GRAIN
from callfuse.asgi.keep import Keeper
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.slices import SLICE_BYTES, slices
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Message
from callfuse.dialects.base import Dialect, Request
from callfuse.dialects.typed import OwnAnswer
from callfuse.guard.judge import Judge
from callfuse.guard.observer import Handover
from callfuse.guard.step import Ask
from callfuse.observe import log
from callfuse.observe.events import AskFailed
from callfuse.policy import texts


class GuardedAnswer:
    """One client's answer.

    `ask`: the request to make when the current call of the app is over; None if there is none. `guard`: None until an
    answer that can be guarded has begun. `before_verdict` is called when a stream waits for its verdict.
    """

    __slots__ = (
        "_body",
        "_intake",
        "_judge",
        "_request",
        "_review",
        "_shape",
        "_stream_format",
        "ask",
        "before_verdict",
        "client",
        "dialect",
        "guard",
        "keeper",
        "settings",
    )

    def __init__(
        self,
        dialect: Dialect,
        request: Request,
        judge: Judge,
        review: Review,
        keeper: Keeper,
        body: RequestBody,
        client: ClientStream,
    ) -> None:
        self.ask: Ask | None = None
        self.before_verdict: Callable[[], None] = _nothing
        self.guard: SafeGuard | None = None
        self.client = client
        self.dialect = dialect
        self.keeper = keeper
        self.settings = judge.settings
        self._body = body
        self._judge = judge
        self._request = request
        self._review = review
        self._shape: Shape = WHOLE
        self._intake: Intake | None = None
        self._stream_format = partial(dialect.stream_format, request=request)

    @property
    def is_wanted(self) -> bool:
        """Whether the client is still there."""
        return not self._body.gone

    @property
    def is_cut(self) -> bool:
        """Whether it has ended before the app's call, which is no longer needed."""
        return self.client.is_cut

    @property
    def names_model(self) -> bool:
        """Whether the request names a model, in its body or its path."""
        return bool(self._request.model)

    async def take_first(self, message: Message) -> None:
        """Take a message of the app's first answer."""
        kind, guard, intake = message["type"], self.guard, self._intake
        if guard is not None and kind == BODY and intake is None:  # as `take`, with a call less for each chunk
            await self._take_plain(guard, message.get("body") or b"", final=not message.get("more_body", False))
        elif guard is not None and kind == BODY:
            await self.take(guard, message)
        elif kind == START:
            await self._take_start(message)
        elif intake is not None and intake.delayed:
            await self._take_delayed(intake, message)
        elif intake is not None and intake.led and kind == BODY:
            await self._pass_plain(intake, message)
        else:
            await self.client.pass_on(message)

    async def _take_start(self, message: Message) -> None:
        """Make a guard for the answer that starts with this message, unless its status, encoding or form rules it out.
        Without a content type, or with JSON's where a stream was asked for, all waits for the first bytes."""
        is_undeclared = False
        self.keeper.tally.status = message["status"]
        stage = self.keeper.fail_open.stage("while guarding")
        with stage:
            if is_success(message):
                streamed = self._request.stream
                self._intake = intake = Intake(message, self._stream_format, streamed=streamed)
                is_undeclared = intake.shape is UNDECLARED
                if is_undeclared:
                    intake.delayed.append(message)
                else:
                    self._choose_guard(intake)
        if self.guard is not None:
            await self._start(message)
        elif stage.failed and self.settings.fail_closed:
            await self._block()
        elif not is_undeclared:
            await self.client.pass_on(message)

    async def _block(self) -> None:
        """Answer in place of the app, whose answer no guard can be made for, and leave the app."""
        answer: OwnAnswer | None = None
        with self.keeper.fail_open.stage("while guarding"):
            answer = self._request.synthetic_reply(texts.unchecked_call(""))
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

    def guard_rest(self, shape: Shape) -> SafeGuard | None:
        """Guard the rest of an answer of this form, which has begun without a guard; None if that fails."""
        with self.keeper.fail_open.stage("while guarding"):
            self._make_guard(shape)
        return self.guard

    async def take_over(self, handover: Handover, held: bytes, *, final: bool = False) -> None:
        """Take what the client has not got of what came of such an answer. `held`: the same as bytes; `final`: nothing
        comes behind it."""
        guard = self.guard
        if guard is None:
            await self.client.write(held, final=final)
            return
        out = guard.take_over(handover, held)
        if final:
            out += guard.feed(b"", final=True)
        await self._carry_out(guard, out, final=final)

    def _choose_guard(self, intake: Intake) -> None:
        """Make a guard for an answer of this form, if it can be read."""
        keeper = self.keeper
        if intake.shape.unreadable:
            keeper.unguarded(intake.shape.unreadable)
            return
        self._make_guard(intake.shape)

    def _make_guard(self, shape: Shape) -> None:
        keeper, self._shape = self.keeper, shape
        self.guard = SafeGuard(
            self.dialect, self._request, self._judge, shape, keeper.fail_open, log.tracer(keeper.session)
        )

    async def _start(self, message: Message) -> None:
        """Start the client's answer, unless it has begun."""
        with self.keeper.fail_open.stage("while guarding"):
            if self._intake is not None:
                message = self._intake.start(message)
                self._intake = self._intake.unless_plain()
        if not self.client.has_begun:
            await self.client.start(message, at_once=self._shape.stream is not None)

    async def _take_delayed(self, intake: Intake, message: Message) -> None:
        """Take a message while the form of the answer is not known. Only white space leaves until it is."""
        intake.delayed.append(message)
        final = message["type"] != BODY or not message.get("more_body", False)
        pieces = intake.plain(message.get("body") or b"", final=final)
        begin = b""
        stage = self.keeper.fail_open.stage("while guarding")
        with stage:
            begin = intake.detect_shape(pieces, final=final)
            if intake.shape is not UNDECLARED:
                self._choose_guard(intake)
        if self.guard is not None:
            start, *_ = intake.delayed
            intake.delayed.clear()
            await self._start(start)
            if self._shape.stream is not None:
                self.client.ahead = begin[: intake.led]
            else:
                begin = begin[intake.led :]
            await self._take_plain(self.guard, begin, final=False)
            await self._take_pieces(self.guard, intake, pieces, final=final)
        elif stage.failed and self.settings.fail_closed:
            intake.delayed.clear()
            await self._block()
        elif intake.led and (stage.failed or intake.shape is not UNDECLARED):
            intake.delayed.clear()
            await self.client.write(begin[intake.led :])
            await self._pass_plain(intake, message, pieces)
        elif stage.failed or intake.shape is not UNDECLARED:
            await self._pass_delayed()
        elif blanks := intake.lead():
            if not self.client.has_begun:
                await self.client.start(intake.start(intake.delayed[0]), at_once=True)
            await self.client.write(blanks)

    async def _pass_plain(self, intake: Intake, message: Message, pieces: Iterator[bytes] | None = None) -> None:
        """Pass on a message of an answer without a guard that has begun with plain bytes. `pieces`: those of its body
        that have not left."""
        final = not message.get("more_body", False)
        if pieces is None:
            pieces = intake.plain(message.get("body") or b"", final=final)
        more = not intake.spoiled
        while more:
            piece, stage = None, self.keeper.fail_open.stage("while guarding")
            with stage:
                piece = next(pieces, None)
            more, intake.spoiled = piece is not None, stage.failed
            await self.client.write(piece or b"")
            await checkpoint()
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

    async def _break_off(self) -> None:
        """The app has ended its answer, of which the end cannot be unpacked: it breaks off for the client, and the app
        is told that it has gone, for the answer has no end that it could wait for."""
        await self.cut()
        self.client.is_cut = self.client.closed = True

    def refusal(self, message: Message) -> str:
        """Why a later answer, by its start, cannot continue the client's; empty if it can, or if that is to be seen by
        its first bytes."""
        with self.keeper.fail_open.stage("while asking"):
            if not is_success(message):
                return f"it answered with status {message['status']}"
            intake = Intake(message, self._stream_format)
            self._intake, shape = intake.unless_plain(), intake.shape
            if shape is UNDECLARED:
                return ""
            if shape.unreadable:
                return f"its answer cannot be read: {shape.unreadable}"
            return "" if shape == self._shape else "its answer came in another form"
        return "its answer cannot be read"

    def take(self, guard: SafeGuard, message: Message) -> Awaitable[None]:
        """Take a body message of an answer whose form is known."""
        final, chunk, intake = not message.get("more_body", False), message.get("body") or b"", self._intake
        if intake is None:
            return self._take_plain(guard, chunk, final=final)
        return self._take_pieces(guard, intake, intake.plain(chunk, final=final), final=final)

    async def _take_pieces(self, guard: SafeGuard, intake: Intake, pieces: Iterator[bytes], *, final: bool) -> None:
        """Take the plain bytes of a chunk. If it cannot be unpacked the answer has broken off, for the client, too."""
        stage = self.keeper.fail_open.stage("while guarding")
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
        intake.spoiled = intake.shape not in (UNDECLARED, self._shape)
        return begin or None

    async def _take_plain(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Feed the guard, and do what is due then."""
        if self.client.closed:
            return
        if len(chunk) > SLICE_BYTES and self._shape.stream is not None:
            await self._take_slices(guard, chunk, final=final)
            return
        if self._shape.stream is None and not (guard.state.held_bytes or self.client.has_said):
            chunk = await self._pass_blanks(chunk)
        if final and self._shape.stream is None:  # a whole answer is parsed at its end
            out = await off_loop.run(partial(guard.feed, chunk, final=True), guard.state.held_bytes + len(chunk))
        else:
            out = guard.feed(chunk, final=final)
        await self._carry_out(guard, out, final=final)

    async def _pass_blanks(self, chunk: bytes) -> bytes:
        """Send the white space before a whole answer, and its start with it; returns the rest."""
        blanks, rest = split_blanks(chunk)
        if blanks:
            await self.client.lead(blanks)
        return rest

    async def _carry_out(self, guard: SafeGuard, out: bytes, *, final: bool) -> None:
        """Carry out a verdict that is needed, and write what may leave."""
        if not 0 <= guard.buffered_bytes - self._body.share.answer < GRAIN:
            out += self._count(guard)
        if asked := guard.state.needs_verdict:
            if self._shape.stream is not None:  # a callback takes its time: what may leave does not wait for it
                await self.client.write(out)
                out = b""
                self.before_verdict()
            step = await self.keeper.tally.time_decision(guard.decide(self._review.review))
            out += step.out
            self.ask, self.client.is_cut = step.ask, step.ends
        if (final or self.client.is_cut) and not guard.state.pending:
            await self._finish(guard, out)
        else:
            if out:
                await self.client.write(out)
            if asked:
                self.keeper.tell(guard.record)  # the answer may go on for minutes

    async def _take_slices(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Take a long chunk of a stream. Every few bytes may be a frame, and others wait meanwhile."""
        end = len(chunk)
        for piece in slices(chunk):
            end -= len(piece)
            await self._take_plain(guard, piece, final=final and not end)
            if self.ask is not None or self.is_cut:
                return
            if end:
                await checkpoint()

    def _count(self, guard: SafeGuard) -> bytes:
        """Count what is kept of the answer; if that is too much, returns what the guard then releases."""
        share = self._body.share
        if share.hold(guard.measure()) or guard.state.needs_verdict or not guard.buffered_bytes:
            return b""
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

    async def cut(self) -> None:
        """The call of the app is over. If its answer is not, send what was held and leave the answer unfinished."""
        if self.guard is not None and not self.client.closed:
            self.keeper.tally.broke_off = True
            await self.client.abandon(self.guard.cut())
        await self._pass_delayed()

    def tell(self) -> None:
        """Log and count what is on record now, while the answer goes on."""
        if self.guard is not None:
            self.keeper.tell(self.guard.record)

    def report(self) -> None:
        """Log and count what is still on record, e.g. after an answer that broke off."""
        if self.guard is not None:
            self.keeper.report(self.guard.record)

    def close(self) -> None:
        """The exchange is over: drop what the guard keeps of its answers, and who waits for verdicts."""
        self.before_verdict = _nothing
        if self.guard is not None:
            self.guard.close()

    async def _finish(self, guard: SafeGuard, out: bytes) -> None:
        """Write the last bytes. The exchange is settled first, because the client may send its next request right
        after."""
        action = guard.settle()
        if self.is_wanted:
            await self.keeper.settle(guard.record)
        self._body.answered = True
        await self.client.write(out, final=True, action=action)


def _nothing() -> None:
    """What is done before a verdict unless somebody wants to know of it."""
