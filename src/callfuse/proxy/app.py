"""The reverse proxy as an ASGI app: forward requests to the upstream of their path, and stream the answers back.

Bytes pass unchanged, with back-pressure both ways. If the client disconnects, the upstream request ends at once. For an
unreachable upstream, the client gets 502 or 504 with an error body in its dialect. An answer that breaks off in the
middle breaks off for the client, too.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final, NamedTuple

import aiohttp

from callfuse.config.serve import ServeSettings
from callfuse.errors import ConfigError
from callfuse.proxy.asgi import Message, Receive, Scope, Send
from callfuse.proxy.client import UpstreamClient
from callfuse.proxy.cross_site import is_cross_site
from callfuse.proxy.departure import Departure
from callfuse.proxy.failures import (
    BAD_GATEWAY,
    FAILURES,
    FORBIDDEN,
    LATE,
    NOT_FOUND,
    TUNNEL,
    WRONG_LENGTH,
    Failure,
    explain,
    forget_frames,
)
from callfuse.proxy.headers import declared_length, to_client, to_upstream, unbuffered
from callfuse.proxy.refusing import ErrorBody, Refusing, printable_path
from callfuse.proxy.target import Upstream, path_of
from callfuse.proxy.upload import Upload, body_to_send

_log = logging.getLogger("callfuse.proxy")

FOREIGN: Final = Failure(
    FORBIDDEN,
    "a page of another site may not use the credentials that are configured for this upstream; the Host of a request"
    " must be an IP address, localhost, serve.host or one of serve.hosts",
)


class RouteTarget(NamedTuple):
    """The upstream of a path prefix, with its client and its idle timeout."""

    route: str
    upstream: Upstream
    client: UpstreamClient
    idle_timeout_s: float


class ReverseProxy(Refusing):
    """An ASGI 3 app (`http`, `lifespan`) in front of `settings.upstream` and `settings.routes`.

    The environment (HTTP proxies, certificates) is read when an upstream is first configured. Raises ConfigError if the
    environment is wrong, or if there is no upstream. `error_body` defaults to the error body of the OpenAI APIs.
    """

    def __init__(self, settings: ServeSettings, error_body: ErrorBody | None = None) -> None:
        super().__init__(settings, error_body)
        self._clients: dict[tuple[object, ...], UpstreamClient] = {}
        self.configure(settings)

    def configure(self, settings: ServeSettings) -> None:
        """Use these settings for exchanges that begin from now on. Raises ConfigError as the constructor does.

        Running exchanges keep their client. An unused client is kept, too, and is used again if its settings return.
        """
        named = {route.path: route.upstream for route in settings.routes}
        if settings.upstream is not None:
            named[""] = settings.upstream
        if not named:
            raise ConfigError("serve.upstream is not set; use the vendor's base URL, as in https://api.openai.com")
        targets = {path: self._make_target(path, Upstream.parse(url), settings) for path, url in named.items()}
        self._settings, self._targets = settings, targets

    def _make_target(self, path: str, upstream: Upstream, settings: ServeSettings) -> RouteTarget:
        waits = (settings.connect_timeout_s, settings.first_byte_timeout_s, settings.idle_timeout_s)
        key = (upstream, waits, settings.max_connections)
        if key not in self._clients:
            self._clients[key] = UpstreamClient(settings, upstream)
        return RouteTarget(path, upstream, self._clients[key], settings.idle_timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection: an exchange, a lifespan, or the refusal of a websocket."""
        match scope["type"]:
            case "http":
                await self._exchange(scope, receive, send)
            case "lifespan":
                await self._run_lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000, "reason": "this proxy speaks HTTP only"})
            case unknown:
                raise RuntimeError(f"the ASGI scope {unknown!r} is unknown; this app serves http and lifespan")

    async def close(self) -> None:
        """Close the connections to the upstreams, for hosts that send no lifespan."""
        for client in self._clients.values():
            await client.close()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        for client in self._clients.values():
            client.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        first: Message = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.read_timeout_s):
                first = await receive()
        if not first:
            await self.refuse(scope, send, LATE)
            return
        if first["type"] == "http.disconnect":
            return
        target = self._target_of(scope)
        if target is None:
            reason = f"nothing is served at {printable_path(scope)}; paths begin with {' or '.join(self._targets)}"
            await self.refuse(scope, send, Failure(NOT_FOUND, reason))
            return
        if self.is_foreign(scope):
            await self.refuse_foreign(scope, send)
            return
        if scope["method"] == "CONNECT":  # forwarded, it would ask the upstream for a tunnel
            await self.refuse(scope, send, TUNNEL)
            return
        with Departure(receive) as client:
            headers = to_upstream(scope["headers"])
            if _needs_credentials(target, scope):
                headers.append(("authorization", str(target.upstream.authorization)))
            try:
                declared = declared_length(headers)
                body = body_to_send(first, declared, client, target.idle_timeout_s, self._settings.read_timeout_s)
            except ValueError:
                await self.refuse(scope, send, WRONG_LENGTH)
                return
            del first
            try:
                await self._forward(target, scope, send, client, headers, body)
            finally:
                if isinstance(body, Upload):
                    body.drop()

    @property
    def reachable(self) -> bool | None:
        """Whether any upstream was reached at its last try; None if it is not known."""
        tries = [target.client.reached for target in self._targets.values()]
        return True if True in tries else None if None in tries else False

    def _target_of(self, scope: Scope) -> RouteTarget | None:
        route = self._settings.route_of(path_of(scope))
        return self._targets.get(route.path if route else "")

    def is_foreign(self, scope: Scope) -> bool:
        """Whether a page of another site may have sent this HTTP request, which would get configured credentials."""
        target = self._target_of(scope)
        if target is None or not _needs_credentials(target, scope):
            return False
        return is_cross_site(scope["headers"], self._settings.own_names)

    async def refuse_foreign(self, scope: Scope, send: Send) -> None:
        """Answer a request from a page of another site with 403."""
        await self.refuse(scope, send, FOREIGN)

    async def _forward(
        self,
        target: RouteTarget,
        scope: Scope,
        send: Send,
        client: Departure,
        headers: list[tuple[str, str]],
        body: bytes | Upload | None,
    ) -> None:
        """Forward a request, and send its answer back."""
        try:
            url = target.upstream.url(scope, target.route)
            response = await target.client.ask(scope["method"], url, headers, body)
        except FAILURES as error:
            failure = explain(forget_frames(error), target.upstream.origin, target.client.proxy)
            if isinstance(body, Upload) and body.failure is not None:
                failure = body.failure
            if not client.gone:  # also raised if the client has cut off its request; then there is no one to answer
                if not failure.is_own:
                    target.client.note_try(reached=False)
                await self.refuse(scope, send, failure)
            return
        target.client.note_try(reached=True)
        try:
            await self._answer(target, scope, response, send)
        finally:
            if not response.closed:
                response.close()

    async def _answer(self, target: RouteTarget, scope: Scope, response: aiohttp.ClientResponse, send: Send) -> None:
        status = response.status
        if not 200 <= status <= 599:  # a 101 that was not requested, or a status unknown to ASGI servers
            await self.refuse(scope, send, Failure(BAD_GATEWAY, f"{target.upstream.origin} answered with {status}"))
            return
        bodiless = status in (204, 304) and scope["method"] != "HEAD"
        headers = unbuffered(to_client(response.raw_headers, bodiless=bodiless))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        content = response.content
        more = True
        while more:
            try:
                chunk = await content.readany()
            except FAILURES as error:
                await self._break_off(target, scope, content, send, error)
                return
            more = not content.at_eof()
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _break_off(
        self, target: RouteTarget, scope: Scope, content: aiohttp.StreamReader, send: Send, error: Exception
    ) -> None:
        """Send the rest of an answer that broke off, but not its end.

        The server then closes the connection, as without a proxy. Nothing is raised, because servers would log a
        traceback for a fault of the upstream.
        """
        # aiohttp raises before it returns the bytes that it has read, and has no public way to get them.
        if tail := content._read_nowait(-1):
            await send({"type": "http.response.body", "body": tail, "more_body": True})
        reason = explain(forget_frames(error), target.upstream.origin, target.client.proxy).reason
        _log.warning("%s %s broke off in the middle of the answer: %s", scope["method"], printable_path(scope), reason)


def _needs_credentials(target: RouteTarget, scope: Scope) -> bool:
    """Whether the configured credentials are added: there are some, and the client sends none."""
    if target.upstream.authorization is None:
        return False
    return all(name.lower() != b"authorization" for name, _ in scope["headers"])
