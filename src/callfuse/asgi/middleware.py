"""`CallFuseMiddleware`: mount it over any ASGI app that speaks an LLM API.

It holds configuration and the ledger only; what belongs to one request lives in that request's call. Everything but a
POST of a known dialect passes untouched, and so does every request that callfuse cannot read.
"""

import time

from callfuse.asgi import headers
from callfuse.asgi.body import RequestBody, UnreadableBodyError, decoded
from callfuse.asgi.exchange import Exchange, Host, OnLoop
from callfuse.asgi.types import ASGIApp, Receive, Scope, Send
from callfuse.config import Source, load_config
from callfuse.dialects import Dialect, dialect_of, unread_api
from callfuse.jsontext import NotJSON, loads
from callfuse.observe.counts import Counts
from callfuse.sessions.conversation import Conversation
from callfuse.sessions.identity import lane_of
from callfuse.sessions.ledger import Ledger, MemoryLedger

TIMES_KEPT = 10
"""Times of rounds are kept for this many times `ttl_seconds`."""


class CallFuseMiddleware:
    """The fuse around `app`.

    `config` is a mapping in the shape of the configuration file, the path of one, or None: then the environment and
    `CALLFUSE_CONFIG` decide. `store` keeps what the requests do not say (default: this process's memory, bounded).
    Raises ConfigError for a setting that is wrong. Does no IO before the first request.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Source | None = None,
        *,
        store: Ledger | None = None,
        on_loop: OnLoop | None = None,
    ) -> None:
        self.app = app
        self.settings = load_config(config).tool_call_loop
        self.counts = Counts()
        ttl_s = TIMES_KEPT * self.settings.ttl_seconds
        self.ledger: Ledger = store or MemoryLedger(max_lanes=self.settings.max_sessions, ttl_s=ttl_s)
        self._host = Host(app, self.settings, self.ledger, self.counts, on_loop, time.time)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        dialect = None
        if scope["type"] == "http" and scope["method"] == "POST" and self.settings.enabled:
            dialect = dialect_of(scope["path"])
            if dialect is None and (api := unread_api(scope["path"])):
                self._host.unguarded(api)
        if dialect is None:
            await self.app(scope, receive, send)
            return
        body = RequestBody(receive)
        exchange = await self._read(scope, body, dialect)
        if exchange is None:
            await self.app(scope, body.replay(), send)
        else:
            await exchange.run(scope, body, send)

    async def _read(self, scope: Scope, body: RequestBody, dialect: Dialect) -> Exchange | None:
        """The exchange, if its request is one that callfuse can read and that counts."""
        found = headers.read(scope)
        limit = self.settings.max_request_bytes
        length = found.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limit:
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
            request = dialect.read_request(content, loads(content), target)
            if request is None or request.probe:
                return None
            lane = lane_of(found, request, query)
            now = self._host.clock()
            conversation = Conversation(request, await self.ledger.read(lane, now), now, named=lane.named)
            return Exchange(self._host, dialect, request, lane, conversation, signed=headers.is_signed(found))
        except (NotJSON, UnreadableBodyError) as error:
            self._host.unguarded("request encoding" if isinstance(error, UnreadableBodyError) else "request not JSON")
        except Exception as error:  # noqa: BLE001 - a request that trips callfuse must still reach the app
            self._host.failed_open(f"{type(error).__name__} in a request: {error}", "-")
        return None
