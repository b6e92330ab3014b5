"""`CallFuseMiddleware`: mount it over any ASGI app that speaks an LLM API.

It holds configuration and the ledger only; what belongs to one request lives in that request's call. Everything but a
POST of a known dialect passes untouched, and so does every request that callfuse cannot read.
"""

import time
from dataclasses import replace

from callfuse.asgi import headers, overrides
from callfuse.asgi.body import RequestBody, UnreadableBodyError, decoded
from callfuse.asgi.commands import NOTHING, Aside, ChatCommands, Session, Status, Unjudged, merged
from callfuse.asgi.exchange import Exchange, Host, OnLoop
from callfuse.asgi.types import ASGIApp, Receive, Scope, Send
from callfuse.config import Resolved, Source, resolve, with_store
from callfuse.conversations.identity import are_ordinary, lane_of
from callfuse.conversations.ledger import Connected, Ledger
from callfuse.dialects import Dialect, dialect_of, unread_api
from callfuse.dialects.base import Request
from callfuse.observe import log
from callfuse.observe.counts import Counts
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides
from callfuse.stores import open_ledger
from callfuse.wire.jsontext import NotJSON, apply, loads

MOST_DIGITS = 19
"""Of a content length; Python reads no number of thousands."""
TIMES_KEPT = 10
"""Times of rounds are kept for this many times `ttl_seconds`."""


