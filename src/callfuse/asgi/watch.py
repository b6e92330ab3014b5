"""Observes an answer in which no call need be held so far; its bytes pass unchanged.

Its calls are assembled for the ledger, and for verdicts that leave the answer alone. From the first call on that could
be one too many of its answer, a guard goes on with it (`handover.py`).
"""

from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from types import TracebackType
from typing import Final

from anyio.lowlevel import checkpoint

from callfuse.asgi import headers, off_loop
from callfuse.asgi.answer import BODY, START, UNDECLARED, Intake, Shape, is_success, split_blanks
from callfuse.asgi.answer import WHOLE as WHOLE_BODY
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import GRAIN
from callfuse.asgi.codings import UnreadableBodyError
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.handover import TakenOver
from callfuse.asgi.headers import BODY_BOUND
from callfuse.asgi.keep import Keeper
from callfuse.asgi.slices import SLICE_BYTES, slices
from callfuse.asgi.types import Message, Send
from callfuse.guard.observer import Handover, Observer
from callfuse.wire import WHOLE, Format
from callfuse.wire.jsontext import BACKSLASH, may_hide_letters

TakeOver = Callable[[Format | None], Awaitable[TakenOver]]
"""Makes what goes on with a stream in this format; None: with a whole answer."""

MOST_UNPACKED_BYTES: Final = 8 * 1024 * 1024
"""Bytes that one message may unpack to and still be watched: about 10 ms, in which no other stream goes on."""


class _Rest:
    """What a guard may have to go on with. `hands_over`: it may. `taken`: it does. `form`: that of the stream, None if
    it is whole. `part`: the beginning of a frame, which waits for its end. `delayed`: the messages of a whole answer;
    `has_begun`: its start has left. `unchanged`: the last message that was read has changed nothing of this."""

    __slots__ = ("delayed", "form", "hands_over", "has_begun", "part", "take_over", "taken", "unchanged")

    def __init__(self, take_over: TakeOver) -> None:
        self.take_over = take_over
        self.taken: TakenOver | None = None
        self.hands_over = self.has_begun = self.unchanged = False
        self.form: Format | None = None
        self.part = bytearray()
        self.delayed: list[Message] | None = None


