"""The reverse proxy as an ASGI app.

In: HTTP exchanges. Out: each sent on to the upstream of its path and its answer streamed back, both ways as the bytes
come, at the pace of the slower side. What always holds: the client's leaving ends the upstream's request at once; an
upstream that cannot be reached is a 502 or 504 in the client's own dialect; an answer that breaks off in the middle
breaks off for the client too.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

import aiohttp

from callfuse.errors import ConfigError
from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.client import UpstreamClient
from callfuse.proxy.departure import Departure
from callfuse.proxy.failures import BAD_GATEWAY, FAILURES, NOT_FOUND, Failure, explain, openai_error
from callfuse.proxy.headers import to_client, to_upstream
from callfuse.proxy.settings import ServeSettings
from callfuse.proxy.target import Upstream, path_of
from callfuse.proxy.upload import outgoing

_log = logging.getLogger("callfuse.proxy")

ErrorBody = Callable[[str, int, str], tuple[bytes, str]]
"""(path, status, message) -> (body, content type): an error as the dialect of that path writes it."""


class Way(NamedTuple):
    """Where the requests below a path go, and how."""

    route: str
    upstream: Upstream
    client: UpstreamClient
    idle_timeout_s: float


class ReverseProxy:
    """An ASGI 3 app (`http`, `lifespan`) in front of `settings.upstream` and `settings.routes`.

    The environment is read when an upstream is first named. Raises ConfigError where that is wrong, or where there is
    no upstream at all.
    """

    def __init__(self, settings: ServeSettings, error_body: ErrorBody | None = None) -> None:
        self._error_body = error_body or openai_error
        self._clients: dict[tuple[object, ...], UpstreamClient] = {}
        self.configure(settings)

    def configure(self, settings: ServeSettings) -> None:
        """Let these settings hold for the exchanges that begin from now on. The others end as they began: a client that
        is no longer asked keeps their connections until the end, and comes back into use with its settings."""
        named = {route.path: route.upstream for route in settings.routes}
        if settings.upstream is not None:
            named[""] = settings.upstream
        if not named:
            raise ConfigError("serve.upstream is not set; use the vendor's base URL, as in https://api.openai.com")
        ways = {path: self._way(path, Upstream.parse(url), settings) for path, url in named.items()}
        self._settings, self._ways = settings, ways

    def _way(self, path: str, upstream: Upstream, settings: ServeSettings) -> Way:
        waits = (settings.connect_timeout_s, settings.first_byte_timeout_s, settings.idle_timeout_s)
        key = (upstream, waits, settings.max_connections)
        if key not in self._clients:
            self._clients[key] = UpstreamClient(settings, upstream)
        return Way(path, upstream, self._clients[key], settings.idle_timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange, one lifespan, or the refusal of a websocket."""
        match scope["type"]:
            case "http":
                await self._exchange(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000, "reason": "this proxy speaks HTTP only"})
            case unknown:
                raise RuntimeError(f"the ASGI scope {unknown!r} is unknown; this app serves http and lifespan")

    async def close(self) -> None:
        """Close the connections to the upstreams, for hosts that send no lifespan."""
        for client in self._clients.values():
            await client.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        for client in self._clients.values():
            client.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        if first["type"] == "http.disconnect":
            return
        route = self._settings.route_of(path_of(scope))
        way = self._ways.get(route.path if route else "")
        if way is None:
            reason = f"nothing is served at {_printed(scope)}; paths begin with {' or '.join(self._ways)}"
            await self._refuse(scope, send, Failure(NOT_FOUND, reason))
            return
        with Departure(receive) as client:
            headers = to_upstream(scope["headers"])
            if way.upstream.authorization is not None and all(name != "authorization" for name, _ in headers):
                headers.append(("authorization", way.upstream.authorization))
            try:
                body = outgoing(first, client, way.idle_timeout_s)
                response = await way.client.ask(scope["method"], way.upstream.url(scope, way.route), headers, body)
            except FAILURES as error:
                if not client.gone:  # a request that the client cut off fails too
                    await self._refuse(scope, send, explain(error, way.upstream.origin, way.client.proxy))
                return
            try:
                await self._answer(way, scope, response, send)
            finally:
                if not response.closed:
                    response.close()

    async def _answer(self, way: Way, scope: Scope, response: aiohttp.ClientResponse, send: Send) -> None:
        status = response.status
        if not 200 <= status <= 599:  # a 101 that nobody asked for, or a number that servers have no line for
            await self._refuse(scope, send, Failure(BAD_GATEWAY, f"{way.upstream.origin} answered with {status}"))
            return
        bodiless = status in (204, 304) and scope["method"] != "HEAD"
        headers = to_client(response.raw_headers, bodiless=bodiless)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        content = response.content
        more = True
        while more:
            try:
                chunk = await content.readany()
            except FAILURES as error:
                await self._break_off(way, scope, content, send, error)
                return
            more = not content.at_eof()
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _break_off(
        self, way: Way, scope: Scope, content: aiohttp.StreamReader, send: Send, error: Exception
    ) -> None:
        """The answer broke off after its start. What had come still goes out; the end is never said, so that the server
        closes the connection and the client sees what it would have seen without a proxy. Nothing is raised: servers
        would print a traceback for what is the upstream's doing."""
        # aiohttp raises before it hands out what it had read, and offers the rest to nobody.
        if tail := content._read_nowait(-1):
            await send({"type": "http.response.body", "body": tail, "more_body": True})
        reason = explain(error, way.upstream.origin, way.client.proxy).reason
        _log.warning("%s %s broke off in the middle of the answer: %s", scope["method"], _printed(scope), reason)

    async def _refuse(self, scope: Scope, send: Send, failure: Failure) -> None:
        _log.warning("%s %s: %d, %s", scope["method"], _printed(scope), failure.status, failure.reason)
        body, content_type = self._error_body(scope["path"], failure.status, failure.reason)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        if failure.status == NOT_FOUND:  # callfuse's own refusal, as it will be the next time
            headers.append((b"x-should-retry", b"false"))
        await send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _printed(scope: Scope) -> str:
    """The path for a log line: no query, no line ends of the client's making."""
    return ascii(scope["path"])[1:-1]
