"""Follow the live page of a running server, across restarts of the server. Needs aiohttp.

It requests the same JSON as the page's script (`admin/live.py`). Answers are parsed into the types of this file. A
wrong token or a wrong address is an error at once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Annotated, Any, Final, TypeVar

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callfuse.boundary import Boundary
from callfuse.cli.running import REFUSED, UNAUTHORIZED, UNREACHABLE, RunningServer
from callfuse.observe.printable import plain
from callfuse.wire.jsontext import loads

POLL_S: Final = 1.0
"""The pause between two requests, the same as in the page's script."""
ANSWER_S: Final = 10.0
"""How long an answer may take."""
LONGEST_ANSWER: Final = 16 * 1024 * 1024
"""The most bytes of an answer. A server with a longer answer is not callfuse."""
LONGEST_REFUSAL: Final = 10_000
"""The most bytes of a refusal that are read."""
_FOR_A_WHILE: Final = (502, 503, 504)
"""Statuses of a server that starts or stops."""
_OK: Final = 200
_UNKNOWN: Final = 404
SESSION: Final = "activity/session"

Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _PageValue(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class ShownBead(_PageValue):
    """A call of a lane (`observe/beads.py`)."""

    tool: str
    sign: int
    action: str
    held: Number | None


class ShownLane(_PageValue):
    """One conversation of a session, with its newest calls."""

    calls: int
    holding: Number | None
    blown: bool
    beads: list[ShownBead]


class ShownSession(_PageValue):
    """One session with its newest lanes."""

    session: str
    model: str
    dialect: str
    used: Number
    counts: dict[str, Amount]
    changes: list[Any]
    more_lanes: int
    lanes: list[ShownLane]


class Named(_PageValue):
    """A session that has not changed since the last request, so only its name is sent."""

    session: str


class ShownPage(_PageValue):
    """A page of sessions, the last used one first. `matching`: the number of all sessions."""

    server: str
    version: int
    now: Number
    matching: int
    sessions: list[ShownSession | Named]


class Alone(ShownSession):
    """One session with everything known about it."""

    now: Number


class ShownRates(_PageValue):
    """Totals since the start, and amounts in buckets of `bucket_s` seconds."""

    bucket_s: Annotated[int, Field(ge=1)]
    totals: dict[str, Amount]
    series: dict[str, list[Amount]]


class PageContent(_PageValue):
    """The content to draw. `rates`: None if only one session is shown; `totals` are then those of the session."""

    now: Number = 0.0
    totals: dict[str, Amount] = Field(default_factory=dict)
    rates: ShownRates | None = None
    matching: int = 0
    sessions: list[ShownSession] = Field(default_factory=list)


A = TypeVar("A", bound=_PageValue)


class PageRefused(Exception):
    """Raised if the server permanently refuses to show its page. The message says why."""


class PageState(Enum):
    """The state of the connection to the server."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost, reconnecting"


class _UnknownError(Exception):
    """Raised if the server does not know the session."""


class _LostError(Exception):
    """Raised if the server temporarily cannot answer."""


class PageFollower:
    """Follows the page of `server`. `session`: only this one; empty: the `most` last used ones. `shown`: the current
    content; `state`: the state of the connection."""

    def __init__(self, server: RunningServer, session: str = "", most: int = 60) -> None:
        self.state = PageState.CONNECTING
        self.shown = PageContent()
        self._server = server
        self._session_name = session
        self._most = most
        self._known: dict[str, ShownSession] = {}
        self._name, self._version = "", 0

    async def follow(self) -> None:
        """Follow forever. Raises PageRefused, also if the server cannot be reached at the first try."""
        async with self._session() as http:
            while True:
                try:
                    await self._look(http)
                except (aiohttp.ClientError, TimeoutError, OSError, _LostError) as error:
                    if self.state is PageState.CONNECTING:
                        raise PageRefused(self._unreachable(error)) from error
                    self.state = PageState.LOST
                await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Request the page once. Raises PageRefused."""
        async with self._session() as http:
            try:
                await self._look(http)
            except (aiohttp.ClientError, TimeoutError, OSError, _LostError) as error:
                raise PageRefused(self._unreachable(error)) from error

    async def _look(self, http: aiohttp.ClientSession) -> None:
        rates = await self._ask(http, "rates", {}, ShownRates)
        self.shown = await (self._one(http) if self._session_name else self._all(http, rates))
        self.state = PageState.LIVE

    async def _one(self, http: aiohttp.ClientSession) -> PageContent:
        """Request the followed session; no session while the server does not know it."""
        try:
            found = await self._ask(http, SESSION, {"session": self._session_name, "bead": "0"}, Alone)
        except _UnknownError:
            return PageContent()
        return PageContent(now=found.now, totals=found.counts, matching=1, sessions=[found])

    async def _all(self, http: aiohttp.ClientSession, rates: ShownRates) -> PageContent:
        """Request the last used sessions. A session that has not changed is taken from the last request."""
        page = await self._page(http, 0)
        version, found = page.version, self._told(page)
        for number in range(1, self._most):
            before = len(found)
            if before >= min(self._most, page.matching):
                break
            page = await self._page(http, number)
            found |= self._told(page)
            if len(found) == before:
                break
        self._known, self._name, self._version = found, page.server, version
        sessions = list(found.values())
        return PageContent(now=page.now, totals=rates.totals, rates=rates, matching=page.matching, sessions=sessions)

    def _told(self, page: ShownPage) -> dict[str, ShownSession]:
        """Return the sessions of a page by name."""
        told = [one if isinstance(one, ShownSession) else self._known[one.session] for one in page.sessions]
        return {one.session: one for one in told}

    async def _page(self, http: aiohttp.ClientSession, number: int) -> ShownPage:
        """Request a page. The server leaves out sessions that have not changed since the last request."""
        known = {"server": self._name, "since": str(self._version)}
        page = await self._ask(http, "activity", {"page": str(number), **known}, ShownPage)
        if all(isinstance(one, ShownSession) or one.session in self._known for one in page.sessions):
            return page
        page = await self._ask(http, "activity", {"page": str(number)}, ShownPage)
        if not all(isinstance(one, ShownSession) for one in page.sessions):
            raise PageRefused(self._is_none("activity"))
        return page

    def _unreachable(self, error: Exception) -> str:
        return (
            f"{plain(self._server.url)} cannot be reached: {plain(str(error) or type(error).__name__)}; {UNREACHABLE}"
        )

    def _is_none(self, below: str) -> str:
        return f"{plain(self._server.url)}/{below} is not a live page of callfuse"

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        # No proxy from the environment: only the server may get the token.
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
            yield http

    async def _ask(self, http: aiohttp.ClientSession, below: str, query: Mapping[str, str], kind: type[A]) -> A:
        """Request an endpoint of the page."""
        headers = {"authorization": f"Bearer {self._server.token}", "accept": "application/json"}
        url = f"{self._server.url}/{below}"
        # Follows no redirect, which would send the token elsewhere.
        async with http.get(url, headers=headers, params=query, allow_redirects=False) as answer:
            if answer.status in _FOR_A_WHILE and self.state is not PageState.CONNECTING:
                raise _LostError(f"the server answered {answer.status}")
            if answer.status == _UNKNOWN and below == SESSION:
                raise _UnknownError
            body = await _read(answer, LONGEST_ANSWER if answer.status == _OK else LONGEST_REFUSAL)
            if answer.status != _OK:
                raise PageRefused(f"{plain(self._server.url)}: {plain(_why(answer.status, body), 500)}")
            try:
                return kind.model_validate_json(body)
            except ValidationError:
                raise PageRefused(self._is_none(below)) from None


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Read the body of an answer, and cut it if it is too long."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > most:
            break
    return bytes(body[:most])


def _why(status: int, body: bytes) -> str:
    """Return the reason for a server's refusal."""
    why = f"the server answered {status}"
    with Boundary():  # the body may not be JSON, or have another shape
        why = str(loads(body)["error"])
    return REFUSED if status == UNAUTHORIZED else why