class Watch:
    """Watches one answer. `send` is given to the app. `unpacks`: the answer must be read, even if it comes packed.
    `take_over` makes what goes on with a stream that is handed over.

    `send` returns the server's own awaitable, so that a chunk costs no extra coroutine. While `_idle`, chunks of whole
    frames without a call are not even read, unless `reads_all`: the id of an answer without calls is needed. `_growing`
    is the observer of a plain answer, by which most chunks of a call pass with only their pieces read.
    """

    __slots__ = (
        "_body",
        "_evidence",
        "_frame_end",
        "_growing",
        "_idle",
        "_intake",
        "_keeper",
        "_kept_mark",
        "_mark",
        "_observer",
        "_rest",
        "_send",
        "_stage",
        "_unpacks",
    )

    def __init__(
        self,
        evidence: ExchangeEvidence,
        keeper: Keeper,
        body: RequestBody,
        send: Send,
        take_over: TakeOver,
        *,
        unpacks: bool,
        reads_all: bool,
    ) -> None:
        self._evidence = evidence
        self._keeper = keeper
        self._body = body
        self._send = send
        self._unpacks = unpacks
        self._mark: Final = b"" if reads_all else evidence.request.dialect.call_mark
        self._kept_mark = evidence.request.dialect.kept_mark
        self._rest = _Rest(take_over)
        self._stage = keeper.fail_open.stage("while watching")
        self._intake: Intake | None = None
        self._observer: Observer | None = None
        self._growing: Observer | None = None
        self._idle = False
        self._frame_end: bytes | tuple[bytes, ...] = b""

    def send(self, message: Message) -> Awaitable[None]:
        """Read a message and pass it on."""
        chunk = message.get("body", b"")
        if (
            self._idle
            and type(chunk) is bytes
            and chunk.find(self._mark) < 0  # a third faster than `in`
            and (not self._kept_mark or chunk.find(self._kept_mark) < 0)
            and (chunk.endswith(self._frame_end) or not chunk)
            and (BACKSLASH not in chunk or not may_hide_letters(chunk))
        ):
            return self._send(message)
        if (
            self._growing is not None
            and type(chunk) is bytes
            and len(chunk) <= SLICE_BYTES
            and message.get("more_body")
            and self._growing.grows(chunk)
        ):
            return self._send(message)
        return self._send_parsed(chunk, message)

    def _send_parsed(self, chunk: bytes, message: Message) -> Awaitable[None]:
        """Parse a message and pass it on."""
        if type(chunk) is bytes and len(chunk) > SLICE_BYTES and self._reads_stream:
            return self._send_long(chunk, message)
        led = self._leading(message) if self._rest.delayed is not None else None
        return self._send_read(message, message) if led is None else self._send_blanks(*led)

    def _leading(self, message: Message) -> tuple[bytes, Message] | None:
        """The white space before a whole answer, and the rest of its message; None for any other message."""
        delayed = self._rest.delayed
        if message["type"] != BODY or (delayed and delayed[-1]["type"] != START):
            return None
        blanks, rest = split_blanks(message.get("body", b""))
        leads = blanks or (message.get("more_body") and not rest and not delayed)
        return (blanks, {**message, "body": rest}) if leads else None

    @property
    def _reads_stream(self) -> bool:
        """Whether a stream is read that comes plain."""
        intake = self._intake
        reads = self._observer is not None if intake is None else not intake.packed
        return reads and self._rest.form is not None

    async def _send_long(self, chunk: bytes, message: Message) -> None:
        """Read a long chunk, with others going on meanwhile, then pass its message on."""
        *most, last = slices(chunk)
        read = 0
        for piece in most:
            handover: Handover | None = None
            with self._stage:
                self._observe({"type": BODY, "body": piece, "more_body": True})
                handover = self._observer.handover if self._observer is not None else None
            read += len(piece)
            if self._stage.failed:
                self._stop()
            elif handover is not None:
                await self._hand_over(handover, message, read)
                return
            await checkpoint()
        await self._send_read({**message, "body": last}, message)

    def _send_read(self, part: Message, message: Message) -> Awaitable[None]:
        """Read what is left of a message, then pass it on whole."""
        if self._rest.taken is not None:
            return self._rest.taken.take(message)
        ended: Observer | None = None
        handover: Handover | None = None
        waiting = 0
        self._rest.unchanged = False
        with self._stage:
            ended = self._observe(part)
            observer = ended or self._observer
            if self._rest.hands_over and observer is not None:
                handover, waiting = observer.handover, 0 if ended else observer.buffered_bytes
            elif self._rest.hands_over:
                waiting = self._undecided_bytes(message)
        if self._rest.unchanged and not self._rest.part and self._rest.delayed is None:
            return self._send(message)
        if self._stage.failed:
            self._stop()
        if self._rest.delayed is not None:
            return self._delay(self._rest.delayed, message, ended)
        if handover is not None and not self._stage.failed:
            return self._hand_over(handover, message, len(message.get("body", b"")))
        return self._send_aligned(message, waiting, ended)

    async def _send_blanks(self, blanks: bytes, rest: Message) -> None:
        """Send the white space before a whole answer, then take the rest of its message. Its start leaves before that,
        without headers that depend on the body."""
        if self._rest.delayed and blanks:
            start = self._rest.delayed.pop()
            self._rest.has_begun = True
            await self._send({**start, "headers": headers.without(start.get("headers") or (), BODY_BOUND)})
        await self._send({**rest, "body": blanks, "more_body": True})
        if rest["body"] or not rest.get("more_body"):
            await self._send_read(rest, rest)

    def _send_aligned(self, message: Message, waiting: int, ended: Observer | None) -> Awaitable[None]:
        """Send what may leave of a message: whole frames only, where a guard may have to go on, for a frame that has
        left in part cannot be held. `waiting`: the bytes of an incomplete frame at its end, which leave with the rest
        of it. `ended`: it is the last message."""
        part = self._rest.part
        if (waiting or part) and message["type"] == BODY:
            part += message.get("body", b"")  # in place: a frame may come in any number of pieces
            end = len(part) - waiting
            if waiting and not end:
                return _nothing()
            message = {**message, "body": bytes(part[:end])}
            del part[:end]
        return self._send(message) if ended is None else self._send_last(ended, message)

    async def _delay(self, delayed: list[Message], message: Message, ended: Observer | None) -> None:
        """Let the messages of a whole answer wait for its end: only then it is known whether a guard must go on. Its
        start waits, too, if it has headers that a guard would change."""
        if message["type"] == START and self._rest.has_begun:
            await self._send(message)
            return
        delayed.append(message)
        if ended is None and message["type"] in (START, BODY) and (self._observer or self._intake):
            return
        self._rest.delayed = taken = handover = None
        with self._stage:
            if ended is not None:
                await off_loop.run(ended.read_rest, ended.buffered_bytes)
                handover = ended.handover
                taken = await self._rest.take_over(None) if handover is not None else None
        if taken is not None and handover is not None:
            self._rest.taken = taken
            await taken.begin_whole(handover, None if self._rest.has_begun else delayed[0])
            return
        for one in delayed[:-1]:
            await self._send(one)
        await (self._send(message) if ended is None else self._send_last(ended, message))

    def _undecided_bytes(self, message: Message) -> int:
        """How many bytes wait until they tell the form of an answer that names no content type. Blanks, which keep a
        connection open, do not."""
        if self._intake is None or message["type"] != BODY:
            return 0
        unsent = self._rest.part + message.get("body", b"")
        return len(unsent) if unsent.strip() else 0

    def send_to_the_end(self, message: Message) -> Awaitable[None]:
        """As `send`, but settles even an answer without calls: the request brought something to keep."""
        if message["type"] == BODY and not message.get("more_body"):
            self._idle = False
        return self.send(message)

    async def _hand_over(self, handover: Handover, message: Message, read: int) -> None:
        """Let a guard go on with the answer, from the first byte that the client has not got. `read`: the bytes of this
        message that were read."""
        unsent, read = bytes(self._rest.part) + message.get("body", b""), read + len(self._rest.part)
        begin, self._rest.part = read - handover.size, bytearray()
        taken: TakenOver | None = None
        if begin >= 0:  # else the frame has left in part: blanks before it, which told no form yet
            with self._stage:
                taken = await self._rest.take_over(self._rest.form)
        self._stop()
        if taken is None:
            await self._send({**message, "body": unsent})
            return
        self._rest.taken = taken
        if begin:
            await self._send({**message, "body": unsent[:begin], "more_body": True})
        await taken.begin(handover, unsent[begin:read])
        if read < len(unsent) or not message.get("more_body"):
            await taken.take({**message, "body": unsent[read:]})

    async def __aenter__(self) -> None:
        """Within, an error of the app is not raised if its answer was complete before: it has been hung up on."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        ended = error is None or isinstance(error, Exception)
        if ended:  # a call that is cancelled or dropped must not wait for its client
            await self._end()
        return ended and self._rest.taken is not None and self._rest.taken.is_cut

    async def _end(self) -> None:
        """The app's call is over. What is left of an answer that broke off leaves."""
        if self._rest.taken is not None:
            await self._rest.taken.end()
            return
        delayed, part = self._rest.delayed or [], bytes(self._rest.part)
        self._rest.delayed, self._rest.part = None, bytearray()
        for message in delayed:
            await self._send(message)
        if part:
            await self._send({"type": BODY, "body": part, "more_body": True})

    def close(self) -> None:
        """Stop watching, and drop what was read and what leads to the exchange, which is over. What the app still sends
        behind an answer that a guard has gone on with leads nowhere."""
        self._stop()
        if self._rest.taken is not None:
            self._rest.taken.close()
            self._send = _drop
        self._rest = _Rest(_take_nothing)

    def _observe(self, message: Message) -> Observer | None:
        """Read a message. Returns the observer if this is the last message of a watched answer, else None."""
        observer = self._observer
        if observer is None or self._intake is not None:
            return self._observe_intake(message)
        if message.get("more_body"):
            waiting = observer.feed(message.get("body", b""))
            self._idle = observer.idle and self._evidence.hindsight is None
            self._growing = observer
            self._rest.unchanged = waiting is None
            if waiting is not None and not 0 <= waiting - self._body.share.answer < GRAIN:
                self._count(waiting)
            return None
        if message["type"] != BODY:
            return None
        observer.feed(message.get("body", b""))
        self._stop()
        return observer

    def _count(self, size: int) -> None:
        """Count the bytes that wait of the answer; if that is too much, stop watching."""
        share = self._body.share
        if not share.hold(size):
            self._give_up("max_total_bytes")
            share.hold(0)

    def _observe_intake(self, message: Message) -> Observer | None:
        """Read the start of the answer, the first message of its body, or one of an answer that comes packed or has not
        told its form."""
        if message["type"] == START:
            self._begin(message)
        intake = self._intake
        if intake is None or message["type"] != BODY:
            return None
        final = not message.get("more_body")
        pieces = intake.plain(message.get("body", b""), final=final)
        if intake.shape is UNDECLARED:
            pieces = chain((intake.detect_shape(pieces, final=final),), pieces)
        if intake.shape.unreadable or not self._feed(intake, pieces):
            if intake.shape is not UNDECLARED:
                self._give_up(intake.shape.unreadable or "content-encoding")
            return None
        observer = self._observer
        if final:
            self._stop()
            return observer
        if not intake.packed:
            self._intake = None
            self._idle = observer is not None and observer.idle and self._evidence.hindsight is None
        return None

    def _feed(self, intake: Intake, pieces: Iterator[bytes]) -> bool:
        """Feed the observer the plain bytes of one message. False if they cannot be unpacked, or are too many to be
        read while the message waits."""
        if self._observer is None:
            self._observer = self._observer_of(intake.shape)
        size = 0
        try:
            for piece in pieces:
                self._observer.feed(piece)
                size += len(piece)
                if intake.packed and size > MOST_UNPACKED_BYTES:
                    return False
        except UnreadableBodyError:
            return False
        return True

    def _begin(self, message: Message) -> None:
        """Read the start of the answer: whether it is watched, and in what form it comes."""
        self._keeper.tally.status = message["status"]
        if not is_success(message):
            return
        intake = Intake(message, self._evidence.request.stream_format)
        shape = intake.shape
        if intake.packed and not self._unpacks:
            self._give_up("content-encoding")
        elif shape.unreadable and shape is not UNDECLARED:
            self._give_up(shape.unreadable)
        else:
            self._intake = intake
            if not intake.packed:
                self._begin_plain(message, shape)

    def _begin_plain(self, message: Message, shape: Shape) -> None:
        """Whether a guard may go on with an answer whose bytes come plain."""
        hands_over = self._evidence.hands_over
        if shape == WHOLE_BODY:
            if hands_over:
                self._rest.hands_over, self._rest.delayed = True, []
                self._rest.has_begun = BODY_BOUND.isdisjoint(headers.read(message))
            return
        self._rest.hands_over = hands_over and b"content-length" not in headers.read(message)
        if shape.stream:
            self._frame_end = shape.stream.frame_end
            self._idle = self._evidence.hindsight is None and not self._rest.hands_over
            self._rest.form = shape.stream

    def _give_up(self, cause: str) -> None:
        """Stop watching, and tell why."""
        self._keeper.tally.unwatched(cause)
        self._stop()

    def _observer_of(self, shape: Shape) -> Observer:
        """Make the observer. Done at the first chunk that is read: a stream without calls needs none."""
        evidence = self._evidence
        request = evidence.request
        if shape.stream:
            self._frame_end, self._rest.form = shape.stream.frame_end, shape.stream
        elif self._rest.delayed is None:  # a whole answer that has not said so has begun to leave
            self._rest.hands_over = False
        return Observer(
            request.dialect,
            request.choices,
            evidence.settings,
            None if evidence.is_healthy else evidence.judge,
            shape.stream or WHOLE,
            room=evidence.room,
            judge_of=lambda: evidence.judge,
            hands_over=self._rest.hands_over,
        )

    def _stop(self) -> None:
        """Stop watching."""
        self._intake = self._observer = self._growing = None
        self._idle = False

    async def _send_last(self, observer: Observer, message: Message) -> None:
        """Send the last message, after keeping what the answer brought: the client may send its next request right
        after."""
        with self._stage:
            weight = observer.buffered_bytes
            if observer.may_judge:
                weight += len(self._evidence.request.body)
            record = await off_loop.run(observer.settle, weight)
            if not self._body.gone:
                await self._keeper.settle(record)
        self._body.answered = True
        await self._send(message)


async def _nothing() -> None:
    """What is sent of a part of a frame."""


async def _drop(_message: Message) -> None:
    """The `send` of an answer that is over."""


async def _take_nothing(_form: Format | None) -> TakenOver:
    """What goes on with an exchange that is over."""
    raise LookupError("the exchange is over")
