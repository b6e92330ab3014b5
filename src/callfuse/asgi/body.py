"""Reads a request's body once, up to a limit, and replays it, as it came or replaced, to each call of the app.

The same bytes are replayed, in one message: a body in many small ones would take 200 bytes for each. After the body,
calls get messages from the host's `receive`. A disconnect is repeated to every later call.
"""

import math
from collections.abc import Awaitable
from typing import Final

import anyio

from callfuse.asgi.budget import ByteBudget, Share
from callfuse.asgi.silence import Waiting
from callfuse.asgi.types import Message, Receive

MOST_PAUSES: Final = 10
"""What a whole body may take, in pauses of the longest length: what is kept of it counts for others all the while."""


class RequestBody:
    """Reads and replays the messages of one request.

    `content`: the whole body; None if it was not read to its end (too long, or the client left). Then `replay` gives
    what was read, followed by the rest. `gone`: the client has disconnected before the answer's end; `answered`: the
    answer was sent to its end, after which servers report a disconnect, too. `unread`: why the body was not read to its
    end. `share`: counts the bytes that are kept of the request.
    """

    __slots__ = (
        "_begin",
        "_is_over",
        "_messages",
        "_receive",
        "_to_give",
        "_waiting",
        "answered",
        "content",
        "gone",
        "share",
        "unread",
    )

    def __init__(self, receive: Receive, share: Share | None = None) -> None:
        self.content: bytes | None = None
        self.gone = self.answered = self._is_over = False
        self.unread = ""
        self.share = share or ByteBudget().open()
        self._receive = receive
        self._begin = bytearray()
        self._messages: list[Message] = []
        self._to_give: list[list[Message]] = []
        self._waiting: list[anyio.CancelScope] = []

    async def read(self, limit: int, pause_s: float = math.inf) -> None:
        """Read the body. Stops early if it is longer than `limit` bytes, the share is used up, the client disconnects,
        nothing comes for `pause_s` seconds, or the whole takes ten times as long."""
        try:
            async with Waiting(pause_s, MOST_PAUSES * pause_s) as waiting:
                while self._take(await self._receive(), limit):
                    waiting.renew()
        finally:
            if self._begin:
                self._keep(bytes(self._begin), more=True)
        if waiting.is_over:
            self.unread = "read_timeout_s"

    def _take(self, message: Message, limit: int) -> bool:
        """Take a message. Returns whether to read the next one."""
        if message["type"] != "http.request":
            self._messages.append(message)
            self.gone = message["type"] == "http.disconnect"
            self.unread = "disconnect" if self.gone else "protocol"
            return False
        begin, part, more = self._begin, message.get("body") or b"", bool(message.get("more_body"))
        if len(begin) + len(part) > limit:
            self.unread = "max_request_bytes"
        elif not self.share.add(len(part)):
            self.unread = "max_total_bytes"
        if more and not self.unread:
            begin += part
            return True
        part = b"".join((begin, part)) if begin else part
        self._keep(part, more=more)
        if not self.unread:
            self.content = part
        return False

    def _keep(self, body: bytes, *, more: bool) -> None:
        """Keep what was read of the body as one message."""
        self._begin.clear()
        self._messages.insert(0, {"type": "http.request", "body": body, "more_body": more})

    def replay(self, content: bytes | None = None) -> Receive:
        """Return a `receive` that gives the body (`content`, or as it came), then the host's further messages."""
        messages = self._messages[::-1]
        if content is not None:
            messages = [{"type": "http.request", "body": content, "more_body": False}]
        self._to_give.append(messages)
        return _Replay(self, messages).receive

    def release(self) -> None:
        """Drop the body. A `receive` made before keeps what it still has to give."""
        self.content = None
        self._messages = []

    def pass_on(self) -> Receive:
        """Return `replay()` for an exchange that keeps nothing of its request: the bytes read count no longer."""
        self.share.drop_request()
        return self.replay()

    def close(self) -> None:
        """Drop the body, and what any `receive` still has to give of it: the exchange is over. An app that keeps a
        `receive`, or an exception whose traceback refers to one, then keeps no body alive."""
        self.release()
        for messages in self._to_give:
            messages.clear()
        self._to_give = []
        self.share.close()

    def hang_up(self) -> None:
        """Report a disconnect to the app, though the client is still there: in each `receive` that waits, and from now
        on."""
        self._is_over = True
        for scope in self._waiting:
            scope.cancel()

    async def next(self) -> Message:
        """Return the next message after the body; a disconnect once the client has left or the app was hung up on."""
        message: Message = {"type": "http.disconnect"}
        if self.gone or self._is_over:
            return message
        with anyio.CancelScope() as scope:
            self._waiting.append(scope)
            try:
                message = await self._receive()
            finally:
                self._waiting.remove(scope)
        if scope.cancelled_caught:
            return message
        if message["type"] == "http.disconnect":
            self._is_over, self.gone = True, not self.answered
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
