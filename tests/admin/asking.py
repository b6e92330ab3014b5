"""The admin app under test, and requests to it as `callfuse serve` hands them on."""

import json
from typing import Any

from callfuse import CallFuseMiddleware
from callfuse.admin import AdminApp
from callfuse.admin.app import AdminMount
from callfuse.config import Source
from callfuse.config.serve import AdminSettings
from callfuse.conversations.ledger import Ledger
from tests.support.asgi import JSON_REQUEST, App, Exchange, Headers, Request, Scope, Send, drive

TOKEN = "the-token-of-the-tests"
BEARER: Headers = ((b"authorization", b"Bearer " + TOKEN.encode()),)
BROWSER: Headers = ((b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8"),)
FORM: Headers = ((b"host", b"here.test:8100"), (b"content-type", b"application/x-www-form-urlencoded"), *BROWSER)
PATH = "/_callfuse"


class Vendor:
    """Answers everything with its name, and knows which paths it was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, _receive: object, send: Send) -> None:
        """One exchange."""
        self.paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"vendor"})


class Guarded:
    """A vendor behind the fuse, and beside both the admin page."""

    def __init__(
        self, config: Source | None = None, *, store: Ledger | None = None, vendor: Any = None, **admin: Any
    ) -> None:
        self.vendor = vendor or Vendor()
        self.fuse = CallFuseMiddleware(self.vendor, {} if config is None else config, store=store)
        self.admin = AdminApp(self.fuse, token=TOKEN)
        self.app: App = AdminMount(self.fuse, self.admin, AdminSettings(**admin))

    async def ask(
        self, path: str, headers: Headers = BEARER, query: str = "", method: str = "GET", body: bytes = b""
    ) -> Exchange:
        """One request for a path as it stands."""
        return await drive(self.app, Request(path, body, headers, method, query.encode()))

    async def get(self, below: str, query: str = "", headers: Headers = BEARER) -> Exchange:
        """What lies below the admin path."""
        return await self.ask(f"{PATH}/{below}", headers, query)

    async def told(self, below: str, query: str = "") -> Any:
        """The JSON that lies there."""
        exchange = await self.get(below, query)
        assert exchange.status == 200, exchange.body
        return json.loads(exchange.body)

    async def page(self, query: str = "") -> str:
        """The page without script."""
        exchange = await self.get("plain", query)
        assert exchange.header(b"content-type") == b"text/html; charset=utf-8"
        return exchange.body.decode()

    async def login(self, token: str, headers: Headers = FORM) -> Exchange:
        """The form with a token in it."""
        return await self.ask(f"{PATH}/", headers, method="POST", body=f"token={token}".encode())

    async def type(self, text: str, session: str, key: str = "one") -> bytes:
        """What a user of a session is answered who types a message of nothing but commands."""
        content = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}], "tools": []})
        told = ((b"x-callfuse-session-id", session.encode()), (b"authorization", b"Bearer " + key.encode()))
        headers = tuple(header for header in JSON_REQUEST if header[0] != b"authorization") + told
        return (await self.ask("/v1/chat/completions", headers, method="POST", body=content.encode())).body
