"""Forward request bodies from ASGI to aiohttp.

A body that has arrived completely is sent in one piece, and can be sent again. Any other body is passed on message by
message, without keeping it. If a body was not written completely, in its declared length, the connection is closed,
because the next request on it would be read as the rest of this one.
"""

import asyncio
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from callfuse.proxy.asgi import Message
from callfuse.proxy.departure import Departure
from callfuse.proxy.failures import LATE, WRONG_LENGTH, Failure

SLICE_BYTES = 64 * 1024  # asyncio's default high-water mark: one write fills the buffer, and no more
LEAST_BYTES_PER_S: Final = 1000
"""The lowest rate at which a client may send. The slowest connections in use are ten times as fast."""


class Upload(Payload):
    """A body that is still arriving, or is too long for one write. `stall_timeout_s`: seconds for each write;
    `read_timeout_s`: seconds of waiting for the client, counted from zero again once it has sent 1,000 bytes for each
    of them. `declared`: the length in the headers. `failure`: why the client's body could not be sent."""

    _autoclose = True  # nothing to close

    def __init__(
        self,
        first: bytes,
        *,
        more: bool,
        declared: int | None,
        client: Departure,
        stall_timeout_s: float,
        read_timeout_s: float,
    ) -> None:
        super().__init__(b"", content_type=None)  # the base class would keep a body for its whole lifetime
        self._size = None if more else len(first)
        self._first = first
        self._more = more
        self._declared = declared
        self._client: Departure | None = client
        self._stall_timeout_s = stall_timeout_s
        self._read_timeout_s = self._seconds_left = read_timeout_s
        self._bytes_come = 0
        self.failure: Failure | None = None

    def drop(self) -> None:
        """Drop the body and the client, because aiohttp keeps requests in reference cycles, and this payload with
        them."""
        self._first = b""
        self._client = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the first part as text. aiohttp requires this method, but does not call it here."""
        return self._first.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body as it arrives. Raises TimeoutError if the upstream stops reading for `stall_timeout_s`, or if
        the client is too slow; ConnectionError if the body is longer or shorter than declared."""
        if self._consumed:
            raise RuntimeError("a streamed request body cannot be sent twice")
        is_whole = False
        try:
            await self._write(writer)
            is_whole = True
        finally:
            transport = writer.transport
            if not is_whole and transport is not None:
                transport.abort()

    async def _write(self, writer: AbstractStreamWriter) -> None:
        self._consumed = more = self._more
        client, left = self._client, self._declared
        body = self._first
        while True:
            if left is not None:
                left -= len(body)
                self._check(left, more=more)
            await self._put(writer, body)
            body = b""
            if not more or client is None:
                break
            message = await self._next(client)
            if message["type"] == "http.disconnect":
                client.mark_gone()
                raise ConnectionResetError("the client disconnected in the middle of its request")
            more = message.get("more_body", False)
            body = message.get("body", b"")
            del message
        if self._more and client is not None:
            client.listen()
        async with asyncio.timeout(self._stall_timeout_s):
            await writer.drain()

    async def _next(self, client: Departure) -> Message:
        """Return the client's next message. The time of the upstream's reading does not count."""
        now = asyncio.get_running_loop().time
        begun = now()
        try:
            async with asyncio.timeout(self._seconds_left):
                message = await client.receive()
        except TimeoutError:
            self.failure = LATE
            raise
        self._seconds_left -= now() - begun
        self._bytes_come += len(message.get("body", b""))
        if self._bytes_come >= LEAST_BYTES_PER_S * self._read_timeout_s:
            self._seconds_left, self._bytes_come = self._read_timeout_s, 0
        return message

    def _check(self, left: int, *, more: bool) -> None:
        """Raise ConnectionResetError if the body is longer or shorter than declared."""
        if left < 0 or (left and not more):
            self.failure = WRONG_LENGTH
            raise ConnectionResetError(WRONG_LENGTH.reason)

    async def _put(self, writer: AbstractStreamWriter, body: bytes) -> None:
        view = memoryview(body)
        for start in range(0, len(body), SLICE_BYTES):
            async with asyncio.timeout(self._stall_timeout_s):
                await writer.write(view[start : start + SLICE_BYTES])


def body_to_send(
    first: Message, declared: int | None, client: Departure, stall_timeout_s: float, read_timeout_s: float
) -> bytes | Upload | None:
    """Make the body to send from the first message, and start to listen for the disconnect once it is complete.
    `declared`: the length in the headers. Raises ValueError if the complete body has another length."""
    body: bytes = first.get("body", b"")
    more: bool = first.get("more_body", False)
    if not more:
        if declared not in (None, len(body)):
            raise ValueError(WRONG_LENGTH.reason)
        client.listen()
    if not more and len(body) <= SLICE_BYTES:
        return body or None
    return Upload(
        body,
        more=more,
        declared=declared,
        client=client,
        stall_timeout_s=stall_timeout_s,
        read_timeout_s=read_timeout_s,
    )


def is_replayable(body: bytes | Upload | None) -> bool:
    """Whether a body can be sent again, because it had arrived completely."""
    return not isinstance(body, Upload) or body.size is not None
