"""The app behind the middleware: it sends what it was told to, chunk by chunk, and records what it was asked.

In: one `Reply` a call (the last one repeats). Out: `heard`, the requests in order. Its `turn` counts the chunks
that have been delivered, over all calls; the client's side stamps what it sees with it.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from tests.support.asgi import Headers, Receive, Scope, Send

Gate = Callable[[int], Awaitable[None]]

EVENT_STREAM = b"text/event-stream; charset=utf-8"
OTHER_STREAMS = {
    "/api/chat": b"application/x-ndjson",
    "/v1beta/models/gemini-array-test:streamGenerateContent": b"application/json; charset=UTF-8",
    "/model/anthropic.claude-test/converse-stream": b"application/vnd.amazon.eventstream",
}
"""What the vendor of a path declares its streams as, where these are no server-sent events."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the app: its start, its chunks, and how it ends."""

    chunks: tuple[bytes, ...]
    status: int = 200
    headers: Headers = ((b"content-type", EVENT_STREAM), (b"x-request-id", b"req-1"))
    gate: Gate | None = None
    """Awaited before chunk k is sent; k = number of chunks before the end."""
    raises: Exception | None = None
    """Raised after the chunks, in place of the end."""
    ends: bool = True
    """Whether the last chunk is followed by an empty message that ends the body (else the last chunk ends it)."""

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.chunks)

    def cut(self, chunks: tuple[bytes, ...]) -> "Reply":
        """The same reply in other chunks."""
        return replace(self, chunks=chunks)


def whole(body: bytes, status: int = 200, *more: tuple[bytes, bytes]) -> Reply:
    """A JSON response in one message, as frameworks send it."""
    headers = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more)
    return Reply((body,), status, headers, ends=False)


def gzipped(reply: Reply) -> Reply:
    """The same reply, compressed by an app that does not ask."""
    body = gzip.compress(reply.body, mtime=0)
    return replace(reply, chunks=(body,), headers=(*reply.headers, (b"content-encoding", b"gzip")))


@dataclass(slots=True)
class Heard:
    """One request as the app got it."""

    path: str
    query: bytes
    headers: Headers
    body: bytes = b""
    disconnected: bool = False

    def header(self, name: bytes) -> bytes | None:
        """One header's value."""
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(slots=True)
class ScriptedApp:
    """An ASGI app that plays its replies in order."""

    replies: tuple[Reply, ...]
    heard: list[Heard] = field(default_factory=list)
    turn: int = 0
    cancelled: int = 0
    left: asyncio.Event | None = None
    """Set when the app is told that the client has gone, where a test asks for that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self.replies[min(len(self.heard), len(self.replies) - 1)]
        heard = Heard(scope["path"], scope["query_string"], tuple(scope["headers"]))
        self.heard.append(heard)
        heard.body = await _read(receive)
        listener = asyncio.create_task(self._listen(heard, receive)) if self.left else None
        try:
            await self._play(reply, send, OTHER_STREAMS.get(self.heard[0].path, EVENT_STREAM))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            if listener:
                listener.cancel()

    async def _listen(self, heard: Heard, receive: Receive) -> None:
        """Starlette listens for the disconnect beside its response; so does this."""
        while (await receive())["type"] != "http.disconnect":
            continue
        heard.disconnected = True
        if self.left:
            self.left.set()

    async def _play(self, reply: Reply, send: Send, stream: bytes) -> None:
        headers = [(name, stream if value == EVENT_STREAM else value) for name, value in reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        last = len(reply.chunks) - 1
        for at, chunk in enumerate(reply.chunks):
            if reply.gate:
                await reply.gate(at)
            await send({"type": "http.response.body", "body": chunk, "more_body": reply.ends or at < last})
            self.turn += 1
        if reply.gate:
            await reply.gate(len(reply.chunks))
        if reply.raises:
            raise reply.raises
        if reply.ends:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def play(*replies: Reply) -> ScriptedApp:
    """An app that plays these replies."""
    return ScriptedApp(replies)
