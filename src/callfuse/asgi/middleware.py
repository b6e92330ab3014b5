"""`CallFuseMiddleware`: wraps any ASGI app that speaks an LLM API.

The object holds only configuration and the ledger; the state of a request is local to its call. Only POSTs of a known
dialect are read. Everything else passes unchanged, also requests that cannot be parsed.
"""

import time
from collections.abc import Awaitable, Mapping, Sized
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, Self

from callfuse.asgi import headers, off_loop, overrides, refusals
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import ByteBudget, Share
from callfuse.asgi.closed import closed_reply
from callfuse.asgi.commands import ChatCommands, SyntheticReply
from callfuse.asgi.exchange import Exchange
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.failed_start import fails_at_start
from callfuse.asgi.fuse import blown_reply
from callfuse.asgi.last_requests import LastRequests
from callfuse.asgi.prepare import Host, Prepared, prepare
from callfuse.asgi.review import Callback, OnLoop
from callfuse.asgi.scopes import hand_back
from callfuse.asgi.session_settings import ClientHeaders, session_overrides, write_session
from callfuse.asgi.spending import open_spending
from callfuse.asgi.tally import DISABLED, OWN_ERROR, Tally
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.config import Resolved, Source, resolve, with_store
from callfuse.conversations.ledger import TIMES_KEPT, Closable, FindingStore, Ledger, Startable
from callfuse.dialects import Dialect, dialect_of, unread_api
from callfuse.errors import ConfigError, install_hint
from callfuse.observe.access import AccessSink
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import Refused
from callfuse.observe.exchanges import KeptExchanges
from callfuse.observe.findings import RecentFindings
from callfuse.observe.log import LogSink
from callfuse.observe.settings import EventsSettings
from callfuse.observe.telemetry import open_metrics, open_traces
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.stores import open_ledger

if TYPE_CHECKING:
    from callfuse.observe.webhook import Webhook

MOST_LAYERS = 100
"""The most layers of middleware that are searched."""


class Handler(Protocol):
    """Handles a request that has been read."""

    def run(self, scope: Scope, body: RequestBody, send: Send) -> Awaitable[None]:
        """Answer the request, or let the app do so."""
        ...

    def close(self) -> None:
        """Drop bodies and buffers, because the app's frames and exceptions may outlive the exchange."""
        ...


