"""The reverse proxy as an ASGI app.

In: HTTP exchanges. Out: each sent on to the one upstream and its answer streamed back, both ways as the bytes come,
at the pace of the slower side. What always holds: the client's leaving ends the upstream's request at once; an upstream
that cannot be reached is a 502 or 504 in the client's own dialect; an answer that breaks off in the middle breaks off
for the client too.
"""

import logging
from collections.abc import Callable

import aiohttp

from callfuse.proxy.asgi import Receive, Scope, Send
from callfuse.proxy.client import UpstreamClient
from callfuse.proxy.departure import Departure
from callfuse.proxy.failures import BAD_GATEWAY, FAILURES, Failure, explain, openai_error
from callfuse.proxy.headers import to_client, to_upstream
from callfuse.proxy.settings import ServeSettings
from callfuse.proxy.target import Upstream
from callfuse.proxy.upload import outgoing

_log = logging.getLogger("callfuse.proxy")

ErrorBody = Callable[[str, int, str], tuple[bytes, str]]
"""(path, status, message) -> (body, content type): an error as the dialect of that path writes it."""


class ReverseProxy:
    """An ASGI 3 app (`http`, `lifespan`) in front of `settings.upstream`. It reads the environment here, once."""

    def __init__(self, settings: ServeSettings, error_body: ErrorBody | None = None) -> None:
        self._upstream = Upstream.parse(settings.upstream)
        self._client = UpstreamClient(settings, self._upstream)
        self._idle_timeout_s = settings.idle_timeout_s
        self._error_body = error_body or openai_error

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
        """Close the connections to the upstream, for hosts that send no lifespan."""
        await self._client.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._client.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        if first["type"] == "http.disconnect":
            return
        with Departure(receive) as client:
            headers = to_upstream(scope["headers"])
            if self._upstream.authorization is not None and all(name != "authorization" for name, _ in headers):
                headers.append(("authorization", self._upstream.authorization))
            try:
                body = outgoing(first, client, self._idle_timeout_s)
                response = await self._client.ask(scope["method"], self._upstream.url(scope), headers, body)
            except FAILURES as error:
                if not client.gone:  # a request that the client cut off fails too
                    await self._refuse(scope, send, explain(error, self._upstream.origin, self._client.proxy))
                return
            try:
                await self._answer(scope, response, send)
            finally:
                if not response.closed:
                    response.close()

    async def _answer(self, scope: Scope, response: aiohttp.ClientResponse, send: Send) -> None:
        status = response.status
        if not 200 <= status <= 599:  # a 101 that nobody asked for, or a number that servers have no line for
            await self._refuse(scope, send, Failure(BAD_GATEWAY, f"{self._upstream.origin} answered with {status}"))
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
                await self._break_off(scope, content, send, error)
                return
            more = not content.at_eof()
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _break_off(self, scope: Scope, content: aiohttp.StreamReader, send: Send, error: Exception) -> None:
        """The answer broke off after its start. What had come still goes out; the end is never said, so that the server
        closes the connection and the client sees what it would have seen without a proxy. Nothing is raised: servers
        would print a traceback for what is the upstream's doing."""
        # aiohttp raises before it hands out what it had read, and offers the rest to nobody.
        if tail := content._read_nowait(-1):
            await send({"type": "http.response.body", "body": tail, "more_body": True})
        reason = explain(error, self._upstream.origin, self._client.proxy).reason
        _log.warning("%s %s broke off in the middle of the answer: %s", scope["method"], _printed(scope), reason)

    async def _refuse(self, scope: Scope, send: Send, failure: Failure) -> None:
        _log.warning("%s %s: %d, %s", scope["method"], _printed(scope), failure.status, failure.reason)
        body, content_type = self._error_body(scope["path"], failure.status, failure.reason)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": failure.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _printed(scope: Scope) -> str:
    """The path for a log line: no query, no line ends of the client's making."""
    return ascii(scope["path"])[1:-1]
