"""An ASGI client that buffers nothing: it records every message in the turn in which it was sent.

In: an app and a `Request`. Out: an `Exchange`. The HTTP clients' own ASGI transports collect whole bodies, so
that they cannot show WHEN a byte left. Here `turn` is asked at each send: with a `ScriptedApp` behind, it is the
number of the upstream chunk that was being delivered, so "in the same turn" is exact, with no clock and no sleep.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON_REQUEST: Headers = (
    (b"host", b"vendor.test"),
    (b"content-type", b"application/json"),
    (b"authorization", b"Bearer key-of-the-test"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the client sends; `chunks` only where the body's cuts matter."""

    path: str
    body: bytes = b""
    headers: Headers = JSON_REQUEST
    method: str = "POST"
    query: bytes = b""
    chunks: tuple[bytes, ...] | None = None

    def scope(self) -> Scope:
        """The scope as uvicorn would build it."""
        length = (b"content-length", str(len(self.body)).encode())
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "root_path": "",
            "headers": [*self.headers, length],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }

    def messages(self) -> list[Message]:
        """The request body as ASGI messages."""
        chunks = self.chunks or (self.body,)
        last = len(chunks) - 1
        return [{"type": "http.request", "body": chunk, "more_body": at < last} for at, chunk in enumerate(chunks)]


@dataclass(slots=True)
class Exchange:
    """Everything that reached the client, in order, and how the app ended."""

    sent: list[tuple[int, Message]] = field(default_factory=list)
    raised: BaseException | None = None

    @property
    def start(self) -> Message:
        """The one `http.response.start`."""
        (start,) = [message for _, message in self.sent if message["type"] == "http.response.start"]
        return start

    @property
    def status(self) -> int:
        """The status that the client saw."""
        status: int = self.start["status"]
        return status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as they stood."""
        return [(bytes(name), bytes(value)) for name, value in self.start["headers"]]

    def header(self, name: bytes) -> bytes | None:
        """One header's value."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def body(self) -> bytes:
        """The client's concatenated bytes."""
        return self.body_by(None)

    def body_by(self, turn: int | None) -> bytes:
        """The client's bytes at the end of a turn."""
        return b"".join(
            message.get("body", b"")
            for at, message in self.sent
            if message["type"] == "http.response.body" and (turn is None or at <= turn)
        )

    def lengths(self, turns: int) -> list[int]:
        """How many bytes the client had at the end of each of the first turns."""
        found = [0] * turns
        for at, message in self.sent:
            if at < turns:
                found[at] += len(message.get("body", b""))
        return list(accumulate(found))

    @property
    def complete(self) -> bool:
        """Whether the response came to its end, once, after its start, and nothing followed."""
        kinds = [message["type"] for _, message in self.sent]
        ends = [not message.get("more_body", False) for _, message in self.sent]
        return kinds[:1] == ["http.response.start"] and ends[1:].count(True) == 1 and ends[-1]


class Watch:
    """Lets an app wait until the client has seen something, which is what "in lock-step" means."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """The client saw this."""
        self._seen += data
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, what: bytes, *, times: int = 1, limit_s: float = 20.0) -> None:
        """Return when the client has seen `what` so many times; raise TimeoutError if it never does."""
        async with asyncio.timeout(limit_s):
            while self._seen.count(what) < times:
                await self._news.wait()

    def has(self, what: bytes) -> bool:
        """Whether the client has seen this by now."""
        return what in self._seen


def _still() -> int:
    return 0


def _unwatched(_data: bytes) -> None:
    """Nobody looks."""


async def drive(
    app: App,
    request: Request,
    *,
    turn: Callable[[], int] = _still,
    on_bytes: Callable[[bytes], None] = _unwatched,
    leave: asyncio.Event | None = None,
    limit_s: float = 60.0,
) -> Exchange:
    """One exchange with the app. `leave` is the client going away; what the app raises is recorded."""
    exchange = Exchange()
    incoming = iter(request.messages())
    gone = leave or asyncio.Event()

    async def receive() -> Message:
        message = next(incoming, None)
        if message is not None:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        exchange.sent.append((turn(), dict(message)))
        on_bytes(message.get("body", b""))
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            gone.set()

    try:
        async with asyncio.timeout(limit_s):
            await app(request.scope(), receive, send)
    except Exception as error:  # noqa: BLE001 - whatever the host would have seen is the observation
        exchange.raised = error
    return exchange


def run(app: App, request: Request, *, turn: Callable[[], int] = _still) -> Exchange:
    """One exchange on an event loop of its own."""
    return asyncio.run(drive(app, request, turn=turn))


def run_all(app: App, requests: Iterable[Request]) -> list[Exchange]:
    """Several exchanges, one after another, on one event loop."""

    async def each() -> list[Exchange]:
        return [await drive(app, request) for request in requests]

    return asyncio.run(each())