class CallFuseMiddleware:
    """The fuse around `app`.

    `config` is a mapping in the shape of the configuration file, the path of one, or None: then the environment and
    `CALLFUSE_CONFIG` decide. `store` keeps what the requests do not say: a `Ledger`, or the URL of one, which wins over
    the configuration's (default: this process's memory, bounded). `on_loop`, sync or async, sees each `Verdict` before
    it is carried out: None keeps it, a rung or `allow` changes it.
    Raises ConfigError for a setting that is wrong. Does no IO before the first request.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Source | None = None,
        *,
        store: Ledger | str | None = None,
        on_loop: OnLoop | None = None,
    ) -> None:
        self.app = app
        self._url = store if isinstance(store, str) else None
        resolved = self._resolve(config)
        settings = resolved.config.tool_call_loop
        self.counts = Counts()
        self._owns_store = store is None or isinstance(store, str)
        if store is None or isinstance(store, str):
            store = open_ledger(
                resolved.config.store,
                max_lanes=settings.max_sessions,
                ttl_s=TIMES_KEPT * settings.ttl_seconds,
                timeout_s=resolved.config.store_timeout_s,
                counts=self.counts,
            )
        self.ledger: Ledger = store
        self._host = Host(app, settings, self.ledger, self.counts, on_loop, time.time)
        self.configure(resolved)

    def configure(self, config: Source | None = None) -> None:
        """Let a configuration hold for the exchanges that begin from now on, but for `max_sessions` and the store,
        which stay as they were. Raises ConfigError for a wrong one; then the old one stays."""
        self.resolved = self._resolve(config)
        self.settings = self.resolved.config.tool_call_loop
        self._may_judge = self.settings.may_judge
        serve = self.resolved.config.serve
        self._backend_of = serve.backend_of if serve.routes else None
        self._host = replace(self._host, settings=self.settings)
        self._commands = ChatCommands(self.settings.commands, self.ledger, self.counts)

    def _resolve(self, config: Source | None) -> Resolved:
        resolved = resolve(config)
        return resolved if self._url is None else with_store(resolved, self._url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        dialect = None
        found: dict[bytes, bytes] = {}
        if scope["type"] == "http":
            if scope["method"] == "POST" and self._may_judge:
                dialect = dialect_of(scope["path"])
                if dialect is None and (api := unread_api(scope["path"])):
                    self._host.unguarded(api)
            found = headers.read(scope)
            scope = overrides.stripped(scope, found)
        elif scope["type"] == "lifespan" and self._owns_store:
            await self._live(scope, receive, send)
            return
        if dialect is None:
            await self.app(scope, receive, send)
            return
        body = RequestBody(receive)
        exchange = await self._read(scope, found, body, dialect)
        del found  # an answer may come for long, and there may be thousands
        if exchange is None:
            await self.app(scope, body.replay(), send)
        else:
            await exchange.run(scope, body, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app's life in its host; at its end the store's connections are closed."""
        try:
            await self.app(scope, receive, send)
        finally:
            if isinstance(self.ledger, Connected):
                await self.ledger.aclose()

    async def _read(
        self, scope: Scope, found: dict[bytes, bytes], body: RequestBody, dialect: Dialect
    ) -> Exchange | Aside | Unjudged | None:
        """The exchange, if its request is one that callfuse can read and that counts."""
        host = self._host
        limit = host.settings.max_request_bytes
        length = found.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > MOST_DIGITS or int(length) > limit:
            self._host.unguarded("max_request_bytes")
            return None
        await body.read(limit)
        if body.content is None:
            self._host.unguarded("disconnect" if body.gone else "max_request_bytes")
            return None
        try:
            content = body.content
            if encoding := found.get(b"content-encoding"):
                content = decoded(content, encoding.decode("latin-1"), limit)
            query = scope.get("query_string", b"")
            target = f"{scope['path']}?{query.decode('latin-1')}" if query else scope["path"]
            payload = loads(content)
            request = dialect.read_request(content, payload, target)
            typed = self._commands.find(request, found) if request is not None else NOTHING
            if request is None or (request.probe and not typed.any):
                return None
            ordinary = are_ordinary(found)
            own = NO_OVERRIDES if ordinary else self._from_headers(host.settings, found)
            lane = lane_of(found, request, query, payload, ordinary=ordinary)
            now = host.clock()
            state, kept = await self.ledger.read(lane, now)
            kept = self._commands.holding(kept)
            signed = not ordinary and headers.is_signed(found)
            backend = (self._backend_of and self._backend_of(scope["path"])) or ""
            if signed and typed.any:
                host.unguarded("signed command")
            elif typed.any:
                session = Session(lane, state.session or lane.session, now)
                status = Status(host.settings, _model(backend, dialect, request), own)
                kept, answer = await self._commands.carry_out(typed, request, session, kept, status)
                if answer is not None:
                    return Aside(answer)
                body_left = apply(content, typed.edits)
                request = dialect.read_request(body_left, loads(body_left), target)
                if request is None:  # no edit changes what a body is
                    return None
            follows = False
            set_ = kept.overrides if ordinary else merged(own, kept.overrides)
            if set_ or backend or host.settings.models:
                settings = host.settings.for_exchange(_model(backend, dialect, request), set_)
                host = replace(host, settings=settings, backend=backend)
                follows = bool(kept.overrides) and request.continuing is not None
            if request.probe or not (host.settings.enabled or follows):
                return Unjudged(host.app, request.body) if request.body != content else None
            return Exchange(host, dialect, request, lane, state, now, signed=signed, came=content, keeps_place=follows)
        except (NotJSON, UnreadableBodyError) as error:
            self._host.unguarded("request encoding" if isinstance(error, UnreadableBodyError) else "request not JSON")
        except Exception as error:  # noqa: BLE001 - a request that trips callfuse must still reach the app
            self._host.failed_open(f"{type(error).__name__} in a request: {error}", "-")
        return None

    def _from_headers(self, settings: LoopSettings, found: dict[bytes, bytes]) -> Overrides:
        """What the headers of a request set."""
        for name, problem in overrides.unknown(found).items():
            if self.counts.add("ignored_headers", "unknown") == 1:  # any name may come from outside
                log.header(name, problem)
        if not settings.header_overrides:
            return NO_OVERRIDES
        own, wrong = overrides.given(found, has_other_model=settings.has_other_model)
        for name, problem in wrong.items():
            if self.counts.add("ignored_headers", name) == 1:
                log.header(name, problem)
        return own


def _model(backend: str, dialect: Dialect, request: Request) -> str:
    """Backend and model as one text, as settings know models."""
    return f"{backend or dialect.backend}:{request.model}"
