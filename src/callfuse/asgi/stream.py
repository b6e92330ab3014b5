"""Send one answer to the client: its start, bytes in order, heartbeats, and the final message.

If heartbeats may come from another task than the app's (`shared`), both take one lock to keep the order.
"""

import anyio

from callfuse.asgi.headers import BODY_BOUND, read, without
from callfuse.asgi.types import Message, Send


class ClientStream:
    """The client's stream. The start of a whole answer waits for its body, unless leading blanks are sent first
    (`lead`). The start of a stream is sent at once.

    `last_sent`: time of the last bytes, in seconds of the event loop (only while `shared`). `closed`: the final message
    was sent; `is_cut`: before the app's end of the answer. `has_begun`: the start was sent; `has_said`: more of the
    body than white space was sent. `ahead`: white space that was sent, but will come again in `write`.
    """

    def __init__(self, send: Send) -> None:
        self.last_sent = 0.0
        self.shared = False
        self.closed = self.is_cut = self.has_begun = self.has_said = False
        self.ahead = b""
        self._send = send
        self._start: Message | None = None
        self._lock = anyio.Lock()

    async def start(self, message: Message, *, at_once: bool) -> None:
        """Take the start of the answer. `at_once`: send it now, without headers that depend on the exact bytes."""
        kept = {**message, "headers": without(message.get("headers") or (), BODY_BOUND)}
        if at_once:
            await self._send_start(kept)
        else:
            self._start = message

    async def lead(self, blanks: bytes) -> None:
        """Send the white space before a whole answer, after its start without headers that depend on the body."""
        if self._start is not None:
            await self.start(self._start, at_once=True)
        await self.write(blanks)

    async def _send_start(self, message: Message) -> None:
        self._start, self.has_begun = None, True
        await self._send(message)

    async def abandon(self, out: bytes) -> None:
        """Send the start of an answer that broke off, if it waits, and the held bytes, but no end."""
        if self._start is not None:
            await self._send_start(self._start)
        await self.write(out)

    async def pass_on(self, message: Message) -> None:
        """Send any other message: trailers, a file to send, or an extension of the server."""
        if self._start is not None:
            await self._send_start(self._start)
        await self._send(message)

    def drop(self) -> None:
        """Drop further messages, because the answer is over."""
        self._send = _nowhere

    async def write(self, out: bytes, *, final: bool = False, action: str = "") -> None:
        """Send bytes of the body; `final` ends it. `action`: the value of `x-callfuse-action` for a changed whole
        answer."""
        if self.closed or not (out or final):
            return
        if not self.shared:
            await self._write(out, final=final, action=action)
            return
        async with self._lock:
            if not self.closed:  # checked again: the answer may have ended meanwhile
                self.last_sent = anyio.current_time()
                await self._write(out, final=final, action=action)

    async def _write(self, out: bytes, *, final: bool, action: str) -> None:
        if self._start is not None:
            await self._send_start(_start_of(self._start, out if final else None, action))
        if self.ahead and out:
            out, self.ahead = _behind(self.ahead, out), b""
        self.closed = final
        self.has_said = self.has_said or not out.isspace()
        await self._send({"type": "http.response.body", "body": out, "more_body": not final})


async def _nowhere(_message: Message) -> None:
    """Drop a message, because the answer is over."""


def _behind(blanks: bytes, out: bytes) -> bytes:
    """Return the bytes to send after their leading white space was sent. If they do not begin with it, begin a new
    line, because an event whose first line begins with spaces is invalid."""
    return out[len(blanks) :] if out.startswith(blanks) else b"\n" + out


def _start_of(message: Message, body: bytes | None, action: str) -> Message:
    """Return the start of a whole answer: the original if the body is unchanged, else with a new content length."""
    declared = read(message).get(b"content-length")
    if not action and (body is None or declared in (None, str(len(body)).encode())):
        return message
    headers = without(message.get("headers") or (), BODY_BOUND)
    if body is not None:
        headers.append((b"content-length", str(len(body)).encode()))
    if action:
        headers.append((b"x-callfuse-action", action.encode()))
    return {**message, "headers": headers}
