"""The admin app: an ASGI app that its owner mounts where he likes, `app.mount("/_callfuse", AdminApp(fuse))`.

| path | |
|---|---|
| `health` | JSON, open: it is up, its version, whether the guard is on |
| `settings` | JSON, as `callfuse config explain --json`; `?model=openai:gpt-4o&tool=search_web&session=...` |
| `sessions` | JSON: the sessions that have set something by command |
| `./` | both as a page, and the form that takes the token once |
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from callfuse import __version__
from callfuse.admin import page
from callfuse.admin.access import Access, is_own
from callfuse.admin.looking import UNLISTED, Asked, WrongError, rows_of, sessions_of
from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.types import Message, Receive, Scope, Send
from callfuse.config.effective import as_json
from callfuse.config.environment import ADMIN_TOKEN, admin_token, usable_token
from callfuse.errors import ConfigError

Endpoint = Callable[[Request], Awaitable[Response]]

LONGEST_FORM: Final = 4096
"""Bytes of a login form that are read."""

HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", page.POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Nothing leaves this origin. With `no-referrer` browsers would not name it to the login form either.
    (b"referrer-policy", b"same-origin"),
]
"""What every answer has."""


class AdminApp:
    """The page and its endpoints for one middleware, whose settings and sessions they show as they are when asked.

    `token` opens all but `health`; where it is not given it is that of `CALLFUSE_ADMIN_TOKEN`. Raises ConfigError
    without any, for one that could be guessed, and for anything else in place of the middleware.
    """

    def __init__(self, middleware: CallFuseMiddleware, *, token: str | None = None) -> None:
        if not isinstance(middleware, CallFuseMiddleware):
            what = type(middleware).__name__
            raise ConfigError(f"the admin page is that of a CallFuseMiddleware; give AdminApp yours, not a {what}")
        token = admin_token(os.environ) if token is None else usable_token(token, "keyword")
        if token is None:
            raise ConfigError(f"the admin page has no token; give AdminApp one (token=...), or set {ADMIN_TOKEN}")
        self._middleware = middleware
        self._access = Access(token)
        self._app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/settings", self._guarded(self._settings)),
                Route("/sessions", self._guarded(self._sessions)),
                Route("/", self._index, methods=["GET", "POST"]),
            ],
            exception_handlers={HTTPException: _refused},
        )
        self._app.router.redirect_slashes = False  # it would build addresses of what the client calls this host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        root = scope.get("root_path", "")
        if scope["type"] == "http" and root and scope["path"] == root:  # links on the page are relative to its folder
            query = scope.get("query_string", b"").decode("latin-1")
            there = f"./{quote(root.rpartition('/')[2], safe='~')}/{query and '?'}{query}"
            await Response(status_code=307, headers={"location": there})(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint for whoever may look; what the others get is a way in."""

        async def guarded(request: Request) -> Response:
            return await endpoint(request) if self._access.allows(request) else self._unknown(request)

        return guarded

    def _unknown(self, request: Request, problem: str = "") -> Response:
        headers = {"www-authenticate": 'Bearer realm="callfuse"'}
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(page.login(problem), 401, headers)
        return JSONResponse({"error": problem or f"use Authorization: Bearer with {ADMIN_TOKEN}"}, 401, headers)

    async def _health(self, _: Request) -> Response:
        enabled = self._middleware.settings.enabled
        return JSONResponse({"status": "ok", "version": __version__, "enabled": enabled})

    async def _settings(self, request: Request) -> Response:
        try:
            asked = Asked.read(request.query_params.multi_items())
            rows = rows_of(self._middleware, asked, await sessions_of(self._middleware, self._access))
        except WrongError as wrong:
            return JSONResponse({"error": str(wrong)}, 400)
        return Response(as_json(rows).encode("utf-8", "replace"), media_type="application/json")

    async def _sessions(self, _: Request) -> Response:
        found = await sessions_of(self._middleware, self._access)
        if found is None:
            return JSONResponse({"error": UNLISTED}, 501)
        return JSONResponse([one.as_json() for one in found])

    async def _index(self, request: Request) -> Response:
        return await (self._login if request.method == "POST" else self._guarded(self._page))(request)

    async def _page(self, request: Request) -> Response:
        sessions = await sessions_of(self._middleware, self._access)
        asked, rows, problem = Asked(), None, ""
        try:
            asked = Asked.read(request.query_params.multi_items())
            rows = rows_of(self._middleware, asked, sessions)
        except WrongError as wrong:
            problem = str(wrong)
        return HTMLResponse(page.settings(asked, rows, sessions, problem), 400 if problem else 200)

    async def _login(self, request: Request) -> Response:
        if not is_own(request):
            raise HTTPException(403, "this form was sent from a page of another site")
        if not self._access.opens(await _typed(request)):
            return self._unknown(request, "This is not the token.")
        answer = Response(status_code=303, headers={"location": "./"})
        self._access.grant(request, answer)
        return answer


async def _typed(request: Request) -> str:
    """The token of a login form; nothing where it is none."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_FORM:
                raise HTTPException(413, f"this form is longer than {LONGEST_FORM} bytes")
    except ClientDisconnect:
        return ""
    return dict(parse_qsl(body.decode("latin-1"))).get("token", "").strip()


async def _refused(_: Request, error: Any) -> Response:
    """What Starlette refuses, and what is refused above, in words."""
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
