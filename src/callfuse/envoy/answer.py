"""Carry an exchange's answer from the vendor behind Envoy to the middleware, and from there to the client."""

from collections.abc import Awaitable
from typing import Any

from callfuse.asgi.types import Headers, Message, Send
from callfuse.envoy import messages
from callfuse.envoy.channel import Inbox, Replies


class EnvoyAnswer:
    """The answer of one exchange. `inbox`: the messages of the vendor's answer.

    If the middleware sends an answer before the vendor's has arrived, it is callfuse's own, and Envoy gives it to the
    client.
    """

    __slots__ = ("_came", "_ends_with", "_own", "_replies", "inbox")

    def __init__(self, replies: Replies) -> None:
        self.inbox = Inbox()
        self._replies = replies
        self._came: Headers | None = None
        self._ends_with = "body"
        self._own: list[Message] = []

    def take(self, message: Any) -> Awaitable[bool]:
        """Take a message of the vendor's answer. Returns False if nothing reads it."""
        return self.inbox.put(message)

    async def pass_to(self, send: Send) -> None:
        """Give the vendor's answer to the middleware."""
        message = await self.inbox.get()
        if message is None:
            return
        self._replies.owe(message)
        self._came = messages.headers_of(message.response_headers)
        await send(messages.start_of(self._came))
        if message.response_headers.end_of_stream:
            self._ends_with = "headers"
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        more = True
        while more and (message := await self.inbox.get()) is not None:
            body = message.response_body
            if message.HasField("response_trailers"):
                self._ends_with = "trailers"
            more = message.HasField("response_body") and not body.end_of_stream
            await send({"type": "http.response.body", "body": body.body, "more_body": more})

    async def send(self, message: Message) -> bool:
        """Send a message of the client's answer. Returns whether it was the last one."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if self._came is None:
            self._own.append(message)
            if is_last:
                body = b"".join(one.get("body") or b"" for one in self._own)
                await self._replies.send([messages.own_answer(self._own[0], body)])
        elif message["type"] == "http.response.start":
            await self._replies.send([messages.start_reply(self._came, message)])
        elif message["type"] == "http.response.body" and self._ends_with != "headers":
            await self._send_body(bytes(message.get("body") or b""), is_last=is_last)
        return is_last

    async def _send_body(self, body: bytes, *, is_last: bool) -> None:
        has_trailers = self._ends_with == "trailers"
        await self._replies.send(messages.chunk_replies("response", body, final=is_last and not has_trailers))
        if is_last and has_trailers:
            await self._replies.send([messages.trailers_reply("response")])
