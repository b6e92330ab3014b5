"""The request's body on its way to the upstream.

In: the first ASGI message of a request, and `receive` for the rest. Out: what aiohttp sends. A body that has come whole
goes as it is and can be sent again; one that still comes is passed on message by message, and nothing of it is kept.
"""

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from callfuse.proxy.asgi import Message
from callfuse.proxy.departure import Departure

SLICE_BYTES = 64 * 1024


class Upload(Payload):
    """A body that is still coming, or is too long to write in one go."""

    _autoclose = True  # it holds nothing that must be closed

    def __init__(self, first: bytes, *, more: bool, client: Departure, stall_timeout_s: float) -> None:
        super().__init__(first, content_type=None)
        self._size = None if more else len(first)
        self._first = first
        self._more = more
        self._client = client
        self._stall_timeout_s = stall_timeout_s

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The part that has come, as text: aiohttp asks for it nowhere on our way."""
        return self._first.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body as it comes. An upstream that stops reading is given up after the idle timeout."""
        if self._consumed:
            raise RuntimeError("a request body that came in parts cannot be sent twice")
        self._consumed = more = self._more
        await self._put(writer, self._first)
        while more:
            message = await self._client.receive()
            if message["type"] == "http.disconnect":
                self._client.left()
                raise ConnectionResetError("the client left in the middle of its request")
            more = message.get("more_body", False)
            await self._put(writer, message.get("body", b""))
        if self._more:
            self._client.listen()
        async with asyncio.timeout(self._stall_timeout_s):
            await writer.drain()

    async def _put(self, writer: AbstractStreamWriter, body: bytes) -> None:
        view = memoryview(body)
        for start in range(0, len(body), SLICE_BYTES):
            async with asyncio.timeout(self._stall_timeout_s):
                await writer.write(view[start : start + SLICE_BYTES])


def outgoing(first: Message, client: Departure, stall_timeout_s: float) -> bytes | Upload | None:
    """What to send, and from when on to listen for the client's leaving: the end of its request."""
    body: bytes = first.get("body", b"")
    more: bool = first.get("more_body", False)
    if not more:
        client.listen()
    if not more and len(body) <= SLICE_BYTES:
        return body or None
    return Upload(body, more=more, client=client, stall_timeout_s=stall_timeout_s)


def replayable(body: bytes | Upload | None) -> bool:
    """Whether the body can be sent a second time."""
    return not isinstance(body, Upload) or body.size is not None