class CallFuseMiddleware:
    """ASGI middleware that ends tool-call loops in the app's LLM answers, and changes nothing else.

        from callfuse import CallFuseMiddleware

        app = CallFuseMiddleware(app)  # or, in FastAPI and Starlette: app.add_middleware(CallFuseMiddleware)

        app = CallFuseMiddleware(
            app,
            {"tool_call_loop": {"mode": "warn", "max_repeats": 4, "ttl_seconds": 600}},
            store="redis://localhost:6379/0",
            on_loop=lambda event: "block" if event.call.name == "pay" else None,
        )

    `app`: any ASGI 3 app. A POST to a path that a dialect serves (`/v1/chat/completions`, `/v1/messages`, ...) is read,
    up to `max_request_bytes` bytes; everything else goes directly to the app.

    `config`: a mapping in the shape of the configuration file, a `ToolCallLoopConfig`, or the path of such a file (str
    or Path). None, the default: the environment (`CALLFUSE_...`) and the file that `CALLFUSE_CONFIG` names, else the
    built-in defaults. Settings ending in `_s` or `_seconds` are in seconds, those ending in `_bytes` in bytes.

    `store`: where state between requests is kept: a `Ledger`, or the URL of one, which overrides the configuration's.
    None, the default: the configuration's store, else the memory of this process, for at most `max_sessions` lanes with
    `max_ledger_bytes` in total, and ten times `ttl_seconds`. A store that the middleware has opened is closed when the
    host's lifespan ends.

    `on_loop`: a function, sync or async, that gets each `LoopEvent` before it is carried out. It returns None (keep the
    action), `"allow"` or True (let the call pass), the name of a rung (`"observe"`, `"warn"`, `"steer"`,
    `"force_text"`, `"escalate"`, `"block"`), or False (stop: `"block"`). If it raises, or takes longer than
    `callback_timeout_s`, this is logged and the action is kept.

    `via`: mark guarded requests with the header `x-callfuse-via`, so that another callfuse behind this one only
    observes them. For apps that forward requests, as `callfuse serve` does.

    `owns_store`: whether the middleware opened the store, from the settings or a URL, instead of getting a `Ledger`.

    `bus` gets all events (`callfuse.observe.events`), and passes them to its sinks. `findings`: the newest findings, by
    id.

    Raises `ConfigError` for a wrong setting, here and in `configure`, but never while serving. If Starlette or FastAPI
    builds it, the server's start fails instead. Does no IO before the first request.
    """

    @fails_at_start
    def __init__(
        self,
        app: ASGIApp,
        config: Source | None = None,
        *,
        store: Ledger | str | None = None,
        on_loop: OnLoop | None = None,
        via: bool = False,
    ) -> None:
        self.app = app
        self._via = via
        self._url = store if isinstance(store, str) else None
        resolved = self._resolve(config)
        settings = resolved.config.tool_call_loop
        self.counts = Counts()
        self.bus = Bus(self.counts, LogSink(), AccessSink())
        self._webhook = _open_webhook(resolved.config.events, self.bus)
        self.owns_store = store is None or isinstance(store, str)
        if store is None or isinstance(store, str):
            store = open_ledger(
                resolved.config.store,
                max_lanes=settings.max_sessions,
                max_bytes=settings.max_ledger_bytes,
                ttl_s=TIMES_KEPT * settings.ttl_seconds,
                timeout_s=resolved.config.store_timeout_s,
                bus=self.bus,
            )
        self.ledger: Ledger = store
        self.findings = RecentFindings(store if isinstance(store, FindingStore) else None)
        self.bus.add(self.findings)
        commands = ChatCommands(settings.commands, store, self.bus)
        callback = None if on_loop is None else Callback(on_loop)
        traces = open_traces(resolved.config.otel, self.bus)
        last = LastRequests()
        budget = ByteBudget(spare=last)
        fail_open = FailOpen(self.bus)
        self._host = Host(
            app, settings, store, self.bus, callback, time.time, commands, budget, last, fail_open, traces=traces
        )
        open_metrics(resolved.config.otel, self)
        self.configure(resolved)

    @classmethod
    def of(cls, app: object) -> Self:
        """Return the middleware in an app to which `app.add_middleware(CallFuseMiddleware)` added it, to use its
        `counts`, `settings` and `configure`. Returns the outermost one if there are several.

        Raises LookupError in an app without the middleware, and before Starlette or FastAPI has built it, at startup or
        the first request. Wrappers are searched, too, if their app is in an attribute `app`, as usual for ASGI
        middleware.
        """
        layer: object | None = app
        for _ in range(MOST_LAYERS):
            if isinstance(layer, cls):
                return layer
            stack = getattr(layer, "middleware_stack", None)
            layer = stack if stack is not None else getattr(layer, "app", None)
            if layer is None:
                break
        raise LookupError("there is no CallFuseMiddleware in this app, or the app has not started yet")

    def configure(self, config: Source | None = None) -> None:
        """Apply a configuration to exchanges that begin from now on, except `max_sessions`, `max_ledger_bytes`, the
        store, the webhook and `otel`, which stay as they are. Raises ConfigError for a wrong configuration, and then
        keeps the old one."""
        self.resolved = self._resolve(config)
        self.settings = self.resolved.config.tool_call_loop
        serve = self.resolved.config.serve
        self._host.budget.limit = self.settings.max_total_bytes
        self._host.last_requests.bound(self.settings.max_kept_bytes)
        self.exchanges.bound(self.resolved.config.admin)
        self._may_judge = self.settings.may_judge
        self._host = replace(
            self._host,
            settings=self.settings,
            commands=ChatCommands(self.settings.commands, self.ledger, self.bus),
            route_of=serve.route_of if serve.routes else None,
        )

    async def set_session(
        self,
        session: str,
        config: LoopSettings | Mapping[str, Any] | None,
        *,
        headers: ClientHeaders = (),
    ) -> None:
        """Give a session its own settings, from its next request on. None removes those of earlier calls.

        `session`: the id that its client sends. `config`: the keys of `tool_call_loop` that are allowed for models, and
        `per_tool`. It replaces settings of earlier calls. `headers`: those of a request of its client. Only the
        credential is used, because sessions belong to credentials; with it, the session need not be known yet. Without
        a credential, every known session of that name gets the settings; raises LookupError if there is none. Permitted
        commands of users win over these settings. Raises ConfigError for a wrong setting.
        """
        settings = self.settings
        overrides = NO_OVERRIDES if config is None else session_overrides(config, settings)
        changed = await write_session(self.ledger, session, overrides, headers, settings, self._host.clock())
        if changed is not None:
            self.bus.emit(changed)

    @property
    def held_bytes(self) -> int:
        """The bytes that all exchanges keep at present, which `max_total_bytes` limits."""
        return self._host.budget.used

    def open_share(self) -> Share:
        """Open a share of `max_total_bytes`, for bytes that are kept for this middleware. Close it after use."""
        return self._host.budget.open()

    @property
    def exchanges(self) -> KeptExchanges:
        """The exchanges with a finding whose answers are kept for an admin page."""
        return self._host.in_flight.kept

    @property
    def in_flight(self) -> int:
        """The number of exchanges that are running at present."""
        return self._host.in_flight.exchanges

    @property
    def lanes(self) -> int:
        """The number of lanes in this process, which `max_sessions` limits. 0 if the store cannot count them."""
        return len(self.ledger) if isinstance(self.ledger, Sized) else 0

    def _resolve(self, config: Source | None) -> Resolved:
        resolved = resolve(config)
        return resolved if self._url is None else with_store(resolved, self._url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan" and (self.owns_store or self._webhook is not None):
            await self._live(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._pass_unread(scope, receive, send, is_handshake=True)
        else:
            await self.app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the lifespan. At its start, connect to the store in the background. Before its end is reported, send
        waiting webhook events, for a bounded time; then close the store's connections."""
        if self.owns_store and isinstance(self.ledger, Startable):
            self.ledger.start()
        try:
            await self.app(scope, receive, send if self._webhook is None else _draining(self._webhook, send))
        finally:
            if self.owns_store and isinstance(self.ledger, Closable):
                await self.ledger.aclose()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP exchange."""
        host = self._host
        dialect: Dialect | None = None
        found: dict[bytes, bytes] = {}
        given = scope
        stage = host.fail_open.stage("in a request")
        with stage:
            if not isinstance(scope.get("headers") or (), list | tuple):  # it may be readable only once
                scope["headers"] = list(scope["headers"])
            found = headers.read(scope)
            dialect = self._dialect_of(scope)
            scope = overrides.without_overrides(scope, found)
        if stage.failed or dialect is None:
            is_handshake = refusals.is_handshake(scope, found)
            await self._pass_told(dialect, scope, receive, send, is_handshake=is_handshake)
            return
        tally = host.begin(dialect, scope["path"], found)
        body = RequestBody(receive, host.budget.open())
        handler: Handler | None = None
        try:
            prepared = await prepare(host, scope, found, body, dialect, tally, stage)
            with stage:
                if isinstance(prepared, Prepared):
                    handler = await self._begin(host, prepared)
                    scope = headers.with_via(scope) if self._via else scope
                else:
                    handler = prepared
            if stage.failed and isinstance(prepared, Prepared):
                with stage:
                    handler = closed_reply(prepared)
            del found, prepared  # free them while the answer streams: there may be thousands
            if not isinstance(handler, Exchange):
                send = _counted(handler, tally, send)
            tally.times.called = perf_counter()
            if handler is None:
                await self.app(scope, body.pass_on(), send)
            else:
                await handler.run(scope, body, send)
            tally.returned = True
        finally:
            tally.end(gone=body.gone)
            host.in_flight.exchanges -= 1
            hand_back(scope, given)
            body.close()
            if handler is not None:
                handler.close()

    async def _pass_told(
        self, dialect: Dialect | None, scope: Scope, receive: Receive, send: Send, *, is_handshake: bool
    ) -> None:
        """Call the app with a request that is not read, and report it if its path is a dialect's. The answer is not
        read either, so a disabled guard adds no cost to its chunks."""
        cause = OWN_ERROR
        with self._host.fail_open.stage("in a request"):
            if dialect is None and scope["method"] == "POST" and not self._may_judge:
                cause, dialect = DISABLED, dialect_of(scope["path"])
        tally = None if dialect is None else self._host.begin(dialect, scope["path"], {})
        try:
            await self._pass_unread(scope, receive, send, is_handshake=is_handshake)
            if tally is not None:
                tally.returned = True
        finally:
            if tally is not None:
                tally.cause = cause
                tally.end(gone=False)
                self._host.in_flight.exchanges -= 1

    async def _pass_unread(self, scope: Scope, receive: Receive, send: Send, *, is_handshake: bool) -> None:
        """Call the app with an unguarded request. Refuses WebSocket handshakes on guarded paths, if the settings
        require it."""
        refusal: bytes | None = None
        with self._host.fail_open.stage("in a request"):
            dialect = dialect_of(scope["path"]) if is_handshake and self._may_judge else None
            if dialect is not None and self.settings.websocket == "pass":
                self._host.unguarded("websocket")
            elif dialect is not None:
                self.bus.emit(Refused("websocket"))
                refusal = dialect.error_body(refusals.UPGRADE_REQUIRED, refusals.REASON)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await refusals.refuse_handshake(refusal, scope, receive, send)

    async def _begin(self, host: Host, prepared: Prepared) -> Handler:
        """Return the exchange of a request, or callfuse's own answer if that blocks it or the fuse has blown."""
        budget = prepared.settings.budget
        spending = await open_spending(host, prepared) if budget.is_on or budget.reads_tokens else None
        exchange = await off_loop.run(partial(Exchange, host, prepared, spending), prepared.weight)
        if exchange.kept.blocks.in_a_row and (reply := await blown_reply(host, prepared, exchange.kept)):
            return reply
        await exchange.review()
        if exchange.reply is None:
            return exchange
        exchange.close()
        return exchange.reply

    def _dialect_of(self, scope: Scope) -> Dialect | None:
        """Return the dialect of a request that may be judged; None if it passes unread."""
        if scope["method"] != "POST" or not self._may_judge:
            return None
        dialect = dialect_of(scope["path"])
        if dialect is None and (api := unread_api(scope["path"])):
            self._host.unguarded(api)
        return dialect


def _open_webhook(settings: EventsSettings, bus: Bus) -> "Webhook | None":
    """Open the sink for the webhook, if one is set. Raises ConfigError if aiohttp, a requirement, is missing."""
    if settings.webhook is None:
        return None
    try:
        from callfuse.observe.webhook import Webhook
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "aiohttp":
            raise
        raise ConfigError(f"events.webhook: needs the package aiohttp: {install_hint('serve')}") from None
    webhook = Webhook(settings, bus)
    bus.add(webhook)
    return webhook


def _draining(webhook: "Webhook", send: Send) -> Send:
    """Wrap a lifespan's `send`: send waiting webhook events before the lifespan's end is reported."""
    webhook.attach()

    async def draining(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown."):
            await webhook.drain()
        await send(message)

    return draining


def _counted(handler: Handler | None, tally: Tally, send: Send) -> Send:
    """Wrap `send` to note the status, for an answer that no `Exchange` reads."""
    if isinstance(handler, SyntheticReply):
        tally.mode, tally.action = "answered", handler.action.decode()
    return tally.noting_status(send)
