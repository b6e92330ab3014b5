"""Reads the event feed of a running server into an `Activity`, over restarts of the server. Needs aiohttp.

Where the feed ends or breaks, it is asked for again from the last event on. What a wrong token or a wrong address
brings is an error at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

import aiohttp

from callfuse.boundary import Boundary
from callfuse.cli.running import REFUSED, UNAUTHORIZED, UNREACHABLE, RunningServer
from callfuse.observe.activity import Activity
from callfuse.observe.fields import TIME
from callfuse.observe.printable import plain
from callfuse.observe.reading import read_fields
from callfuse.observe.ring import number_of, read_id
from callfuse.wire.jsontext import loads
from callfuse.wire.sse import SSEFramer, data

FROM_THE_BEGINNING: Final = "0-0"
"""The id that is older than all events: a server tells all that it still has."""
SILENCE_S: Final = 40.0
"""Without a byte for so long, which is more than two heartbeats, the feed is asked for again."""
CONNECT_S: Final = 10.0
AGAIN_S: Final = (0.3, 0.6, 1.2, 2.5, 5.0)
"""Pauses between tries, the last for ever."""
LONGEST_EVENT: Final = 4 * 1024 * 1024
"""Bytes of one event; a server whose event is longer is no callfuse."""
LONGEST_ANSWER: Final = 10_000
"""Bytes of a refusal that are read."""
QUIET_S: Final = 0.6
"""Without an event for so long, all that a server still had has come."""
_FOR_A_WHILE: Final = (502, 503, 504)
"""Statuses of a server that starts, ends, or has too many readers."""


class FeedRefused(Exception):
    """The server will not give the feed, now or later. The message says why."""


class FeedState(Enum):
    """How the feed is."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "lost, asking again"


class FeedFollower:
    """Follows the feed of `server` into `activity`. `session`: only that one; empty: all. `state` is what it does.

    `since`: when the first event that it has taken happened, in Unix seconds; a server tells no older ones.
    """

    def __init__(self, server: RunningServer, activity: Activity, session: str = "") -> None:
        self.state = FeedState.CONNECTING
        self.since: float | None = None
        self._server = server
        self._activity = activity
        self._query = {"session": session} if session else {}
        self._last = FROM_THE_BEGINNING

    async def follow(self) -> None:
        """Follow for ever. Raises Refused, also if the server cannot be reached at the first try."""
        tries = 0
        async with self._session() as http:
            while True:
                try:
                    async for _ in self._events(http):
                        tries = 0
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    if self.state is FeedState.CONNECTING:
                        raise FeedRefused(self._unreachable(error)) from error
                self.state = FeedState.LOST
                await asyncio.sleep(AGAIN_S[min(tries, len(AGAIN_S) - 1)])
                tries += 1

    async def catch_up(self) -> None:
        """Take what the server still has, and return. Raises Refused."""
        async with self._session() as http:
            events = self._events(http)
            try:
                while True:
                    async with asyncio.timeout(CONNECT_S if self.state is FeedState.CONNECTING else QUIET_S):
                        await anext(events)
            except StopAsyncIteration:
                return
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if self.state is FeedState.CONNECTING:
                    raise FeedRefused(self._unreachable(error)) from error

    def _unreachable(self, error: Exception) -> str:
        cause = plain(str(error) or type(error).__name__)
        return f"{plain(self._server.url)} cannot be reached: {cause}; {UNREACHABLE}"

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        # No proxy of the environment: the token is for the server alone.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
            yield http

    async def _events(self, http: aiohttp.ClientSession) -> AsyncIterator[None]:
        """Take the events of one connection; yields when it is open, and after each chunk that has some."""
        headers = {
            "authorization": f"Bearer {self._server.token}",
            "accept": "text/event-stream",
            "last-event-id": self._last,
        }
        url = f"{self._server.url}/events"
        # Follows no redirect, which would take the token elsewhere.
        async with http.get(url, headers=headers, params=self._query, allow_redirects=False) as answer:
            if answer.status in _FOR_A_WHILE and self.state is not FeedState.CONNECTING:
                return
            await self._check(answer)
            self.state = FeedState.LIVE
            yield
            framer = SSEFramer()
            async for chunk in answer.content.iter_any():
                found = [self._take(frame) for frame in framer.feed(chunk)]
                if framer.waiting > LONGEST_EVENT:
                    raise FeedRefused(f"{plain(url)} sends what is no event feed")
                if any(found):
                    yield

    async def _check(self, answer: aiohttp.ClientResponse) -> None:
        """Raises Refused for what is no feed."""
        if answer.status == 200 and answer.content_type == "text/event-stream":
            return
        why = f"the server answered {answer.status}" if answer.status != 200 else "it sends no event feed"
        with Boundary():  # whatever it says may be no JSON, or another one
            why = str(loads(await answer.content.read(LONGEST_ANSWER))["error"])
        if answer.status == UNAUTHORIZED:
            why = REFUSED
        raise FeedRefused(f"{plain(self._server.url)}: {plain(why, 500)}")

    def _take(self, frame: bytes) -> bool:
        """Take an event; returns whether it is one with an id."""
        id_ = _id_of(frame)
        if id_ is None:
            return False
        try:
            number = number_of(read_id(id_))
        except ValueError:
            return False
        self._last = id_
        fields = read_fields(data(frame) or b"")
        if self.since is None:
            self.since = fields.get(TIME)
        self._activity.take_fields(fields, number, is_finished=True)
        return True


def _id_of(frame: bytes) -> str | None:
    """The id of an event; None if it has none."""
    for line in frame.splitlines():
        if line.startswith(b"id:"):
            return line[3:].strip().decode("ascii", "replace")
    return None
