"""The admin path is the page's alone, and every other the vendor's."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from callfuse.admin import AdminApp
from callfuse.admin.app import AdminMount
from callfuse.config.serve import AdminSettings
from tests.admin.asking import BEARER, BROWSER, TOKEN, Guarded
from tests.support.asgi import Headers, Request, drive


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"])
@pytest.mark.parametrize(
    "path",
    [
        "/_callfuse",
        "/_callfuse/",
        "/_callfuse/health",
        "/_callfuse/nothing",
        "/_callfuse//",
        "/_callfuse/../v1/chat/completions",
        "/_callfuse/v1/chat/completions",
        "/_callfuse/health/../../v1",
        "/_callfuse/\r\n",
        "/_callfuse/ä",
    ],
)
@pytest.mark.parametrize("headers", [(), BEARER])
async def test_no_such_request_reaches_the_vendor(method: str, path: str, headers: Any) -> None:
    """Whatever it asks for, and whoever sends it."""
    guarded = Guarded()
    exchange = await guarded.ask(path, headers, method=method)
    assert exchange.raised is None
    assert exchange.status in (200, 307, 401, 404, 405)
    assert guarded.vendor.paths == []
    if exchange.status == 307:
        assert exchange.header(b"location") == b"./_callfuse/"


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/_callfuses", "/_callfus", "/x/_callfuse/", "//_callfuse/", "/_Callfuse/"]
)
async def test_every_other_does(path: str) -> None:
    """By whole segments, and as it stands."""
    guarded = Guarded()
    assert (await guarded.ask(path)).body == b"vendor"
    assert guarded.vendor.paths == [path]


async def test_another_path() -> None:
    """Then the first one is the vendor's."""
    guarded = Guarded(path="/internal/call-fuse/")
    assert (await guarded.ask("/internal/call-fuse/settings")).status == 200
    assert (await guarded.ask("/_callfuse/settings")).body == b"vendor"


@pytest.mark.parametrize(
    ("method", "below", "status", "told"),
    [
        ("GET", "nothing", 404, "Not Found"),
        ("GET", "settings/", 404, "Not Found"),
        ("POST", "settings", 405, "Method Not Allowed"),
        ("DELETE", "", 405, "Method Not Allowed"),
        ("PUT", "health", 405, "Method Not Allowed"),
    ],
)
async def test_what_is_not_there(method: str, below: str, status: int, told: str) -> None:
    """It is said in JSON."""
    exchange = await Guarded().ask(f"/_callfuse/{below}", method=method)
    assert (exchange.status, json.loads(exchange.body)) == (status, {"error": told})
    assert (exchange.header(b"allow") is not None) is (status == 405)


async def test_a_lifespan_is_the_guarded_app_s() -> None:
    """It has no path."""
    types: list[str] = []

    async def app(scope: Any, _receive: object, _send: object) -> None:
        types.append(scope["type"])

    await AdminMount(app, app, AdminSettings())({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert types == ["lifespan"]


async def test_mounted_in_an_app_of_its_owner() -> None:
    """Below any path, the middleware around it."""
    guarded = Guarded({"tool_call_loop": {"mode": "warn"}})
    app = Starlette(routes=[Mount("/inner/page", AdminApp(guarded.fuse, token=TOKEN))])
    exchange = await drive(app, Request("/inner/page/settings", headers=BEARER, method="GET"))
    rows = {row["key"]: row for row in json.loads(exchange.body)}
    assert rows["tool_call_loop.mode"] == {
        "key": "tool_call_loop.mode", "value": "warn", "tier": "server", "source": "keyword"
    }  # fmt: skip
    opened = await drive(app, Request("/inner/page/", f"token={TOKEN}".encode(), ((b"host", b"h"),)))
    assert b"Path=/inner/page" in (opened.header(b"set-cookie") or b"")
    for method, path, status in (("GET", "nothing", 404), ("PUT", "health", 405)):
        exchange = await drive(app, Request(f"/inner/page/{path}", headers=BEARER, method=method))
        assert (exchange.status, exchange.header(b"cache-control")) == (status, b"no-store")


@pytest.mark.parametrize(
    ("headers", "is_sandboxed"),
    [
        (BROWSER, True),
        (((b"accept", b"*/*"), (b"sec-fetch-mode", b"navigate")), True),
        (((b"accept", b"application/json"),), False),
        ((), False),
    ],
)
async def test_a_page_of_the_vendor_is_not_of_our_origin(headers: Headers, is_sandboxed: bool) -> None:
    """It would have the cookie of the admin page. What is no page passes as it is."""
    guarded = Guarded()
    exchange = await guarded.ask("/v1/error?<script>", headers)
    assert exchange.body == b"vendor"
    assert exchange.header(b"content-security-policy") == (b"sandbox" if is_sandboxed else None)
