"""The event feed of the admin page, over a real server and by itself."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from callfuse.admin import events
from callfuse.observe.events import NOWHERE, FuseBlown, Refused
from callfuse.observe.feed import Feed
from tests.admin.asking import BEARER, PATH, TOKEN, Guarded
from tests.observe.test_feed import finding
from tests.support.serving import serve

AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}
WHERE = NOWHERE._replace(session="one")


def feed_in(guarded: Guarded) -> Feed:
    """The feed of a guard's admin page."""
    (feed,) = [sink for sink, _ in guarded.fuse.bus._sinks if isinstance(sink, Feed)]
    return feed


class Frames:
    """The frames of an event stream as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """The fields of the next frame; comments are skipped."""
        found: dict[str, str] = {}
        async with asyncio.timeout(60):
            async for line in self._lines:
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    found[name] = value
                elif found:
                    return found
        raise EOFError

    async def data(self) -> dict[str, Any]:
        """The data of the next frame."""
        value = json.loads((await self.next())["data"])
        assert isinstance(value, dict)
        return value


@asynccontextmanager
async def reading(base: str, query: str = "", **headers: str) -> AsyncIterator[Frames]:
    """The feed at a base URL, read."""
    url = f"{base}{PATH}/events{query}"
    async with httpx.AsyncClient(timeout=60) as client, client.stream("GET", url, headers=AUTHORIZED | headers) as got:
        assert got.status_code == 200, await got.aread()
        yield Frames(got)


@pytest.fixture
async def guarded() -> AsyncIterator[tuple[Guarded, str]]:
    """A guard behind a real server."""
    it = Guarded()
    async with serve(it.app, interface="asgi3") as base:
        yield it, base


async def test_what_happens_is_told(guarded: tuple[Guarded, str]) -> None:
    """With id, name and data, under the headers of every answer."""
    it, base = guarded
    async with reading(base) as frames:
        it.fuse.bus.emit(FuseBlown(WHERE, 5))
        frame = await frames.next()
        headers = frames.response.headers
    assert frame["event"] == "blown"
    data = json.loads(frame["data"])
    assert (data["callfuse.event"], data["gen_ai.conversation.id"], data["callfuse.blocks"]) == ("blown", "one", 5)
    assert abs(data["time"] * 1000 - int(frame["id"].partition("-")[0])) < 1000
    assert headers["content-type"].startswith("text/event-stream")
    assert headers.get_list("cache-control") == ["no-store"]
    assert headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_reader_goes_on_where_it_was(guarded: tuple[Guarded, str]) -> None:
    """By the id of the last event that it has had; where that is too old, it is told so first."""
    it, base = guarded
    async with reading(base) as frames:
        it.fuse.bus.emit(FuseBlown(WHERE, 1))
        last = (await frames.next())["id"]
    it.fuse.bus.emit(FuseBlown(WHERE, 2))
    async with reading(base, **{"last-event-id": last}) as frames:
        it.fuse.bus.emit(FuseBlown(WHERE, 3))
        assert [(await frames.data())["callfuse.blocks"] for _ in range(2)] == [2, 3]
    async with reading(base, **{"last-event-id": "5-0"}) as frames:
        assert (await frames.next())["event"] == "missed"
        assert [(await frames.data())["callfuse.blocks"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?session=one", ["blown"]),
        ("?session=two&session=one", ["blown", "blown"]),
        ("?kind=refused", ["refused"]),
        ("?kind=refused&kind=blown&session=two", ["blown"]),
        ("", ["blown", "blown", "refused"]),
    ],
)
async def test_filters(guarded: tuple[Guarded, str], query: str, expected: list[str]) -> None:
    """By session, by name, and both."""
    it, base = guarded
    async with reading(base, query) as frames:
        for event in (FuseBlown(WHERE, 1), FuseBlown(WHERE._replace(session="two"), 1), Refused("websocket")):
            it.fuse.bus.emit(event)
        assert [(await frames.next())["event"] for _ in expected] == expected


@pytest.mark.parametrize(
    ("query", "headers", "what"),
    [
        ("kind=findng", (), "kind: there is no event or kind of finding 'findng'; did you mean finding?"),
        ("kind=", (), "kind is empty; leave it out for all"),
        ("sesion=a", (), "there is no parameter 'sesion'; did you mean session?"),
        ("&".join(["session=a"] * 51), (), "session is given more than 50 times"),
        ("", ((b"last-event-id", b"<b>"),), "Last-Event-ID: use an id of this feed, as in 1767225600123-0"),
    ],
)
async def test_a_wrong_query_is_told_what_is_right(
    query: str, headers: tuple[tuple[bytes, bytes], ...], what: str
) -> None:
    """With 400."""
    exchange = await Guarded().get("events", query, (*BEARER, *headers))
    assert (exchange.status, json.loads(exchange.body)) == (400, {"error": what})


async def test_it_needs_the_token() -> None:
    """As all else does."""
    assert (await Guarded().get("events", headers=())).status == 401


async def test_there_are_only_so_many_readers() -> None:
    """A further one gets 503, until one leaves."""
    it = Guarded({"admin": {"max_readers": 1}})
    async with serve(it.app, interface="asgi3") as base:
        async with reading(base):
            async with httpx.AsyncClient() as client:
                answer = await client.get(f"{base}{PATH}/events", headers=AUTHORIZED)
            assert (answer.status_code, answer.json()) == (
                503,
                {"error": "there are 1 readers already (admin.max_readers)"},
            )
        async with asyncio.timeout(60):
            while feed_in(it).readers:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        async with reading(base) as frames:
            it.fuse.bus.emit(Refused("websocket"))
            assert (await frames.next())["event"] == "refused"


async def test_a_connection_header_is_not_sent() -> None:
    """HTTP/2 forbids it; and HEAD is answered without a reader."""
    it = Guarded()
    async with serve(it.app, interface="asgi3") as base:
        async with httpx.AsyncClient() as client:
            answer = await client.head(f"{base}{PATH}/events", headers=AUTHORIZED)
        assert (answer.status_code, feed_in(it).readers) == (200, 0)
        async with reading(base) as frames:
            assert "connection" not in frames.response.headers


def test_uvicorn_keeps_its_method() -> None:
    """The import of sse-starlette replaces it; a process of its own shows that it is put back."""
    program = (
        "import uvicorn\nfrom callfuse.admin import events\nimport sys\nassert 'sse_starlette' not in sys.modules\n"
        "before = uvicorn.Server.handle_exit\nevents._maker()\nassert 'sse_starlette' in sys.modules\n"
        "assert uvicorn.Server.handle_exit is before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_one_that_takes_nothing_is_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However full its connection is; others read on meanwhile."""
    monkeypatch.setattr(events, "SEND_TIMEOUT_S", 0.3)
    caplog.set_level(logging.INFO)
    it = Guarded({"admin": {"content": "full"}})
    async with serve(it.app, interface="asgi3") as base, reading(base) as other:
        host, port = base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        try:
            writer.write(f"GET {PATH}/events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode())
            await reader.readexactly(8)
            feed, got = feed_in(it), 0
            async with asyncio.timeout(60):
                while feed.readers > 1:
                    for _ in range(50):
                        it.fuse.bus.emit(finding())  # 8 KB each
                    for _ in range(50):
                        got += (await other.next())["event"] == "finding"
        finally:
            writer.close()
    assert got >= 50
    assert "Traceback" not in caplog.text


async def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the page goes on."""
    monkeypatch.setitem(sys.modules, "sse_starlette.sse", None)
    it = Guarded()
    exchange = await it.get("events")
    assert (exchange.status, "callfuse[serve]" in exchange.body.decode()) == (501, True)
    assert (await it.get("settings")).status == 200
    assert feed_in(it).readers == 0
