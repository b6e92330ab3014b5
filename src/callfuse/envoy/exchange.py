"""Turn one stream of Envoy into one ASGI exchange.

Envoy sends the parts of the request, and then of the vendor's answer. The middleware calls `receive` and `send`. Its
first call of the app is `vendor`, which forwards the request and returns the answer.

    the client -> Envoy -> take -> receive -> middleware -> vendor -> reply -> Envoy -> the vendor
    the vendor -> Envoy -> take -> vendor  -> middleware -> send   -> reply -> Envoy -> the client
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.envoy.answer import EnvoyAnswer
from callfuse.envoy.channel import Replies, StreamOverError, Write
from callfuse.envoy.request import EnvoyRequest

STATE: Final = "callfuse.envoy"
"""The key of an exchange in the `state` of its scope."""


class EnvoyExchange:
    """An HTTP request that Envoy serves. `first`: the first message of the stream, with the request's headers. `write`
    sends a reply, and raises StreamOverError if it cannot."""

    __slots__ = ("_answer", "_is_asked", "_is_unguarded", "_over", "_replies", "_request")

    def __init__(self, first: Any, write: Write) -> None:
        self._replies = Replies(first, write)
        self._request = EnvoyRequest(first, self._replies)
        self._answer = EnvoyAnswer(self._replies)
        self._over = asyncio.Event()
        self._is_asked = self._is_unguarded = False

    async def take(self, message: Any) -> None:
        """Take a message of Envoy after the first one. Waits while too many are unread."""
        side = self._request if message.WhichOneof("request").startswith("request") else self._answer
        if not await side.take(message) and self._is_unguarded:
            await self._replies.send_unchanged([message])

    def end(self) -> None:
        """End the exchange, because its client has the answer, or has gone."""
        self._over.set()
        self._request.inbox.end()
        self._answer.inbox.end()

    async def serve(self, app: ASGIApp) -> None:
        """Call the middleware. Raises its exceptions, except for the end of the stream."""
        with suppress(StreamOverError):
            await self._request.begin()
            await app({**self._request.scope, "state": {STATE: self}}, self.receive, self.send)

    async def receive(self) -> Message:
        """Return the next part of the request's body, or a disconnect when the exchange is over."""
        message = await self._request.receive()
        if message is None:
            await self._over.wait()
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """Take a message of the client's answer from the middleware."""
        if self._over.is_set():
            raise StreamOverError
        if await self._answer.send(message):
            self.end()

    def is_first_call(self) -> bool:
        """Whether the middleware calls its app for the first time. From the second call on, Envoy's answer is not
        read."""
        is_first, self._is_asked = not self._is_asked, True
        if not is_first:
            self._answer.inbox.end()
        return is_first

    async def vendor(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Act as the app: the vendor behind Envoy. Can be called only once."""
        await self._request.send_on(scope, receive)
        await self._answer.pass_to(send)

    async def pass_unguarded(self) -> None:
        """Forward, unchanged, all messages without a reply, and all later ones."""
        self._is_unguarded = True
        await self._replies.send_unchanged([*self._request.inbox.end(), *self._answer.inbox.end()])
