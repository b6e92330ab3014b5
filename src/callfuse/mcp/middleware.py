"""`MCPMiddleware`: wraps a streamable-HTTP MCP server, and prevents calls of tools in loops."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from callfuse.asgi import headers, off_loop
from callfuse.asgi.answer import START, is_success
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import ByteBudget
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.failed_start import fails_at_start
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.config import Source, load_config
from callfuse.conversations.identity import FINGERPRINT, Lane
from callfuse.mcp.answer import JSON, STREAM, AppAnswer
from callfuse.mcp.callers import Callers, KnownCaller
from callfuse.mcp.exchange import Asked, ToolExchange, settle
from callfuse.mcp.identity import SESSION, caller_of, client_of
from callfuse.mcp.listings import Listing, Listings
from callfuse.mcp.messages import CALL, CANCELLED, LIST, MODERN, OPENING, Posted, read_post
from callfuse.observe.access import AccessSink
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import NotGuarded
from callfuse.observe.log import LogSink
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import NotJSON

VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
_READ: Final = frozenset(name.encode() for name in (CALL, CANCELLED, LIST, *OPENING))
"""Methods whose messages are read, if a header names the method."""
_LAST_EVENT: Final = b"last-event-id"
_MOST_DIGITS: Final = 19
"""The most digits of a content length."""


class MCPMiddleware:
    """ASGI middleware for an MCP server: a looping call of a tool does not run again.

        from callfuse.mcp import MCPMiddleware

        app = MCPMiddleware(mcp.http_app())  # FastMCP; `mcp.streamable_http_app()` of the SDK

    `app`: an ASGI app that serves MCP over streamable HTTP, at any path; other requests go directly to it. Each
    `tools/call` is judged by earlier calls and results of the same caller (`mcp/identity.py`). At the rung `observe`, a
    finding is only reported; at `warn`, the tool runs, and a notice is added to its result; at all others it does not
    run, and the answer is a notice, as an error. If the tool is known to be read-only, the same client also gets its
    previous result. Notices begin with `[callfuse]`.

    `config`: as for `CallFuseMiddleware`: a mapping in the shape of the configuration file, the path of one, or None
    (the default) for environment and `CALLFUSE_CONFIG`. Only `tool_call_loop` is used. State of callers is kept in the
    memory of this process, within `max_sessions`, `max_ledger_bytes` and ten times `ttl_seconds`. Raises `ConfigError`
    for a wrong setting, but never while serving.

    `bus` gets all events (`callfuse.observe.events`), `counts` counts them, `settings` are the current settings.
    """

    @fails_at_start
    def __init__(self, app: ASGIApp, config: Source | None = None) -> None:
        loaded = load_config(config)
        self.app = app
        self.settings: LoopSettings = loaded.tool_call_loop
        self.counts = Counts()
        self.bus = Bus(self.counts, LogSink(), AccessSink())
        self._callers = Callers(loaded, self.bus)
        self._listings = Listings()
        self._budget = ByteBudget(self.settings.max_total_bytes)
        self._fail_open = FailOpen(self.bus)

    @property
    def callers(self) -> int:
        """The number of known callers, which `max_sessions` limits."""
        return len(self._callers)

    @property
    def held_bytes(self) -> int:
        """The bytes that current requests keep, which `max_total_bytes` limits."""
        return self._budget.used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or not self.settings.enabled:
            await self.app(scope, receive, send)
            return
        found: dict[bytes, bytes] = {}
        with self._fail_open.stage("in a request"):
            if not isinstance(scope.get("headers") or (), list | tuple):  # it may be readable only once
                scope["headers"] = list(scope["headers"])
            found = headers.read(scope)
        if scope["method"] == "POST" and _may_be_call(found):
            await self._post(scope, receive, send, found)
        elif SESSION in found and scope["method"] in ("GET", "DELETE"):
            await self._watch(scope, receive, send, found)
        else:
            await self.app(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send, found: dict[bytes, bytes]) -> None:
        """Serve a POST that may call a tool."""
        body = RequestBody(receive, self._budget.open())
        exchange: ToolExchange | None = None
        try:
            posted = await self._read(found, body)
            with self._fail_open.stage("in a request"):
                exchange = None if posted is None else await self._begin(scope, found, posted)
            if exchange is not None:
                await exchange.judge(off_loop.weight_of(body.content or b""))
            if exchange is None:
                watching = send if posted is None or not posted.lists else self._reading(scope, posted, body, send)
                await self.app(scope, body.pass_on(), watching)
            elif exchange.is_answered:
                await exchange.answer(found, send)
            else:
                await exchange.run(self.app, scope, body, send)
        finally:
            if exchange is not None:
                await self._end(exchange, gone=body.gone)
            body.close()

    async def _read(self, found: dict[bytes, bytes], body: RequestBody) -> Posted | None:
        """Read a body. Returns None if it passes unchanged."""
        if found.get(b"content-encoding", b"identity") != b"identity":  # MCP servers do not unpack it
            self.bus.emit(NotGuarded("request encoding"))
            return None
        settings, length = self.settings, found.get(b"content-length", b"0")
        if length.isdigit() and len(length) <= _MOST_DIGITS and int(length) <= settings.max_request_bytes:
            await body.read(settings.max_request_bytes, settings.read_timeout_s)
        cause = body.unread or "max_request_bytes"
        with self._fail_open.stage("in a request"):
            if (content := body.content) is not None:
                cause = "request not JSON"
                weight = off_loop.weight_of(content)
                with suppress(NotJSON):
                    return await off_loop.run(partial(read_post, content), weight)
            self.bus.emit(NotGuarded(cause))
        return None

    async def _begin(self, scope: Scope, found: dict[bytes, bytes], posted: Posted) -> ToolExchange | None:
        """Begin the exchange of a POST; None if none of its calls is judged."""
        if posted.tasks:
            self.bus.emit(NotGuarded("task"))
        lane = self._lane(scope, found, posted.meta)
        if posted.cancelled or posted.opens:
            await self._heed(lane, posted)
        if not posted.calls:
            return None
        is_modern = found.get(VERSION, b"").decode("latin-1") >= MODERN or posted.is_modern
        client = client_of(scope)
        asked = Asked(posted, client, partial(self._listings.says_read_only, client), is_modern)
        return ToolExchange(asked, self._callers.of(lane), self.bus)

    def _reading(self, scope: Scope, posted: Posted, body: RequestBody, send: Send) -> Send:
        """Make a `send` that reads the list of tools in the answer."""
        with self._fail_open.stage("in a request"):
            listing = Listing(send, self._listings, client_of(scope), posted.lists, body.share)
            return partial(listing.take, fail_open=self._fail_open)
        return send

    async def _heed(self, lane: Lane, posted: Posted) -> None:
        """Handle cancellations by a caller, and a client that begins: only a transport session distinguishes it from
        earlier ones."""
        known = self._callers.find(lane)
        if known is None:
            return
        async with known.held():
            for key in posted.cancelled:
                known.caller.cancel(key)
        if posted.opens and lane.source == FINGERPRINT:
            self._callers.forget(lane)

    async def _end(self, exchange: ToolExchange, *, gone: bool) -> None:
        async with exchange.known.held():
            exchange.end(gone=gone)
            with self._fail_open.stage("at the end of a call"):
                lane = exchange.known.lane
                if exchange.is_refused:
                    self._callers.forget(lane)
                elif self._callers.find(lane) is exchange.known:  # unless it was forgotten meanwhile
                    self._callers.keep(exchange.known)

    async def _watch(self, scope: Scope, receive: Receive, send: Send, found: dict[bytes, bytes]) -> None:
        """Serve a GET, whose stream may contain the rest of an earlier answer, or a DELETE, which ends a session."""
        known: KnownCaller | None = None
        with self._fail_open.stage("in a request"):
            known = self._callers.find(self._lane(scope, found, {}))
        is_close = scope["method"] == "DELETE"
        if known is None or not known.is_session or not (is_close or _LAST_EVENT in found):
            await self.app(scope, receive, send)
        elif is_close:
            await self.app(scope, receive, self._forgetting(known, send))
        else:
            await self._resume(known, scope, receive, send)

    async def _resume(self, known: KnownCaller, scope: Scope, receive: Receive, send: Send) -> None:
        async def rewrite(data: bytes) -> bytes:
            with self._fail_open.stage("while reading a result"):
                find = partial(known.caller.take_awaited, client=client_of(scope))
                return await settle(known, data, find)
            return data

        share = self._budget.open()
        answer = AppAnswer(send, rewrite, share, self.settings.max_response_bytes)
        try:
            await self.app(scope, receive, answer.take)
            await answer.abandon()
        finally:
            answer.close()
            share.close()

    def _forgetting(self, known: KnownCaller, send: Send) -> Send:
        """Make a `send` that forgets the caller once the server has ended its session."""

        async def forgetting(message: Message) -> None:
            if message["type"] == START and is_success(message):
                self._callers.forget(known.lane)
            await send(message)

        return forgetting

    def _lane(self, scope: Scope, found: dict[bytes, bytes], meta: Mapping[str, Any]) -> Lane:
        return caller_of(scope, found, meta, self.settings.further_credentials)


def _may_be_call(found: dict[bytes, bytes]) -> bool:
    """Whether a POST with these headers may be MCP over streamable HTTP with messages to read. In the older transport
    (2024-11-05), responses come over another connection, so callfuse cannot answer in place of the server."""
    if not found.get(b"content-type", b"").strip().lower().startswith(JSON):
        return False
    if METHOD in found:
        return found[METHOD].strip() in _READ
    return SESSION in found or STREAM in found.get(b"accept", b"").lower()
