"""Pass an MCP server's answer to the client, and let callers change the JSON-RPC messages in it.

A whole answer (`application/json`) waits until it is complete, within limits. In a stream (`text/event-stream`), each
event is sent as soon as its last byte has arrived. All other answers, and those that are too long or compressed, pass
unchanged.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from callfuse.asgi.answer import BODY, START, is_success
from callfuse.asgi.budget import Share
from callfuse.asgi.headers import read, without
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Message, Send
from callfuse.wire import sse
from callfuse.wire.sse import SSEFramer

Rewrite = Callable[[bytes], Awaitable[bytes]]
"""Gets the data of one event, or a whole body, and returns its replacement. Never raises."""
STREAM: Final = b"text/event-stream"
JSON: Final = b"application/json"
_OF_BODY: Final = frozenset({b"content-type", b"content-length"})
_OK: Final = 200
_WITHOUT_BODY: Final = frozenset({202, 204})
"""Statuses for messages that get no response."""


class AppAnswer:
    """The app's answer to one request. `take` is the app's `send`.

    `extra`: callfuse's own responses, which are added to those of a successful answer. `limit`: the most bytes of a
    whole answer, or of an event, that are kept. `status`: 0 until the answer has begun. `unread`: why the answer passes
    unread; empty if it is read. `has_ids`: its events have ids, so it may continue in another answer. `complete`: its
    end was sent.
    """

    def __init__(self, send: Send, rewrite: Rewrite, share: Share, limit: int, extra: Sequence[bytes] = ()) -> None:
        self.status = 0
        self.unread = ""
        self.has_ids = self.complete = False
        self._send = send
        self._rewrite = rewrite
        self._share = share
        self._limit = limit
        self._extra = extra
        self._client = ClientStream(send)
        self._framer: SSEFramer | None = None
        self._whole: bytearray | None = None

    async def take(self, message: Message) -> None:
        """Take a message of the app. Raises only exceptions of the server's `send`."""
        kind = message["type"]
        if kind == START:
            await self._start(message)
            return
        if kind == BODY:
            final = not message.get("more_body", False)
            self.complete |= final
            if self._framer is not None:
                await self._take_events(self._framer, message.get("body") or b"", final=final)
                return
            if self._whole is not None:
                await self._take_part(self._whole, message.get("body") or b"", final=final)
                return
        elif self._whole is not None and not self.complete:  # for example, a file that the server sends
            self._whole, self.unread = None, str(kind)
            await self._client.pass_on(message)
            return
        await self._send(message)

    async def _start(self, message: Message) -> None:
        found = read(message)
        self.status = int(message["status"])
        content_type = found.get(b"content-type", b"").partition(b";")[0].strip().lower()
        is_json = content_type.endswith((b"/json", b"+json"))
        if not (is_success(message) and (is_json or content_type == STREAM or self.status in _WITHOUT_BODY)):
            self._extra = ()  # refused clients get no responses of ours, and errors stay unchanged
        if found.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
            self.unread = "content-encoding"
        elif content_type == STREAM:
            self._framer = SSEFramer()
            await self._client.start(message, at_once=True)
            if self._extra:
                events = [sse.event(one, "message") for one in self._extra]
                await self._client.write(b"".join(events))
            return
        elif is_json or self._extra:
            self._whole = bytearray()
            await self._client.start(self._start_of_batch(message), at_once=False)
            return
        else:
            self.unread = "content-type"
        await self._send(message)

    def _start_of_batch(self, message: Message) -> Message:
        """Return the start of a whole answer. It is changed if the answer is successful and callfuse adds responses."""
        if not self._extra:
            return message
        headers = [*without(message.get("headers") or (), _OF_BODY), (b"content-type", JSON)]
        return {**message, "status": _OK, "headers": headers}

    async def _take_events(self, framer: SSEFramer, chunk: bytes, *, final: bool) -> None:
        pieces = [await self._event(frame) for frame in framer.feed(chunk)]
        if final or framer.waiting > self._limit or not self._share.hold(framer.waiting):
            pieces.append(framer.flush())
            if not final:
                self._framer, self.unread = None, "max_response_bytes"
        await self._client.write(b"".join(pieces), final=final)

    async def _event(self, frame: bytes) -> bytes:
        data = sse.data(frame)
        self.has_ids |= b"id:" in frame[:64] or b"\nid:" in frame
        if not data:
            return frame
        written = await self._rewrite(data)
        return frame if written is data else sse.with_data(frame, written)

    async def _take_part(self, whole: bytearray, part: bytes, *, final: bool) -> None:
        whole += part
        if len(whole) > self._limit or not self._share.hold(len(whole)):
            self._whole, self.unread = None, "max_response_bytes"
            await self._client.write(bytes(whole), final=final)
            return
        if not final:
            return
        body = bytes(whole)
        whole.clear()
        written = await self._rewrite(body)
        await self._client.write(self._with_extra(written), final=True)

    def _with_extra(self, body: bytes) -> bytes:
        """Add callfuse's own responses to a batch."""
        if not self._extra:
            return body
        inner = body.strip()
        if inner[:1] == b"[" and inner[-1:] == b"]":
            inner = inner[1:-1].strip()
        return b"[" + b",".join([one for one in (inner, *self._extra) if one]) + b"]"

    async def abandon(self) -> None:
        """Send the kept bytes unchanged, because the app has ended before its answer."""
        if self.complete or not self.status:
            return
        if self._framer is not None:
            await self._client.abandon(self._framer.flush())
        elif self._whole is not None:
            await self._client.abandon(bytes(self._whole))

    def close(self) -> None:
        """End the exchange: drop all references to it, because frames of the app may refer to `take` for longer."""
        self._rewrite = _keep
        self._whole = self._framer = None
        self._extra = ()


async def _keep(data: bytes) -> bytes:
    return data
