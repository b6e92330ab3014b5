"""Read a request's body once, up to a limit, and replay it, unchanged or replaced, to each call of the app.

The body is replayed in one message, because each further message would take 200 bytes. After the body, calls get
messages from the host's `receive`. A disconnect is repeated to every later call.
"""

import math
from collections.abc import Awaitable
from typing import Final

import anyio

from callfuse.asgi.budget import ByteBudget, Share
from callfuse.asgi.silence import Waiting
from callfuse.asgi.types import Message, Receive

MOST_PAUSES: Final = 10
"""How long a body may take, in multiples of the longest pause: meanwhile its bytes count towards the common limit."""


class RequestBody:
    """Reads and replays the messages of one request.

    `content`: the whole body; None if it was not read completely (too long, or the client left). Then `replay` gives
    the part that was read, followed by the rest. `gone`: the client disconnected before the end of the answer;
    `answered`: the answer was sent completely, after which servers report a disconnect, too. `unread`: why the body was
    not read completely. `share`: counts the request's bytes in memory.
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
        """Read the body. Stops early if it is longer than `limit` bytes, there is no memory left for it, the client
        disconnects, no message arrives for `pause_s` seconds, or the whole body takes ten times `pause_s`."""
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
        """Keep the bytes read so far as one message."""
        self._begin.clear()
        self._messages.insert(0, {"type": "http.request", "body": body, "more_body": more})

    def replay(self, content: bytes | None = None) -> Receive:
        """Return a `receive` that gives the body (`content`, or the original), then the host's further messages."""
        messages = self._messages[::-1]
        if content is not None:
            messages = [{"type": "http.request", "body": content, "more_body": False}]
        self._to_give.append(messages)
        return _Replay(self, messages).receive

    def release(self) -> None:
        """Drop the body. Earlier results of `replay` keep the messages that they still have to give."""
        self.content = None
        self._messages = []

    def pass_on(self) -> Receive:
        """Return `replay()` for an exchange that keeps nothing of its request, whose bytes count no longer."""
        self.share.drop_request()
        return self.replay()

    def close(self) -> None:
        """Drop the body, also from every `receive`, because the exchange is over. So an app that keeps a `receive`, or
        an exception whose traceback refers to one, keeps no body alive."""
        self.release()
        for messages in self._to_give:
            messages.clear()
        self._to_give = []
        self.share.close()

    def hang_up(self) -> None:
        """Report a disconnect to the app, although the client is still connected: in each waiting `receive`, and in
        later ones."""
        self._is_over = True
        for scope in self._waiting:
            scope.cancel()

    async def next(self) -> Message:
        """Return the next message after the body, or a disconnect if the client has left or `hang_up` was called."""
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
        """Return the next message. It is removed only when this runs, so that a cancelled `receive` loses none."""
        return self._messages.pop() if self._messages else await self._body.next()
