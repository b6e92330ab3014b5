"""Reads a request's body once, up to a limit, and replays it, as it came or replaced, to each call of the app.

After the body, calls get messages from the host's `receive`. A disconnect is repeated to every later call.
"""

import zlib
from collections.abc import Awaitable, Callable
from importlib import import_module

from callfuse.asgi.types import Message, Receive

_ZSTD_STEP = 256
"""Bytes that are decompressed at once: zstandard's decompressobj has no output limit, so a bomb overshoots by one
step."""


class RequestBody:
    """The messages of one request.

    `content`: the whole body; None if it was not read to its end (too long, or the client left). Then `replay` gives
    what was read, followed by the rest. `gone`: the client has disconnected.
    """

    __slots__ = ("_messages", "_receive", "_to_give", "content", "gone")

    def __init__(self, receive: Receive) -> None:
        self.content: bytes | None = None
        self.gone = False
        self._receive = receive
        self._messages: list[Message] = []
        self._to_give: list[list[Message]] = []

    async def read(self, limit: int) -> None:
        """Read the body; stops early if it is longer than `limit` bytes or the client disconnects."""
        size = 0
        while True:
            message = await self._receive()
            self._messages.append(message)
            if message["type"] != "http.request":
                self.gone = message["type"] == "http.disconnect"
                return
            part = message.get("body") or b""
            size += len(part)
            if size > limit:
                return
            if not message.get("more_body"):
                whole = len(part) == size
                self.content = part if whole else b"".join([one.get("body") or b"" for one in self._messages])
                return

    def replay(self, content: bytes | None = None) -> Receive:
        """A `receive` that gives the body (`content` if given, else as it came), then the host's further messages."""
        messages = self._messages[::-1]
        if content is not None:
            messages = [{"type": "http.request", "body": content, "more_body": False}]
        self._to_give.append(messages)
        return _Replay(self, messages).receive

    def release(self) -> None:
        """Drop the body. A `receive` made before keeps what it still has to give."""
        self.content = None
        self._messages = []

    def close(self) -> None:
        """The exchange is over: drop the body, and what any `receive` still has to give of it. An app that keeps a
        `receive`, or an exception whose traceback refers to one, then keeps no body alive."""
        self.release()
        for messages in self._to_give:
            messages.clear()
        self._to_give = []

    async def next(self) -> Message:
        """The next message after the body; a disconnect once it has been seen."""
        if self.gone:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        return message


class _Replay:
    __slots__ = ("_body", "_messages")

    def __init__(self, body: RequestBody, last_first: list[Message]) -> None:
        self._body = body
        self._messages = last_first

    def receive(self) -> Awaitable[Message]:
        return self._pop() if self._messages else self._body.next()

    async def _pop(self) -> Message:
        """Pops only when awaited, so that a cancelled call of `receive` loses no message."""
        return self._messages.pop() if self._messages else await self._body.next()


class UnreadableBodyError(ValueError):
    """The content encoding is unknown or broken, or the decoded body is over the limit."""


def decode(content: bytes, encoding: str, limit: int) -> bytes:
    """Decode a body with this `content-encoding` header, to at most `limit` bytes. Raises UnreadableBodyError."""
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        decoder = _DECODERS.get(name)
        if decoder is None:
            raise UnreadableBodyError(f"content-encoding {name}")
        try:
            content = decoder(content, limit)
        except (zlib.error, ValueError) as error:
            raise UnreadableBodyError(f"content-encoding {name}: {error}") from None
        if len(content) > limit:
            raise UnreadableBodyError(f"content-encoding {name}: over the limit")
    return content


def _gunzip(content: bytes, limit: int) -> bytes:
    return _inflate(content, limit, gzip_or_zlib=True)


def _inflate(content: bytes, limit: int, *, gzip_or_zlib: bool = False) -> bytes:
    """Decompress zlib's formats, and raw deflate streams, which some clients send as `deflate`."""
    form = 15 + 32 if gzip_or_zlib or content[:1] == b"\x78" else -15
    out = b""
    while content and len(out) <= limit:
        stream = zlib.decompressobj(form)
        out += stream.decompress(content, limit + 1 - len(out))
        if len(out) <= limit and not stream.eof:
            raise UnreadableBodyError("cut off")
        content = stream.unused_data
    return out


def _unzstd(content: bytes, limit: int) -> bytes:
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        raise UnreadableBodyError("zstd needs the package zstandard") from None
    out = bytearray()
    stream = zstandard.ZstdDecompressor().decompressobj()
    at = 0
    try:
        while at < len(content) and len(out) <= limit:
            if stream.eof:
                stream = zstandard.ZstdDecompressor().decompressobj()
            step = content[at : at + _ZSTD_STEP]
            out += stream.decompress(step)
            at += len(step) - len(stream.unused_data)
    except zstandard.ZstdError as error:
        raise UnreadableBodyError(str(error)) from None
    if len(out) <= limit and not stream.eof:
        raise UnreadableBodyError("cut off")
    return bytes(out)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "identity": lambda content, _: content,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "zstd": _unzstd,
}
