"""Serve the endpoint `events`: the feed as server-sent events. Only this module imports sse-starlette.

It is imported with the first reader, because the import replaces `uvicorn.Server.handle_exit` by a method that marks
the process as ending forever: of several servers in one process, as in tests, only the first would have a feed. So the
original method is restored. sse-starlette then finds the server by its signal handler, and ends the streams when the
server stops, so that they do not delay a graceful shutdown.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from anyio import move_on_after
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from callfuse.admin.queries import BadQuery
from callfuse.asgi import CallFuseMiddleware
from callfuse.conversations.identity import session_name
from callfuse.errors import install_hint
from callfuse.observe.feed import Feed, FullError, Reader
from callfuse.observe.naming import check_names
from callfuse.observe.printable import plain
from callfuse.observe.ring import Choice, EventId, read_id
from callfuse.policy.nearest import suggest
from callfuse.stores import open_relay

HEARTBEAT_S: Final = 15
"""The pause between two comments that keep the connection open."""
SEND_TIMEOUT_S: Final = 30.0
"""How long a reader may read nothing before its connection is closed."""
END_TIMEOUT_S: Final = 1.0
"""How long the end of an answer may take when the server stops."""
MOST_NAMES: Final = 50
"""The most sessions, or kinds, of a query."""
_OWN_HEADERS: Final = (b"connection", b"cache-control")
"""Headers of sse-starlette that every answer has anyway, or that HTTP/2 forbids."""

logger: Final = logging.getLogger("callfuse.serve")


class Unavailable(BadQuery):
    """Raised if the feed has no room for another reader."""

    status = 503


class NotInstalled(BadQuery):
    """Raised if sse-starlette is missing."""

    status = 501


def feed_of(middleware: CallFuseMiddleware) -> Feed:
    """Make the feed of a middleware, through its store if processes share it, and add it to the middleware's bus."""
    config = middleware.resolved.config
    relay = None
    if middleware.owns_store:
        relay = open_relay(config.store, timeout_s=config.store_timeout_s, bus=middleware.bus)
    feed = Feed(content=config.admin.content, most_readers=config.admin.max_readers, relay=relay)
    middleware.bus.add(feed)
    return feed


async def stream(feed: Feed, request: Request) -> Response:
    """Open the feed for a request. Raises BadQuery for an invalid request."""
    choice, after = read_choice(request), read_position(request)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    make = _maker()
    try:
        return Stream(feed, await feed.open(choice, after), make)
    except FullError as full:
        raise Unavailable(str(full)) from None


def read_choice(request: Request) -> Choice:
    """Read the parameters `session` and `kind`; each may be given more than once. Raises BadQuery."""
    found: dict[str, list[str]] = {"session": [], "kind": []}
    for name, value in request.query_params.multi_items():
        if name not in found:
            raise BadQuery(f"there is no parameter {plain(name, 100)!r}; {suggest(name[:100], found)}")
        if not value.strip():
            raise BadQuery(f"{name} is empty; leave it out for all")
        found[name].append(value.strip())
        if len(found[name]) > MOST_NAMES:
            raise BadQuery(f"{name} is given more than {MOST_NAMES} times")
    try:
        check_names(found["kind"])
    except ValueError as wrong:
        raise BadQuery(f"kind: {wrong}") from None
    sessions = [name for one in found["session"] for name in (plain(one), session_name(one))]
    return Choice(frozenset(sessions), frozenset(found["kind"]))


def read_position(request: Request) -> EventId | None:
    """Read the header `Last-Event-ID`; None without one. Raises BadQuery."""
    text = request.headers.get("last-event-id", "").strip()
    try:
        return read_id(text) if text else None
    except ValueError as wrong:
        raise BadQuery(f"Last-Event-ID: {wrong}") from None


class Stream(Response):
    """The answer to one reader. It always leaves the feed at its end."""

    def __init__(self, feed: Feed, reader: Reader, make: Callable[[Reader], Response]) -> None:
        self.status_code = 200
        self.background = None
        self._feed = feed
        self._reader = reader
        self._response = make(reader)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader leaves, is too slow, or the server stops."""

        is_complete = False

        async def note(message: Message) -> None:
            nonlocal is_complete
            if message["type"] == "http.response.start":
                message["headers"] = [one for one in message["headers"] if one[0].lower() not in _OWN_HEADERS]
            else:
                is_complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._response(scope, receive, note)
            if not is_complete:  # the reader has left, or the server stops
                with move_on_after(END_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except* TimeoutError:
            logger.info("a reader of the event feed is disconnected: it has read nothing for %g s", SEND_TIMEOUT_S)
        finally:
            self._feed.close(self._reader)


def _maker() -> Callable[[Reader], Response]:
    """Import sse-starlette, and return a function that makes its response. Raises NotInstalled."""
    server: Any = None
    with suppress(ImportError):
        import uvicorn

        server = uvicorn.Server
    before = getattr(server, "handle_exit", None)
    try:
        from sse_starlette.sse import EventSourceResponse
    except ImportError:
        raise NotInstalled(f"the feed needs the package sse-starlette: {install_hint('serve')}") from None
    if server is not None:
        server.handle_exit = before

    def make(reader: Reader) -> Response:
        return EventSourceResponse(reader.chunks(), ping=HEARTBEAT_S, sep="\n", send_timeout=SEND_TIMEOUT_S)

    return make
