"""Carry an exchange's request from Envoy to the middleware, and from there to the vendor."""

from collections.abc import AsyncIterator
from typing import Any

from callfuse.asgi.types import Message, Receive, Scope
from callfuse.envoy import messages
from callfuse.envoy.channel import Inbox, Replies


class EnvoyRequest:
    """The request of one exchange. `first`: the stream's first message, with its headers. `inbox`: the messages of its
    body."""

    __slots__ = ("_body", "_came", "_ends_with_trailers", "_has_body", "_is_read", "_replies", "inbox")

    def __init__(self, first: Any, replies: Replies) -> None:
        self.inbox = Inbox()
        self._replies = replies
        self._came = messages.headers_of(first.request_headers)
        self._has_body = not first.request_headers.end_of_stream
        self._is_read = not self._has_body
        self._ends_with_trailers = False
        self._body = b""

    @property
    def scope(self) -> Scope:
        """Return the request's scope, a new one each time."""
        return messages.scope_of(self._came)

    async def begin(self) -> None:
        """Reply to the headers, if Envoy waits for that before it sends the body."""
        if self._replies.buffers and self._has_body:
            await self._replies.send([messages.headers_reply("request")])

    async def take(self, message: Any) -> bool:
        """Take a message after the headers. Returns False if nothing reads it."""
        if self._replies.buffers and message.HasField("request_trailers"):
            await self._replies.send([messages.trailers_reply("request")])
            return True
        return await self.inbox.put(message)

    async def receive(self) -> Message | None:
        """Return the next part of the body; None if there is none."""
        message = None if self._is_read else await self.inbox.get()
        if message is None:
            return None
        self._replies.owe(message)
        self._ends_with_trailers = message.HasField("request_trailers")
        self._is_read = self._ends_with_trailers or self._replies.buffers or message.request_body.end_of_stream
        if self._is_read:  # Envoy may send the end of a long body twice
            self.inbox.end()
        self._body = message.request_body.body
        return {"type": "http.request", "body": self._body, "more_body": not self._is_read}

    async def send_on(self, scope: Scope, receive: Receive) -> None:
        """Send the request to the vendor, with the middleware's changes."""
        changes = messages.mutation(self.scope["headers"], scope["headers"])
        if self._replies.buffers and self._has_body:
            body = b"".join([part async for part, _ in _parts(receive)])
            replaced, self._body = None if body == self._body else body, b""
            await self._replies.send([messages.buffered_reply("request", replaced, changes)])
            return
        await self._replies.send([messages.headers_reply("request", changes)])
        if self._has_body:
            await self._stream_on(receive)

    async def _stream_on(self, receive: Receive) -> None:
        self._body = b""
        async for part, is_last in _parts(receive):
            final = is_last and not self._ends_with_trailers
            await self._replies.send(messages.chunk_replies("request", part, final=final))
        if self._ends_with_trailers:
            await self._replies.send([messages.trailers_reply("request")])


async def _parts(receive: Receive) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the parts of a body, each with whether it is the last one, until its end or a disconnect."""
    is_last = False
    while not is_last:
        message = await receive()
        if message["type"] != "http.request":
            return
        is_last = not message.get("more_body")
        yield message.get("body") or b"", is_last
