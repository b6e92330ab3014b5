"""Provide the admin app, an ASGI app to mount: `app.mount("/_callfuse", AdminApp(fuse))`. `AdminMount` mounts it, too.

| path | |
|---|---|
| `health` | JSON, without token: status, version, whether the guard is enabled |
| `ready` | JSON, without token: 200 or 503, and the state of each part; `?exclude=store` leaves one out |
| `metrics` | for Prometheus |
| `settings` | JSON, as `callfuse config explain --json`; `?model=openai:gpt-4o&tool=search_web&session=...` |
| `sessions` | JSON: all sessions, with their own settings; `?changed=1`: only sessions with their own settings |
| `openapi.json` | JSON: the description of all endpoints, as OpenAPI |
| `events` | the event feed, a stream of `text/event-stream`; `?session=...&kind=...` |
| `reset` | POST: forgets blocks and evidence of a session, and resets its fuse; `?session=...` |
| `allow` | POST: allows a call or a tool from now on, as JSON: `{"finding": ID, "what": "call"}` |
| `feedback` | POST: rates a finding, as JSON: `{"finding": ID, "kind": "false_positive"}` |
| `guardrail` | POST: LiteLLM's guardrail request (`admin/guardrail.py`), with a key of its own |
| `login-code` | POST: a code for one login within a minute, by a link: `./?code=...` |
| `change` | POST: sets or unsets settings of a session; `?session=...` |
| `findings`, `findings/detail` | JSON or CSV: past findings and loops (`admin/findings.py`) |
| `findings/exchange` | JSON: what the vendor sent and the client got (`admin/exchanges.py`); `?id=...` |
| `activity`, `activity/session`, `rates` | JSON: the data of the live page (`admin/live.py`) |
| `./`, `page.js`, `findings.js`, `exchange.js`, `page.css` | the live page, and the form that takes the token once |
| `plain` | settings and sessions as a page without script |
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from anyio import fail_after, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from callfuse import __version__
from callfuse.admin import page
from callfuse.admin.access import Access, is_same_origin
from callfuse.admin.allow import take_allowance
from callfuse.admin.events import feed_of, stream
from callfuse.admin.exchanges import ExchangesPage
from callfuse.admin.feedback import check_file, take_feedback
from callfuse.admin.findings import FindingsPage
from callfuse.admin.guardrail import PATHS as GUARDRAIL_PATHS
from callfuse.admin.guardrail import GuardrailEndpoint
from callfuse.admin.live import LivePage, live_page
from callfuse.admin.queries import UNLISTED, BadQuery, Query, change, read_change, reset, rows_of, sessions_of, with_all
from callfuse.admin.readiness import PARTS, Readiness
from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.config.environment import ADMIN_TOKEN, admin_token, usable_token
from callfuse.config.serve import AdminSettings
from callfuse.conversations.ledger import SharedSessions
from callfuse.errors import ConfigError, install_hint
from callfuse.findings import keep_findings
from callfuse.observe.view import View
from callfuse.policy.nearest import suggest
from callfuse.reference.effective import as_json

if TYPE_CHECKING:
    from callfuse.observe.prometheus import Metrics

Endpoint = Callable[[Request], Awaitable[Response]]

LAST: Final = {"connection": "close", "x-should-retry": "false"}
"""Headers of an answer after which the connection closes."""
LONGEST_FORM: Final = 4096
"""The most bytes of a form, and of a change of settings."""

HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", page.POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Other origins get no referrer. With `no-referrer`, browsers would not send it to the login form either.
    (b"referrer-policy", b"same-origin"),
]
"""Default headers of every answer."""
SANDBOX: Final = (b"content-security-policy", b"sandbox")
"""The header for a foreign page. A policy of its own applies, too."""


class AdminApp:
    """The page and its endpoints for one middleware. Each request reads its current settings and sessions.

    `token` is required for everything except `health` and `ready`; it defaults to the environment variable
    `CALLFUSE_ADMIN_TOKEN`. `metrics`: a `callfuse.observe.prometheus.Metrics` that watches the middleware already, such
    as one in the host's own registry; None makes one, if prometheus-client is installed. `readiness`: the data of
    `ready`; by default only the state of the store. Raises ConfigError if there is no token, if it is too short, if
    `middleware` is not a CallFuseMiddleware, or if the file of `admin.feedback_file` cannot be written.
    """

    def __init__(
        self,
        middleware: CallFuseMiddleware,
        *,
        token: str | None = None,
        metrics: "Metrics | None" = None,
        readiness: Readiness | None = None,
    ) -> None:
        if not isinstance(middleware, CallFuseMiddleware):
            what = type(middleware).__name__
            raise ConfigError(f"AdminApp needs your CallFuseMiddleware, not a {what}")
        token = admin_token(os.environ) if token is None else usable_token(token, "keyword")
        if token is None:
            raise ConfigError(f"the admin page has no token; give AdminApp one (token=...), or set {ADMIN_TOKEN}")
        check_file(middleware.resolved.config.admin.feedback_file)
        self._middleware = middleware
        if isinstance(middleware.ledger, SharedSessions):
            middleware.ledger.index_sessions()
        self._access = Access(token)
        self._feed = feed_of(middleware)
        self._metrics = _metrics_of(middleware) if metrics is None else metrics
        self._readiness = Readiness() if readiness is None else readiness
        self._readiness.watch(middleware.bus)
        view = View(self._feed, middleware.counts, middleware.resolved.config.admin.content)
        live = self._live = LivePage(middleware, self._access, view)
        self._findings = keep_findings(middleware)
        findings = FindingsPage(middleware, self._access, self._findings, live)
        exchanges = ExchangesPage(middleware)
        guardrail = GuardrailEndpoint(middleware, self._access, os.environ)
        self._app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._protect(self._show_metrics)),
                Route("/settings", self._protect(self._settings)),
                Route("/sessions", self._protect(self._sessions)),
                Route("/events", self._protect(self._events)),
                Route("/reset", self._protect(self._reset), methods=["POST"]),
                Route("/feedback", self._protect(self._feedback), methods=["POST"]),
                Route("/allow", self._protect(self._allow), methods=["POST"]),
                Route("/login-code", self._protect(self._login_code), methods=["POST"]),
                Route("/change", self._protect(self._change), methods=["POST"]),
                Route("/plain", self._protect_page(self._page)),
                *[Route(path, guardrail.answer, methods=["POST"]) for path in GUARDRAIL_PATHS],
                *[
                    Route(path, self._protect(endpoint))
                    for part in (live, findings, exchanges)
                    for path, endpoint in part.endpoints.items()
                ],
                Route("/", self._index, methods=["GET", "POST"]),
            ],
            exception_handlers={HTTPException: _as_json, BadQuery: _as_problem},
        )
        self._app.router.redirect_slashes = False  # it would build URLs from the client's Host header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *[pair for pair in HEADERS if pair[0] not in own]]
            await send(message)

        root = scope.get("root_path", "")
        if scope["type"] == "http" and root and scope["path"] == root:  # links on the page are relative to its path
            query = scope.get("query_string", b"").decode("latin-1")
            there = f"./{quote(root.rpartition('/')[2], safe='~')}/{query and '?'}{query}"
            await Response(status_code=307, headers={"location": there})(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def stop(self) -> None:
        """Tell the page that the process stops: it is no longer ready, and readers of the feed are disconnected,
        because they never leave by themselves. Call this in the event loop."""
        self._readiness.draining = True
        self._feed.end()

    def close(self) -> None:
        """Write waiting findings, and close their file. Later findings are not kept. Needed only if the process
        continues without the page, because everything is written at its end."""
        self._middleware.bus.remove(self._findings)
        self._findings.close()

    def _protect(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint so that it needs the token or the cookie; without them, the answer is 401."""

        async def protected(request: Request) -> Response:
            return await endpoint(request) if self._access.allows(request) else self._deny(request)

        return protected

    def _protect_page(self, endpoint: Endpoint) -> Endpoint:
        """Wrap a page so that it needs the token or the cookie. Without them, a browser gets the login form, with
        status 200, because the browser's console would report any other status as a failure."""

        async def protected(request: Request) -> Response:
            is_browser = "text/html" in request.headers.get("accept", "") and "authorization" not in request.headers
            if request.method == "GET" and is_browser and not self._access.allows(request):
                return HTMLResponse(page.login())
            return await self._protect(endpoint)(request)

        return protected

    def _deny(self, request: Request, problem: str = "") -> Response:
        headers = {"www-authenticate": 'Bearer realm="callfuse"'}
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(page.login(problem), 401, headers)
        return JSONResponse({"error": problem or f"use Authorization: Bearer with {ADMIN_TOKEN}"}, 401, headers)

    async def _health(self, _: Request) -> Response:
        enabled = self._middleware.settings.enabled
        return JSONResponse({"status": "ok", "version": __version__, "enabled": enabled})

    async def _ready(self, request: Request) -> Response:
        left_out = request.query_params.getlist("exclude")
        if wrong := [name for name in left_out if name not in PARTS]:
            return JSONResponse({"error": f"there is no part {wrong[0]!r}; {suggest(wrong[0], PARTS)}"}, 400)
        states = {name: state for name, state in self._readiness.states().items() if name not in left_out}
        is_ready = "failed" not in states.values()
        return JSONResponse({"status": "ready" if is_ready else "not ready", **states}, 200 if is_ready else 503)

    async def _show_metrics(self, request: Request) -> Response:
        if self._metrics is None:
            return JSONResponse({"error": f"this needs prometheus-client: {install_hint('serve')}"}, 501)
        accept, encoding = (",".join(request.headers.getlist(name)) for name in ("accept", "accept-encoding"))
        # In a thread, because summing up many workers takes a while.
        body, headers = await to_thread.run_sync(self._metrics.render, accept, encoding)
        return Response(body, headers=headers)

    async def _settings(self, request: Request) -> Response:
        query = Query.read(request.query_params.multi_items())
        rows, is_known = await rows_of(self._middleware, self._access, query)
        headers = {} if is_known else {"x-callfuse-session": "unknown"}
        return Response(as_json(rows).encode("utf-8", "replace"), headers=headers, media_type="application/json")

    async def _sessions(self, request: Request) -> Response:
        sessions = await sessions_of(self._middleware, self._access)
        if sessions is None:
            return JSONResponse({"error": UNLISTED}, 501)
        query = Query.read(request.query_params.multi_items())
        live = [] if query.changed else await self._live.sessions(request)
        return JSONResponse(with_all(sessions, live))

    async def _feedback(self, request: Request) -> Response:
        _check_origin(request)
        return JSONResponse(await take_feedback(self._middleware, await self._read(request)))

    async def _allow(self, request: Request) -> Response:
        _check_origin(request)
        query = Query.read(request.query_params.multi_items())
        return JSONResponse(
            await take_allowance(self._middleware, self._access, query.client, await self._read(request))
        )

    async def _events(self, request: Request) -> Response:
        return await stream(self._feed, request)

    async def _reset(self, request: Request) -> Response:
        _check_origin(request)
        query = Query.read(request.query_params.multi_items())
        names = await reset(self._middleware, self._access, query)
        return JSONResponse({"reset": names})

    async def _change(self, request: Request) -> Response:
        _check_origin(request)
        values = read_change(await self._read(request))
        query = Query.read(request.query_params.multi_items())
        names = await change(self._middleware, self._access, query, values)
        return JSONResponse({"changed": names})

    async def _index(self, request: Request) -> Response:
        if request.method == "GET" and "code" in request.query_params:
            return self._let_in(request)
        return await (self._login if request.method == "POST" else self._protect_page(live_page))(request)

    async def _page(self, request: Request) -> Response:
        query, rows, sessions, is_known = Query(), None, None, True
        problem, unlisted, status = "", UNLISTED, 200
        try:
            sessions = await sessions_of(self._middleware, self._access)
        except BadQuery as wrong:
            unlisted = str(wrong)
        try:
            query = Query.read(request.query_params.multi_items())
            rows, is_known = await rows_of(self._middleware, self._access, query)
        except BadQuery as wrong:
            problem, status = str(wrong), wrong.status
        main = page.settings(query, rows, sessions, problem, unlisted=unlisted, is_known=is_known)
        return HTMLResponse(main, status)

    async def _login(self, request: Request) -> Response:
        _check_origin(request)
        fields = parse_qsl((await self._read(request)).decode("latin-1"))
        if not self._access.is_token(dict(fields).get("token", "").strip()):
            return self._deny(request, "This is not the token.")
        return self._grant(request)

    async def _read(self, request: Request) -> bytes:
        """Read a short body as `_read_body` does, within `read_timeout_s`."""
        return await _read_body(request, self._middleware.settings.read_timeout_s)

    async def _login_code(self, request: Request) -> Response:
        _check_origin(request)
        return JSONResponse({"code": self._access.make_code()})

    def _let_in(self, request: Request) -> Response:
        """Exchange the code of a link for the cookie, and redirect to an address without the code."""
        if not self._access.take_code(request.query_params["code"]) and not self._access.allows(request):
            return self._deny(request, "This link has already been used, or has expired.")
        return self._grant(request)

    def _grant(self, request: Request) -> Response:
        answer = Response(status_code=303, headers={"location": "./"})
        self._access.grant(request, answer)
        return answer


