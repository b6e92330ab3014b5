"""Count the tokens of an app's answers, without changing or delaying any byte.

    app = MeteredApp(app, spending)   # the account pays for the answer of each call

Each answer has its own meter, between the app and its `send`. It splits the body into frames, independent of chunks,
and looks for frames with the vendor's counts (`TokenCounts.mark`). Only the first and the last of these are parsed, at
the end. Without counts, the tokens are estimated from characters.
"""

from collections.abc import Awaitable
from typing import Final, Protocol

import anyio

from callfuse.asgi import off_loop
from callfuse.asgi.answer import BODY, START, UNDECLARED, Intake, StreamFormat, is_success
from callfuse.asgi.budget import GRAIN, Share
from callfuse.asgi.codings import UnreadableBodyError
from callfuse.asgi.fail_open import Stage
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.dialects.tokens import TokenCounts
from callfuse.model.spent import Tokens
from callfuse.wire import WHOLE, Format, Payload
from callfuse.wire.format import Framer
from callfuse.wire.jsontext import NotJSON

CHARS_PER_TOKEN: Final = 4
"""For estimates. English and code have about this many."""


class Paid(Protocol):
    """An account that pays for answers."""

    stage: Stage

    def meter(self) -> "AnswerMeter":
        """Return a meter for the next answer."""
        ...

    def pay(self, used: Tokens | None) -> None:
        """Add the cost of an answer that is over or has broken off; `used` is None if there was no answer, or if
        it was counted before."""
        ...

    async def settle_rest(self) -> None:
        """Store the costs that were not stored with the answer, because the call of the app is over."""
        ...


class AnswerMeter:
    """Counts the tokens of one answer. `request`: bytes of its request, for estimates. `limit`: the most bytes of a
    frame, or of a whole answer, that are read; `share`: counts the bytes in memory."""

    __slots__ = (
        "_counts",
        "_first",
        "_form",
        "_framer",
        "_intake",
        "_last",
        "_limit",
        "_request",
        "_share",
        "_sizes",
        "_stream_format",
        "_streamed",
    )

    def __init__(
        self,
        counts: TokenCounts,
        stream_format: StreamFormat,
        *,
        streamed: bool,
        request: int,
        limit: int,
        share: Share,
    ) -> None:
        self._counts = counts
        self._stream_format = stream_format
        self._streamed = streamed
        self._request = request
        self._limit = limit
        self._share = share
        self._intake: Intake | None = None
        self._form: Format = WHOLE
        self._framer: Framer | None = None
        self._first = self._last = b""
        self._sizes = (0, 0, 0)
        """Bytes of the body, the number of frames with a payload, and the bytes of the shortest one."""

    def begin(self, start: Message) -> None:
        """Take the start of the answer. Error responses cost nothing."""
        self._intake = Intake(start, self._stream_format, streamed=self._streamed) if is_success(start) else None
        if self._intake is not None and self._intake.shape is not UNDECLARED:
            self._open(self._intake)

    def _open(self, intake: Intake) -> None:
        if not intake.shape.unreadable:
            self._form = intake.shape.stream or WHOLE
            self._framer = self._form.framer()

    def feed(self, message: Message) -> None:
        """Take a part of the body."""
        intake = self._intake
        if intake is None:
            return
        try:
            pieces = intake.plain_of(message)
            if intake.shape is UNDECLARED:
                begin = intake.detect_shape(pieces, final=not message.get("more_body"))
                if intake.shape is UNDECLARED:
                    return
                self._open(intake)
                self._read(begin)
            for piece in pieces:
                self._read(piece)
        except UnreadableBodyError:
            self._give_up()

    def _read(self, piece: bytes) -> None:
        framer, piece = self._framer, bytes(piece)  # apps send other types, too
        if framer is None:
            size, frames, least = self._sizes
            self._sizes = size + len(piece), frames, least
            return
        for frame in framer.feed(piece):
            self._take(frame)
        kept = framer.waiting + len(self._first) + len(self._last)
        if framer.waiting > self._limit or (abs(kept - self._share.answer) >= GRAIN and not self._share.hold(kept)):
            self._give_up()

    def _take(self, frame: bytes) -> None:
        size, frames, least = self._sizes
        length = len(frame)
        if b"{" in frame or self._counts.mark is None:
            frames, least = frames + 1, min(least, length) if frames else length
        self._sizes = size + length, frames, least
        if self._counts.may_be_in(frame):
            self._last = frame
            self._first = self._first or frame

    def _give_up(self) -> None:
        """Stop reading, and estimate the rest."""
        if self._framer is not None:
            size, frames, least = self._sizes
            self._sizes = size + self._framer.waiting, frames, least
        self._framer = None
        self._first = self._last = b""
        self._share.hold(0)

    @property
    def weight(self) -> int:
        """The most bytes that `usage` may parse, for `off_loop.run`."""
        waiting = 0 if self._framer is None else self._framer.waiting
        return waiting + len(self._first) + len(self._last)

    def usage(self) -> Tokens | None:
        """Return the cost of the answer; None if there was no answer, or if this was called before."""
        if self._framer is not None and (rest := self._framer.flush()):
            self._take(rest)
        marked = [frame for frame in dict.fromkeys((self._first, self._last)) if frame]
        payloads = [payload for frame in marked if (payload := self._payload(frame)) is not None]
        found = self._counts.read(payloads) if payloads else None
        size, frames, least = self._sizes
        self._intake = self._framer = None
        self._first = self._last = b""
        self._sizes = (0, 0, 0)
        self._share.close()
        if found is not None or not size:
            return found
        said = size if self._form is WHOLE else size - frames * least
        read, written = self._request // CHARS_PER_TOKEN, max(said, frames) // CHARS_PER_TOKEN
        return Tokens(read, 0, written, estimated=read + written)

    def _payload(self, frame: bytes) -> Payload | None:
        try:
            return self._form.payload(frame)
        except NotJSON:
            return None


class MeteredApp:
    """An app whose answers are metered and paid for by an account."""

    __slots__ = ("_app", "_paid")

    def __init__(self, app: ASGIApp, paid: Paid) -> None:
        self._app = app
        self._paid = paid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        call = _MeteredCall(self._paid, send)
        try:
            await self._app(scope, receive, call.send)
        finally:
            with self._paid.stage:
                self._paid.pay(call.meter.usage())
            with anyio.CancelScope(shield=True):  # count the cost even if the client leaves
                await self._paid.settle_rest()


class _MeteredCall:
    """The `send` of one call of an app."""

    __slots__ = ("_paid", "_send", "meter")

    def __init__(self, paid: Paid, send: Send) -> None:
        self.meter = paid.meter()
        self._paid = paid
        self._send = send

    def send(self, message: Message) -> Awaitable[None]:
        """Take a message, and pass it on."""
        kind = message["type"]
        with self._paid.stage:
            if kind == START:
                self.meter.begin(message)
            elif kind == BODY:
                self.meter.feed(message)
        if kind == BODY and not message.get("more_body"):
            return self._end(message)
        return self._send(message)

    async def _end(self, message: Message) -> None:
        """Pay before the last message is sent, because the client may send its next request right after."""
        with self._paid.stage:
            self._paid.pay(await off_loop.run(self.meter.usage, self.meter.weight))
        await self._send(message)
