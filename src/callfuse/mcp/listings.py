"""Read lists of tools on their way to the client, and remember which tools servers declare as read-only.

A list applies only to the client that got it (`client_of`, so to the same session, if there is one). A newer list wins.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from callfuse.asgi import off_loop
from callfuse.asgi.answer import BODY, START, is_success
from callfuse.asgi.budget import Share
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.headers import read
from callfuse.asgi.types import Message, Send
from callfuse.mcp.answer import JSON, STREAM
from callfuse.mcp.messages import read_only_tools, read_responses
from callfuse.wire import sse
from callfuse.wire.jsontext import NotJSON
from callfuse.wire.sse import SSEFramer

LONGEST_LIST: Final = 1024 * 1024
"""The most bytes of an answer with a list of tools that is read: lists of 200 tools have 200 kB."""
CLIENTS_KEPT: Final = 1000
"""The most clients whose list of tools is remembered."""
TOOLS_KEPT: Final = 256
"""The most read-only tools of one client. With `CLIENTS_KEPT` this is at most 25 MB."""
_DIGEST_SIZE: Final = 16


class Listings:
    """The read-only tools of each client, by digests of their names. The least recently used client is dropped
    first."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, dict[bytes, None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def take(self, client: bytes, keys: Sequence[bytes], data: bytes) -> None:
        """Read the responses in the data of an answer: lists of tools that the client has requested under these
        keys."""
        try:
            responses = read_responses(data)
        except NotJSON:
            return
        for response in responses:
            tools = read_only_tools(response) if response.key in keys else None
            if tools:
                self._keep(client, tools)

    def _keep(self, client: bytes, tools: dict[str, bool]) -> None:
        known = self._known.setdefault(client, {})
        self._known.move_to_end(client)
        for name, is_read_only in tools.items():
            known.pop(_digest(name), None)
            if is_read_only and len(known) < TOOLS_KEPT:
                known[_digest(name)] = None
        if len(self._known) > CLIENTS_KEPT:
            self._known.popitem(last=False)

    def says_read_only(self, client: bytes, name: str) -> bool:
        """Whether a server has declared the tool as read-only to this client."""
        known = self._known.get(client)
        if known is None:
            return False
        self._known.move_to_end(client)
        return _digest(name) in known


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE).digest()


class Listing:
    """The answer to one request for a list of tools. `take` is the app's `send`: each message passes unchanged, and the
    whole answer is read after its end."""

    def __init__(self, send: Send, listings: Listings, client: bytes, keys: Sequence[bytes], share: Share) -> None:
        self._send = send
        self._listings = listings
        self._client = client
        self._keys = keys
        self._share = share
        self._body: bytearray | None = None
        self._is_stream = False

    async def take(self, message: Message, fail_open: FailOpen) -> None:
        """Pass a message on, and read it."""
        await self._send(message)
        with fail_open.stage("while reading a list of tools"):
            if message["type"] == START:
                self._start(message)
            elif message["type"] == BODY and self._body is not None:
                await self._read(self._body, message)

    def _start(self, message: Message) -> None:
        found = read(message)
        content_type = found.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._is_stream = content_type == STREAM
        is_packed = found.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity")
        if is_success(message) and (self._is_stream or content_type == JSON) and not is_packed:
            self._body = bytearray()

    async def _read(self, body: bytearray, message: Message) -> None:
        part = message.get("body") or b""
        if len(body) + len(part) > LONGEST_LIST or not self._share.hold(len(body) + len(part)):
            self._body = None
            self._share.hold(0)
            return
        body += part
        if not message.get("more_body"):
            self._body = None
            text = bytes(body)
            await off_loop.run(partial(self._take, text), off_loop.weight_of(text))

    def _take(self, text: bytes) -> None:
        for data in _events(text) if self._is_stream else [text]:
            self._listings.take(self._client, self._keys, data)


def _events(text: bytes) -> list[bytes]:
    """Return the data of the events of a stream."""
    framer = SSEFramer()
    frames = [*framer.feed(text), framer.flush()]
    return [data for frame in frames if (data := sse.data(frame))]
