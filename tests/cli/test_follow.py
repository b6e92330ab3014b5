"""What `callfuse top` reads of a live page: all of it once, then what has changed, and nothing else as true."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from callfuse.cli.follow import PageFollower, PageRefused, PageState
from callfuse.cli.running import RunningServer
from callfuse.observe.activity import Activity

PageValue = Callable[[str, dict[str, str]], tuple[int, bytes]]
"""The status and body of an answer, by the path below the page and the query."""


@contextmanager
def serving(answer: PageValue) -> Iterator[RunningServer]:
    """A server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, body = answer(parts.path.removeprefix("/_callfuse/"), query)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield RunningServer(f"http://127.0.0.1:{server.server_address[1]}/_callfuse", "token")
        finally:
            server.shutdown()
            thread.join()


def called(activity: Activity, session: str) -> None:
    """The model makes a call in a session."""
    fields = {"callfuse.event": "call", "gen_ai.conversation.id": session, "gen_ai.tool.name": "search"}
    activity.take_fields({**fields, "callfuse.signature": "00", "callfuse.action": "none"})


class Guarded:
    """A server that shows an activity as the live page does. `sent`: the sessions that it has sent in full."""

    def __init__(self) -> None:
        self.activity = Activity()
        self.sent: list[str] = []

    def __call__(self, below: str, query: dict[str, str]) -> tuple[int, bytes]:
        """PageValue a question."""
        if below == "rates":
            return 200, json.dumps(self.activity.rates()).encode()
        if below == "activity/session":
            found = self.activity.session(query["session"], 0)
            return (200, json.dumps(found).encode()) if found else (404, b'{"error": "is unknown"}')
        since = int(query.get("since", 0)) if query.get("server") == self.activity.server else 0
        page = self.activity.page(int(query["page"]), 20, since=since, lanes=3, beads=40)
        self.sent += [one["session"] for one in page["sessions"] if "lanes" in one]
        return 200, json.dumps(page).encode()


def looks(follower: PageFollower, between: Callable[[], None]) -> None:
    """Two looks, with something between."""

    async def run() -> None:
        async with follower._session() as http:
            await follower._look(http)
            between()
            await follower._look(http)

    asyncio.run(run())


def test_all_sessions_are_read_and_then_what_has_changed() -> None:
    """Over several pages; what is not told again is shown as it was."""
    guarded = Guarded()
    for number in range(45):
        called(guarded.activity, f"s{number}")

    def go_on() -> None:
        guarded.sent.clear()
        called(guarded.activity, "s3")

    with serving(guarded) as server:
        follower = PageFollower(server)
        looks(follower, go_on)
    assert guarded.sent == ["s3"]
    shown = follower.shown
    assert [one.session for one in shown.sessions] == ["s3", *(f"s{n}" for n in range(44, -1, -1) if n != 3)]
    assert [len(one.lanes[0].beads) for one in shown.sessions] == [2] + [1] * 44
    assert (shown.totals["calls"], shown.matching, follower.state) == (46, 45, PageState.LIVE)


def test_another_process_is_read_anew() -> None:
    """After a restart nothing of the one before is shown."""
    guarded = Guarded()
    called(guarded.activity, "before")

    def restart() -> None:
        guarded.activity = Activity()
        called(guarded.activity, "after")

    with serving(guarded) as server:
        follower = PageFollower(server)
        looks(follower, restart)
    assert [one.session for one in follower.shown.sessions] == ["after"]


def test_one_session_alone() -> None:
    """With its own totals; one that is unknown may still come."""
    guarded = Guarded()
    called(guarded.activity, "other")
    with serving(guarded) as server:
        follower = PageFollower(server, "one")
        looks(follower, lambda: called(guarded.activity, "one"))
        assert follower.shown.totals == {"calls": 1}
        assert [one.session for one in follower.shown.sessions] == ["one"]
        stranger = PageFollower(server, "nobody")
        asyncio.run(stranger.look())
    assert (stranger.shown.matching, stranger.state) == (0, PageState.LIVE)


def test_a_server_that_is_busy_for_a_while() -> None:
    """Is lost once it has answered; before that it is refused."""
    guarded, statuses = Guarded(), iter([200, 200, 503])

    def answer(below: str, query: dict[str, str]) -> tuple[int, bytes]:
        status = next(statuses, 503)
        return guarded(below, query) if status == 200 else (status, b"busy")

    with serving(answer) as server:
        follower = PageFollower(server)

        async def until_lost() -> None:
            following = asyncio.ensure_future(follower.follow())
            async with asyncio.timeout(60):
                while follower.state is not PageState.LOST:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
            following.cancel()

        asyncio.run(until_lost())
        with pytest.raises(PageRefused, match="the server answered 503"):
            asyncio.run(PageFollower(server).look())


ENDLESS = {"server": "x", "version": 1, "now": 1, "matching": 10**9, "sessions": []}
RATES = b'{"bucket_s": 10, "totals": {}, "series": {}}'


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"server": "x", "version": 1, "now": NaN, "matching": 0, "sessions": []}',
        b'{"server": 1, "version": 1, "now": 1, "matching": 0, "sessions": []}',
        b'{"server": "x", "version": 1, "now": 1, "matching": 1, "sessions": [{"session": ["x"]}]}',
        b'{"server": "x", "version": 1, "now": 1, "matching": 1, "sessions": [{"session": "never told"}]}',
    ],
)
def test_what_is_no_page(page: bytes) -> None:
    """Is refused, whatever it is."""
    with (
        serving(lambda below, _: (200, RATES if below == "rates" else page)) as server,
        pytest.raises(PageRefused, match="is not a live page"),
    ):
        asyncio.run(PageFollower(server).look())


def test_a_server_that_has_always_more() -> None:
    """Is not asked for ever."""
    asked: list[str] = []

    def answer(below: str, _: dict[str, str]) -> tuple[int, bytes]:
        asked.append(below)
        return 200, RATES if below == "rates" else json.dumps(ENDLESS).encode()

    with serving(answer) as server:
        asyncio.run(PageFollower(server).look())
    assert len(asked) <= 4


def test_a_server_that_is_not_there() -> None:
    """Is said, with what to do."""
    with serving(Guarded()) as server:
        pass
    with pytest.raises(PageRefused, match=r"is `callfuse serve` running there\?"):
        asyncio.run(PageFollower(server).look())
