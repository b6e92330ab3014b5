"""The client's end of one exchange: the answer's start, bytes in order, heartbeats, and the final message.

Once a heartbeat may send beside the app's task, both go through one lock, so that the stream stays in order.
"""

import anyio

from callfuse.asgi.headers import BODY_BOUND, read, without
from callfuse.asgi.types import Message, Send


class ClientStream:
    """Sends one answer. The start of a whole answer waits for its body; that of a stream has gone out."""

    def __init__(self, send: Send) -> None:
        self.last_sent = 0.0
        self.shared = False
        self.closed = False
        self._send = send
        self._start: Message | None = None
        self._lock = anyio.Lock()

    async def start(self, message: Message, *, at_once: bool) -> None:
        """The start of the answer, without the headers that bind its bytes."""
        kept = {**message, "headers": without(message.get("headers") or (), BODY_BOUND)}
        if at_once:
            await self._send(kept)
        else:
            self._start = message

    async def abandon(self, out: bytes) -> None:
        """The answer broke off: its start, if it waits, and what was held; no end."""
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self.write(out)

    async def pass_on(self, message: Message) -> None:
        """A message that is no part of the body: trailers, a file to send, what a server's extension knows."""
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self._send(message)

    async def write(self, out: bytes, *, final: bool = False, action: str = "") -> None:
        """Bytes of the body; `final` ends it. `action` marks a whole answer that callfuse has touched."""
        if self.closed or not (out or final):
            return
        if not self.shared:
            await self._write(out, final=final, action=action)
            return
        async with self._lock:
            self.last_sent = anyio.current_time()
            await self._write(out, final=final, action=action)

    async def _write(self, out: bytes, *, final: bool, action: str) -> None:
        if self._start is not None:
            await self._send(_start_of(self._start, out if final else None, action))
            self._start = None
        self.closed = final
        await self._send({"type": "http.response.body", "body": out, "more_body": not final})


def _start_of(message: Message, body: bytes | None, action: str) -> Message:
    """The start of a whole answer: as it came where nothing was touched."""
    declared = read(message).get(b"content-length")
    if not action and (body is None or declared in (None, str(len(body)).encode())):
        return message
    headers = without(message.get("headers") or (), BODY_BOUND)
    if body is not None:
        headers.append((b"content-length", str(len(body)).encode()))
    if action:
        headers.append((b"x-callfuse-action", action.encode()))
    return {**message, "headers": headers}