def _metrics_of(middleware: CallFuseMiddleware) -> "Metrics | None":
    """Return the metrics of a middleware, in a registry of their own; None without prometheus-client."""
    try:
        from callfuse.observe.prometheus import Metrics
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("callfuse"):
            raise
        return None
    metrics = Metrics()
    metrics.watch(middleware)
    return metrics


class AdminMount:
    """An app with the admin page: requests at or below `settings.path` go to `admin`, all others to `app`.

    Both have the same origin, and so the same cookie. Pages from `app`, such as an upstream's error page that quotes
    its path, are sandboxed, because their scripts would otherwise have full access to the admin page.
    """

    def __init__(self, app: ASGIApp, admin: ASGIApp, settings: AdminSettings) -> None:
        self._app = app
        self._admin = admin
        self._path = settings.path
        self._holds = settings.holds

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. A lifespan has no path, and goes to `app`."""
        path = scope.get("path", "")
        if path.startswith(self._path) and self._holds(path):
            scope = {**scope, "root_path": scope.get("root_path", "") + self._path}
            return self._admin(scope, receive, send)
        if scope["type"] == "http" and _is_for_a_page(scope["headers"]):
            return self._app(scope, receive, _sandboxed(send))
        return self._app(scope, receive, send)


def _is_for_a_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser would show the answer to a request as a page, or in a frame of one."""
    return any(
        (name == b"accept" and b"text/html" in value) or (name == b"sec-fetch-mode" and value == b"navigate")
        for name, value in headers
    )


def _sandboxed(send: Send) -> Send:
    """Return a `send` that adds the sandbox header, by which a page gets an opaque origin and runs no scripts."""

    async def with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), SANDBOX]}
        await send(message)

    return with_header


def _check_origin(request: Request) -> None:
    """Raise HTTPException (403) for a form from a page of another site."""
    if not is_same_origin(request):
        raise HTTPException(403, "this form was sent from a page of another site")


async def _read_body(request: Request, timeout_s: float) -> bytes:
    """Read a short body; empty if the client leaves. Raises HTTPException: 413 for a long one, 408 for one that is not
    complete after `timeout_s`."""
    body = bytearray()
    try:
        with fail_after(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LONGEST_FORM:
                    raise HTTPException(413, f"this form is longer than {LONGEST_FORM} bytes")
    except ClientDisconnect:
        return b""
    except TimeoutError:
        raise HTTPException(408, f"this form did not arrive within {timeout_s:g} s", LAST) from None
    return bytes(body)


async def _as_json(_: Request, error: Any) -> Response:
    """Answer an HTTPException as JSON."""
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _as_problem(_: Request, wrong: Any) -> Response:
    """Answer a BadQuery as JSON."""
    return JSONResponse({"error": str(wrong)}, wrong.status)
