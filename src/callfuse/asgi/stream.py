"""Sends one answer to the client: its start, bytes in order, heartbeats, and the final message.

Once heartbeats may be sent beside the app's task (`shared`), both take one lock, so that the stream stays in order.
"""

import anyio

from callfuse.asgi.headers import BODY_BOUND, read, without
from callfuse.asgi.types import Message, Send


class ClientStream:
    """The client's stream. The start of a whole answer waits for its body, unless blanks come before that (`begin`);
    the start of a stream is sent at once.

    `last_sent`: time of the last bytes, in seconds of the event loop (only while `shared`). `closed`: the final message
    is sent; `is_cut`: before the app has come to it. `has_said`: more of the body than white space has left.
    """

    def __init__(self, send: Send) -> None:
        self.last_sent = 0.0
        self.shared = False
        self.closed = self.is_cut = self.has_said = False
        self._send = send
        self._start: Message | None = None
        self._lock = anyio.Lock()

    async def start(self, message: Message, *, at_once: bool) -> None:
        """Take the start of the answer. `at_once`: send it now, without headers that depend on the exact bytes."""
        kept = {**message, "headers": without(message.get("headers") or (), BODY_BOUND)}
        if at_once:
            await self._send(kept)
        else:
            self._start = message

    async def begin(self) -> None:
        """Send the start that waits before the body is known, without headers that depend on it."""
        start, self._start = self._start, None
        if start is not None:
            await self.start(start, at_once=True)

    async def abandon(self, out: bytes) -> None:
        """The answer broke off: send its start, if that waits, and what was held, but no end."""
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self.write(out)

    async def pass_on(self, message: Message) -> None:
        """Send a message that is not a body part: trailers, a file to send, or a server's extension."""
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self._send(message)

    async def write(self, out: bytes, *, final: bool = False, action: str = "") -> None:
        """Send bytes of the body; `final` ends it. `action`: the value of `x-callfuse-action` for a whole answer that
        was changed."""
        if self.closed or not (out or final):
            return
        if not self.shared:
            await self._write(out, final=final, action=action)
            return
        async with self._lock:
            if not self.closed:  # again: the answer may have ended while this waited
                self.last_sent = anyio.current_time()
                await self._write(out, final=final, action=action)

    async def _write(self, out: bytes, *, final: bool, action: str) -> None:
        if self._start is not None:
            await self._send(_start_of(self._start, out if final else None, action))
            self._start = None
        self.closed = final
        self.has_said = self.has_said or not out.isspace()
        await self._send({"type": "http.response.body", "body": out, "more_body": not final})


def _start_of(message: Message, body: bytes | None, action: str) -> Message:
    """The start of a whole answer: as it came if the body is unchanged, else with a new content length."""
    declared = read(message).get(b"content-length")
    if not action and (body is None or declared in (None, str(len(body)).encode())):
        return message
    headers = without(message.get("headers") or (), BODY_BOUND)
    if body is not None:
        headers.append((b"content-length", str(len(body)).encode()))
    if action:
        headers.append((b"x-callfuse-action", action.encode()))
    return {**message, "headers": headers}
