"""Serve the live page: its HTML, script and style, and its JSON data.

| path | |
|---|---|
| `activity` | a page of sessions, the last used one first; `?page=0&search=...&found=1&server=...&since=VERSION` |
| `activity/session` | all lanes and beads of one, and its changeable settings; `?session=ID&bead=NUMBER` |
| `rates` | totals since the start, and amounts in buckets of time |

Sessions that have not changed since the version `since` of the activity `server` are not sent again. Processes that
share a store show the same activity, with the same versions and numbers of beads, so a page may ask any of them.
`alone` means that the store is down, and this process shows its own events.

The script puts every foreign text into the page as text, never as HTML, and the Content-Security-Policy allows nothing
but the package's own files.
"""

from collections.abc import Awaitable, Callable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from callfuse import __version__
from callfuse.admin.access import Access
from callfuse.admin.queries import UNKNOWN, changeable
from callfuse.asgi import CallFuseMiddleware
from callfuse.conversations.identity import session_name
from callfuse.observe.activity import MAX_SESSIONS, Activity
from callfuse.observe.view import View

Endpoint = Callable[[Request], Awaitable[Response]]

PAGE_SIZE: Final = 20
"""The number of sessions on a page."""
LANES_SHOWN: Final = 3
"""The most lanes of a session in the list. Its details have all of them."""
BEADS_SHOWN: Final = 40
"""The most beads of such a lane."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the live page."""


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_PAGE: Final = Template(_read("live.html")).substitute(version=escape(__version__))
_SCRIPT: Final = _read("page.js")
_FINDINGS: Final = _read("findings.js")
_EXCHANGE: Final = _read("exchange.js")
_OPENAPI: Final = _read("openapi.json")
_STYLE: Final = _read("page.css")


async def live_page(_: Request) -> Response:
    """Return the page. It is the same for all users; its script requests the data."""
    return HTMLResponse(_PAGE, headers={"content-security-policy": POLICY})


class LivePage:
    """The endpoints of the live page. `endpoints`: each by its path."""

    def __init__(self, middleware: CallFuseMiddleware, access: Access, view: View) -> None:
        self._middleware = middleware
        self._access = access
        self._view = view
        self.endpoints: Mapping[str, Endpoint] = {
            "/activity": self._list,
            "/activity/session": self._session,
            "/rates": self._rates,
            "/page.js": _file(_SCRIPT, "text/javascript"),
            "/findings.js": _file(_FINDINGS, "text/javascript"),
            "/exchange.js": _file(_EXCHANGE, "text/javascript"),
            "/page.css": _file(_STYLE, "text/css"),
            "/openapi.json": _file(_OPENAPI, "application/json"),
        }

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        activity = await self._look(request)
        shown = await run_in_threadpool(
            activity.page,
            _number(asked.get("page")),
            PAGE_SIZE,
            search=asked.get("search", ""),
            found=asked.get("found") == "1",
            since=_number(asked.get("since")) if asked.get("server") == activity.server else 0,
            lanes=LANES_SHOWN,
            beads=BEADS_SHOWN,
        )
        return JSONResponse({**shown, "page_size": PAGE_SIZE, "alone": self._view.alone})

    async def finding(self, request: Request, finding_id: str) -> Response | None:
        """Return the session of a finding, with everything known about its call; None if the live page does not keep
        it."""
        activity = await self._look(request)
        place = activity.place_of(finding_id)
        found = None if place is None else await run_in_threadpool(activity.session, *place)
        if place is None or found is None:
            return None
        known = await changeable(self._middleware, self._access, found["session"])
        return JSONResponse({**found, **known, "is_kept": False, "bead": place[1]})

    async def sessions(self, request: Request) -> list[dict[str, Any]]:
        """List all kept sessions, the last used one first, without their lanes."""
        activity = await self._look(request)
        shown = await run_in_threadpool(activity.page, 0, MAX_SESSIONS, lanes=0, beads=0)
        found: list[dict[str, Any]] = shown["sessions"]
        return found

    async def _session(self, request: Request) -> Response:
        query = request.query_params
        asked, bead = query.get("session", ""), _number(query["bead"]) if "bead" in query else None  # 0 selects no bead
        activity = await self._look(request)
        found = await run_in_threadpool(activity.session, asked, bead)
        if found is None:
            found = await run_in_threadpool(activity.session, session_name(asked), bead)
        if found is None:
            return JSONResponse({"error": f"session {asked!r} is unknown: {UNKNOWN}"}, 404)
        return JSONResponse({**found, **await changeable(self._middleware, self._access, found["session"])})

    async def _rates(self, request: Request) -> Response:
        return JSONResponse((await self._look(request)).rates())

    async def _look(self, request: Request) -> Activity:
        """Update the activity, at least to the version that the page already has."""
        asked = request.query_params
        return await self._view.look(asked.get("server", ""), _number(asked.get("since")))


def _file(content: str, media_type: str) -> Endpoint:
    """Make an endpoint that returns a file of the package."""

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return answer


def _number(value: str | None) -> int:
    """Parse a number of a query; 0 if it is missing or invalid."""
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 17 else 0
