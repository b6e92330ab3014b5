"""Take the messages of the app's answers, and detect the form of the body.

The app's own `send` is `AnswerDriver.send`. How a message is passed on depends on which calls may have to be held:

- none, or none yet: a chunk of text is sent unread, in the server's own awaitable; a chunk with a call is read on the
  side. If a later call could be one too many in its answer, frames are sent whole, and a whole answer at its end;
- any single call: the guard decides what is sent. One client's answer may then be several answers of the app
  (`calls.py`), each read from its start.

Guard, stream and driver work the same if the guard follows the answer from a later call on, instead of from its start.
`AnswerDelivery` (`delivery.py`) decides what is sent.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter

from anyio.lowlevel import checkpoint

from callfuse.asgi import off_loop
from callfuse.asgi.answer import BODY, START, UNDECLARED, Intake, Shape, is_success
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import GRAIN
from callfuse.asgi.codings import UnreadableBodyError
from callfuse.asgi.delivery import AnswerDelivery
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import Stage
from callfuse.asgi.keep import Keeper
from callfuse.asgi.opening import READ_ALL, AnswerOpening, Watching
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.slices import SLICE_BYTES, slices
from callfuse.asgi.types import Message, Send
from callfuse.conversations.retries import FAILED_FROM
from callfuse.dialects.typed import OwnAnswer
from callfuse.policy import texts
from callfuse.wire.jsontext import BACKSLASH, may_hide_letters

MOST_UNPACKED_BYTES = 8 * 1024 * 1024
"""The most unpacked bytes of one message that are read before it passes. This takes about 10 ms, in which all others
wait."""

NO_CHUNK: Callable[[bytes], bool] = frozenset[bytes]().__contains__
"""False for any chunk."""


class AnswerDriver:
    """Takes the messages of the app's answers to one request: starts, body parts, and others.

    `evidence`: the request and its conversation. `watching`: None if the guard follows the answer from its start.
    `review`: shows verdicts to a callback. `delivery`: writes the client's answer.

    An answer without calls is settled only if its id must be stored, or if the request has new data to store.
    """

    __slots__ = ("_evidence", "_grows", "_opening", "_quiet", "_send", "_settles_text", "_texts", "_times", "delivery")

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
        self.delivery = AnswerDelivery(evidence, keeper, body, send, review, watching)
        self._evidence = evidence
        self._opening = AnswerOpening(evidence, keeper, watching)
        self._texts = self._opening.texts
        self._send = send
        self._times = keeper.tally.times
        self._grows: Callable[[bytes], bool] = NO_CHUNK
        self._quiet = READ_ALL
        kept, hindsight = evidence.kept, evidence.hindsight
        is_due = keeper.spending is not None and keeper.spending.is_kept
        self._settles_text = self._opening.reads_all or kept.is_new or bool(kept.told or hindsight or is_due)

    def send(self, message: Message) -> Awaitable[None]:
        """Take a message of the app's first answer. Most pass at once: text, and pieces of calls that need not be
        held."""
        chunk, quiet = message.get("body", b""), self._quiet
        if type(chunk) is not bytes:  # apps send other types, too
            return self._read_on(message)
        texts = self._texts
        room = texts.room - len(chunk)
        if (
            room >= 0
            and chunk.find(quiet.mark) < 0  # a third faster than `in`
            and (not quiet.other_mark or chunk.find(quiet.other_mark) < 0)
            and (chunk.endswith(quiet.frame_end) or not chunk)
            and (BACKSLASH not in chunk or not may_hide_letters(chunk))
            and (not self._settles_text or message.get("more_body"))
        ):
            texts.room = room
            return self._send(message)
        if len(chunk) <= SLICE_BYTES and message.get("more_body") and self._grows(chunk):
            return self._send(message)
        return self._read_on(message)

    def _read_on(self, message: Message) -> Awaitable[None]:
        """Read a message of a plain stream without suspect calls so far, and pass it on, at once unless some of its
        bytes must wait. Messages of all other answers go to `take`."""
        delivery, chunk = self.delivery, message.get("body") or b""
        guard, intake = delivery.guard, delivery.intake
        self._quiet, self._grows = READ_ALL, NO_CHUNK  # until this one is read: the app may send others meanwhile
        if guard is None or guard.assembly is None or intake is None or not intake.direct:
            return self.take(message)
        if message["type"] != BODY or not message.get("more_body") or len(chunk) > SLICE_BYTES:
            return self.take(message)
        out = guard.assemble(guard.assembly, chunk, final=False)
        is_counted = 0 <= guard.buffered_bytes - delivery.body.share.answer < GRAIN
        if is_counted and not (guard.is_broken or guard.assembly.is_suspect or guard.record.texts):
            if not guard.assembly.waiting:  # else the next one continues a frame
                self._go_on()
            return self._send(message) if out is chunk else delivery.client.write(out)
        return self._carry_on(guard, out)

    async def _carry_on(self, guard: SafeGuard, out: bytes) -> None:
        """Carry out verdicts and counting after a message that may require them."""
        await self.delivery.carry_out(guard, out, final=False)
        self._go_on()

    def _go_on(self) -> None:
        """Prepare for the next message: update the hold, or else determine which chunks may pass unread from now on,
        those of text or of pieces of a call."""
        guard, intake = self.delivery.guard, self.delivery.intake
        assembly = None if guard is None else guard.assembly
        if self._opening.watching is None or (guard is not None and assembly is None):
            self.delivery.runner.after_message()
        elif intake is None or intake.shape.stream is None or intake.packed:
            return
        elif assembly is None:
            if intake.raw or intake.begin:
                self._quiet = self._opening.quiet_of(intake.shape)
        elif assembly.idle:
            self._quiet = self._opening.quiet_of(intake.shape)
        elif assembly.reader.calls and not assembly.is_suspect:
            self._grows = assembly.grows

    async def take(self, message: Message) -> None:
        """Take a message of the app's first answer that cannot be passed on unread."""
        delivery, kind = self.delivery, message["type"]
        intake, guard = delivery.intake, delivery.guard
        if delivery.client.is_cut:
            await delivery.runner.drop()
            return
        if not self._times.first_byte and message.get("body"):
            self._times.first_byte = perf_counter()
        if kind == START:
            await self._take_start(message)
        elif intake is None:
            await delivery.client.pass_on(message)
        elif kind != BODY:
            await self._take_other(intake, message)
        elif guard is None or not intake.direct:
            await self._take_body(intake, message)
        elif await delivery.take_direct(guard, message.get("body") or b"", final=not message.get("more_body")):
            return
        self._go_on()

    async def _take_body(self, intake: Intake, message: Message) -> None:
        """Take a body message of an answer that has no guard yet, or whose bytes need processing before the guard."""
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
            await self.delivery.client.pass_on(message)

    async def _take_other(self, intake: Intake, message: Message) -> None:
        """Take any other message: trailers, a file to send, or an extension of the server."""
        if intake.shape is UNDECLARED and not intake.raw:
            await self._detect(intake, message)
        else:
            await self.delivery.stop_assembling()
            await self.delivery.client.pass_on(message)

    def _is_text(self, intake: Intake, message: Message) -> bool:
        """Whether the answer has no call so far, and none in this message."""
        stream, chunk = intake.shape.stream, message.get("body") or b""
        if self.delivery.guard is not None or self._opening.watching is None or stream is None or intake.packed:
            return False
        if type(chunk) is not bytes or len(chunk) > self._texts.room:
            return False
        return self._opening.quiet_of(intake.shape).passes(chunk)

    async def _pass_text(self, intake: Intake, message: Message) -> None:
        """Pass on a message of an answer without a call so far. At its end, store the results of the request."""
        chunk = message.get("body") or b""
        if not intake.begin and b"{" in chunk:
            intake.begin = chunk
        self._texts.room -= len(chunk)
        if not message.get("more_body"):
            await self.delivery.settle(None)
            self.delivery.stop()
        await self._send(message)

    async def _take_start(self, message: Message) -> None:
        """Take the start of the answer, and prepare to read the body, unless status, encoding or form prevent it."""
        delivery = self.delivery
        delivery.keeper.tally.status = message["status"]
        stage = self._opening.stage()
        with stage:
            if is_success(message):
                self._open(message, stage)
            elif int(message["status"]) >= FAILED_FROM:
                await delivery.keeper.keep_failure()  # before the client can send the request again
        intake = delivery.intake
        if stage.failed and self._opening.watching is None and self._evidence.settings.fail_closed:
            await self._block()
        elif intake is None or stage.failed:
            delivery.stop()
            await delivery.client.pass_on(message)
        elif intake.shape is UNDECLARED and not intake.raw:
            if self._opening.watching is None or intake.waits_for_body:
                intake.delayed.append(message)
            else:
                await self._begin(message)
        else:
            await self._start(intake, message)

    def _open(self, message: Message, stage: Stage) -> None:
        """Determine the form of the answer, and make its guard if the form is known."""
        self.delivery.intake = intake = self._opening.intake_of(message)
        if intake is not None and self._opening.watching is None and intake.shape is not UNDECLARED:
            self._make_guard(intake, stage)

    def _make_guard(self, intake: Intake, stage: Stage) -> SafeGuard:
        self.delivery.guard = guard = self._opening.guard_of(intake, stage)
        return guard

    def _guard_of(self, intake: Intake) -> SafeGuard | None:
        """Return the guard of an answer whose form is known; None if the answer cannot be read. If no call need be held
        so far, this makes the guard, at the first bytes."""
        delivery = self.delivery
        if delivery.guard is None and not intake.shape.unreadable:
            stage = self._opening.stage()
            with stage:
                return self._make_guard(intake, stage)
            delivery.intake = None
        return delivery.guard

    async def _start(self, intake: Intake, message: Message) -> None:
        """Start the client's answer, unless it has begun."""
        client, is_stream = self.delivery.client, intake.shape.stream is not None
        if client.has_begun:
            return
        if self._opening.watching is None:
            await client.start(intake.start(message), at_once=is_stream)
        elif intake.waits_for_body and not (is_stream or intake.raw):
            await client.start(message, at_once=False)
        else:
            await self._begin(message)

    def _begin(self, message: Message) -> Awaitable[None]:
        """Send the start of an answer without suspect calls so far, unchanged."""
        self.delivery.client.has_begun = True
        return self._send(message)

    async def _look(self, intake: Intake, message: Message) -> None:
        """Read the calls in a body message of an answer that passes unchanged, then pass the message on."""
        final = not message.get("more_body")
        stage = self._opening.stage()
        with stage:
            await self._read(intake, message, final=final)
        delivery = self.delivery
        if stage.failed or (delivery.guard is not None and delivery.guard.is_broken):
            delivery.stop()
        guard = delivery.guard
        if guard is not None and guard.record.texts:
            await delivery.tell_texts(guard)
        if final and guard is not None:
            await delivery.settle(guard)
            delivery.stop()
        await self._send(message)

    async def _read(self, intake: Intake, message: Message, *, final: bool) -> None:
        """Read a body message of an answer that passes unchanged."""
        delivery = self.delivery
        pieces = intake.plain_of(message)
        begin = intake.detect_shape(pieces, final=final) if intake.shape is UNDECLARED else b""
        shape = intake.shape
        if shape is UNDECLARED:
            return
        if shape.unreadable:
            delivery.give_up(shape.unreadable)
            return
        guard = delivery.guard or self._make_guard(intake, self._opening.stage())
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
                    delivery.give_up("content-encoding")
                    return
        except UnreadableBodyError:
            delivery.give_up("content-encoding")
            return
        if final:
            weight = off_loop.weight_of_answer(guard.buffered_bytes)
            await off_loop.run(partial(guard.feed, b"", final=True), weight)
        else:
            delivery.count(guard)

    async def _detect(self, intake: Intake, message: Message) -> None:
        """Take a message before the form of the answer is known. Until then, only white space is sent."""
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
        delivery = self.delivery
        if delivery.guard is not None:
            await self._begin_body(delivery.guard, intake, begin, pieces, final=final)
        elif stage.failed and self._opening.watching is None and self._evidence.settings.fail_closed:
            intake.delayed.clear()
            await self._block()
        elif intake.shape is UNDECLARED and not stage.failed:
            await self._send_blanks(intake)
        elif intake.led:
            intake.delayed.clear()
            await delivery.client.write(begin[intake.led :])
            await self._pass_plain(intake, message, pieces)
        else:
            await delivery.pass_delayed()

    async def _begin_body(
        self, guard: SafeGuard, intake: Intake, begin: bytes, pieces: Iterator[bytes], *, final: bool
    ) -> None:
        """Take the beginning of an answer whose form is now known. Some of its white space may have been sent."""
        start, *_ = intake.delayed
        intake.delayed.clear()
        await self._start(intake, start)
        if intake.shape.stream is not None:
            self.delivery.client.ahead = begin[: intake.led]
        else:
            begin = begin[intake.led :]
        await self.delivery.take(guard, begin, final=False)
        if self.delivery.guard is None:
            await self._pass_plain(intake, {"type": BODY, "more_body": not final}, pieces)
        else:
            await self._take_pieces(guard, intake, pieces, final=final)

    async def _send_blanks(self, intake: Intake) -> None:
        """Send the start of an answer, and its leading white space."""
        blanks = b"" if intake.has_length else intake.lead()
        if not blanks:
            return
        client = self.delivery.client
        if not client.has_begun:
            await client.start(intake.start(intake.delayed[0]), at_once=True)
        await client.write(blanks)

    async def _pass_plain(self, intake: Intake, message: Message, pieces: Iterator[bytes]) -> None:
        """Pass on, as plain bytes, a message of an answer without a guard whose beginning was sent as plain bytes.
        `pieces`: the unsent plain bytes of its body."""
        client, more = self.delivery.client, not intake.spoiled
        while more:
            piece, stage = None, self._opening.stage()
            with stage:
                piece = next(pieces, None)
            more, intake.spoiled = piece is not None, stage.failed
            await client.write(piece or b"")
            await checkpoint()
        final = message["type"] == BODY and not message.get("more_body", False)
        if message["type"] != BODY:
            await client.pass_on(message)
        elif final and intake.spoiled:
            await self.delivery.break_off()
        else:
            await client.write(b"", final=final)

    async def _block(self) -> None:
        """Send a block in place of the app's answer, because its guard could not be made."""
        answer: OwnAnswer | None = None
        with self._opening.stage():
            answer = self._evidence.request.get().synthetic_reply(texts.unchecked_call(""))
        client = self.delivery.client
        has_begun, client.is_cut = client.has_begun, True
        if answer is not None and has_begun:
            await client.write(answer[1], final=True)
        client.closed = True
        if answer is not None and not has_begun:
            content_type, content = answer
            start = [(b"content-type", content_type), (b"content-length", str(len(content)).encode())]
            action = (b"x-callfuse-action", b"block")
            await client.pass_on({"type": START, "status": 200, "headers": [*start, action]})
            await client.pass_on({"type": BODY, "body": content, "more_body": False})

    def refusal(self, message: Message) -> str:
        """Return why a later answer, judged by its start, cannot continue the client's; empty if it can, or if its
        first bytes must be known for that."""
        with self.delivery.keeper.fail_open.stage("while asking"):
            if not is_success(message):
                return f"it answered with status {message['status']}"
            self.delivery.intake = intake = Intake(message, self._evidence.request.stream_format)
            if intake.shape is UNDECLARED:
                return ""
            if intake.shape.unreadable:
                return f"its answer cannot be read: {intake.shape.unreadable}"
            intake.direct = intake.shape.stream is not None and not intake.packed
            return "" if self._continues(intake.shape) else "the first answer had another form (streamed or whole)"
        return "its answer cannot be read"

    def _continues(self, shape: Shape) -> bool:
        return self.delivery.guard is not None and shape == self.delivery.guard.shape

    async def feed(self, guard: SafeGuard, message: Message) -> bool:
        """Take a body message of the first answer, or of a later one that is not refused. Returns the same as
        `AnswerDelivery.take_direct`."""
        intake, final = self.delivery.intake, not message.get("more_body")
        chunk = message.get("body") or b""
        if intake is not None and intake.direct:
            return await self.delivery.take_direct(guard, chunk, final=final)
        if intake is not None and (intake.packed or intake.spoiled or intake.shape is UNDECLARED):
            await self._take_pieces(guard, intake, intake.plain(chunk, final=final), final=final)
        else:
            await self.delivery.take(guard, chunk, final=final)
        return False

    async def _take_pieces(self, guard: SafeGuard, intake: Intake, pieces: Iterator[bytes], *, final: bool) -> None:
        """Take the plain bytes of a chunk. If it cannot be unpacked, the answer breaks off, also for the client."""
        delivery, stage, more = self.delivery, self._opening.stage(), True
        while more and delivery.ask is None and not intake.spoiled:
            piece: bytes | None = None
            with stage:
                piece = self._next_piece(intake, pieces, final=final)
            more = piece is not None
            if stage.failed:
                intake.spoiled = True
            elif piece or (final and not (more or intake.spoiled)):
                await delivery.take(guard, piece or b"", final=final and not more)
                await checkpoint()  # a chunk may unpack to many pieces
        if final and intake.spoiled and not guard.state.pending:
            await delivery.break_off()

    def _next_piece(self, intake: Intake, pieces: Iterator[bytes], *, final: bool) -> bytes | None:
        """Return the next plain bytes of a chunk; None at its end. Detects the form of a later answer."""
        if intake.shape is not UNDECLARED:
            return next(pieces, None)
        begin = intake.detect_shape(pieces, final=final)
        intake.spoiled = intake.shape is not UNDECLARED and not self._continues(intake.shape)
        return begin or None

    def close(self) -> None:
        """Drop kept data of the answers, and references to it, because the exchange is over."""
        self.delivery.close()
        self._quiet, self._grows, self._opening.watching = READ_ALL, NO_CHUNK, None
