"""Several upstreams behind one proxy: which is asked by path, with what, and what is served nowhere."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callfuse.config.serve import Route, ServeSettings
from callfuse.dialects import error_body
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.target import Upstream
from tests.proxy.proxying import Recorder
from tests.proxy.wire import CHUNKED, END, Peer, chunk, client, get, post, upstream
from tests.support.serving import serve

SETTINGS = ServeSettings(
    upstream="http://default",
    routes=(
        Route(path="/anthropic", upstream="http://a", backend="claude"),
        Route(path="/anthropic/eu/", upstream="http://a.eu", backend="claude-eu"),
        Route(path="/b", upstream="http://b"),
    ),
)


@pytest.mark.parametrize(
    ("path", "route", "backend"),
    [
        ("/anthropic", "/anthropic", "claude"),
        ("/anthropic/", "/anthropic", "claude"),
        ("/anthropic/v1/messages", "/anthropic", "claude"),
        ("/anthropic/eu/v1/messages", "/anthropic/eu", "claude-eu"),
        ("/anthropic/europe/v1", "/anthropic", "claude"),
        ("/anthropics/v1", None, None),
        ("/Anthropic/v1", None, None),
        ("/x/anthropic/v1", None, None),
        ("/b/v1", "/b", None),
        ("/", None, None),
        ("", None, None),
    ],
)
def test_the_route_of_a_path(path: str, route: str | None, backend: str | None) -> None:
    """The longest that is whole segments of it."""
    found = SETTINGS.route_of(path)
    assert (found.path if found else None) == route
    assert (found.backend if found else None) == backend


@pytest.mark.parametrize(
    ("scope", "url"),
    [
        ({"path": "/a/v1/x", "raw_path": b"/a/v1/x?k=1", "query_string": b"k=1"}, "http://h/base/v1/x?k=1"),
        ({"path": "/a", "raw_path": b"/a"}, "http://h/base/"),
        ({"path": "/a/", "raw_path": b"/a/"}, "http://h/base/"),
        ({"path": "/a//x/../y", "raw_path": b"/a//x/../%79"}, "http://h/base//x/../%79"),
        ({"path": "/m/a/x", "raw_path": b"/m/a/x", "root_path": "/m"}, "http://h/base/x"),
        ({"path": "/a@evil.test/", "raw_path": b"/a/@evil.test/"}, "http://h/base/@evil.test/"),
    ],
)
def test_the_prefix_is_cut_off(scope: dict[str, Any], url: str) -> None:
    """Before the upstream's own path is added; every other byte stays."""
    assert str(Upstream.parse("http://h/base").url(scope, "/a")) == url


@asynccontextmanager
async def two(**settings: Any) -> AsyncIterator[tuple[str, Recorder, Recorder]]:
    """A proxy before two upstreams, the second below /b, with a password."""
    first, second = Recorder(), Recorder(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
    async with upstream(first) as one, upstream(second) as other:
        routes = [{"path": "/b", "upstream": other.replace("//", "//me:s3cret@") + "/base"}]
        proxy = ReverseProxy(ServeSettings.model_validate({"upstream": one, "routes": routes, **settings}), error_body)
        async with serve(proxy, server_header=False, date_header=False) as base_url:
            yield base_url, first, second


async def test_each_path_has_its_upstream() -> None:
    """Nothing of the one is said to the other: not the path, not the credentials."""
    async with two() as (base_url, first, second), client(base_url) as peer:
        await peer.send(post("/b/v1/messages?x=1", b'{"a": 1}'))
        assert (await peer.response())[0].line == b"HTTP/1.1 201 Created"
        await peer.send(get("/v1/models"))
        assert (await peer.response())[0].line == b"HTTP/1.1 200 OK"
    assert second.head.line == b"POST /base/v1/messages?x=1 HTTP/1.1"
    assert second.body == b'{"a": 1}'
    assert second.head.all(b"authorization") == [b"Basic bWU6czNjcmV0"]
    assert first.head.line == b"GET /v1/models HTTP/1.1"
    assert first.head.all(b"authorization") == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/chat/completions", lambda answer: answer["error"]["message"]),
        ("/v1/messages", lambda answer: answer["error"]["message"] if answer["type"] == "error" else None),
        ("/api/chat", lambda answer: answer["error"]),
        ("/nowhere", lambda answer: answer["error"]["message"]),
    ],
)
async def test_without_an_upstream_of_its_own_a_path_is_refused(path: str, told: Any) -> None:
    """In the path's own format, and so that no client asks again; the routes work."""
    async with two(upstream=None) as (base_url, first, second), client(base_url) as peer:
        await peer.send(post(path))
        head, body = await peer.response()
        assert head.line == b"HTTP/1.1 404 Not Found"
        assert head.all(b"x-should-retry") == [b"false"]
        assert told(json.loads(body)) == f"nothing is served at {path}; paths begin with /b"
        await peer.send(get("/b"))
        assert (await peer.response())[0].line == b"HTTP/1.1 201 Created"
    assert (first.connections, second.connections) == (0, 1)


async def test_new_settings_hold_for_new_exchanges() -> None:
    """What is on its way ends where it began; an upstream that stays keeps its connections."""
    going_on = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"first"))
        await going_on.wait()
        await peer.send(chunk(b"second") + END)

    kept, new = Recorder(), Recorder()
    async with upstream(slow) as old_url, upstream(kept) as kept_url, upstream(new) as new_url:
        before = ServeSettings(upstream=old_url, routes=(Route(path="/kept", upstream=kept_url),))
        proxy = ReverseProxy(before)
        async with serve(proxy) as base_url, client(base_url) as one, client(base_url) as other:
            await other.send(get("/kept"))
            await other.response()
            await one.send(get("/"))
            await one.until(b"first\r\n")
            proxy.configure(before.model_copy(update={"upstream": new_url}))
            await other.send(get("/"))
            assert (await other.response())[1] == b"ok"
            await other.send(get("/kept"))
            await other.response()
            going_on.set()
            assert await one.until(END) == chunk(b"second") + END
    assert (new.connections, kept.connections) == (1, 1)
