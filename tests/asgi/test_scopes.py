"""Scopes and headers as hosts give them: each call of the app has its own, and the host finds what was written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from callfuse.asgi.scopes import hand_back, snapshot
from callfuse.asgi.types import Message, Receive, Scope, Send
from tests.guard.driving import each_kit
from tests.support.asgi import Request, drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, reply, streamed_and_whole
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import ScriptedApp, play


@dataclass
class Cached:
    """What a framework keeps of a request, once it is read."""

    body: bytes | None = None
    headers: list[tuple[bytes, bytes]] | None = None


class CachingHost:
    """A framework that caches body and headers in `scope["state"]`, as Litestar does, and hands the cached ones on."""

    def __init__(self, app: ScriptedApp) -> None:
        self._app = app
        self.states: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.states.append(dict(scope["state"]))
        cached = scope["state"].setdefault("_ls_connection_state", Cached())
        if cached.body is None:
            cached.body = (await receive())["body"]
            cached.headers = scope["headers"]
        scope["state"]["user"] = "set inside"

        async def again() -> Message:
            return {"type": "http.request", "body": cached.body}

        scope["route"] = "/the/route"
        await self._app({**scope, "headers": cached.headers}, again, send)


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("outer", [False, True], ids=["inside", "around"])
async def test_what_a_framework_caches_of_the_first_call(kit: DialectKit, stream: bool, outer: bool) -> None:
    """The call that asks again is made with its own body and headers, though the framework cached the first ones; its
    state is what the host had put there."""
    inner = play(reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream))
    host = CachingHost(inner)
    found: list[Any] = []

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        """The host's outer middleware: it looks at the scope when the answer starts, and behind the call."""
        scope["state"]["pool"] = pool
        if outer:
            scope["state"]["_ls_connection_state"] = Cached()

        async def look(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.append((scope["state"]["user"], scope["route"]))
            await send(message)

        await guard(host, "chance_then_block")(scope, receive, look)
        found.append((scope["state"]["user"], scope["route"]))

    pool = object()
    request = ask(kit, spin(), stream=stream)
    exchange = await drive(around, request)
    first, second = inner.heard
    assert first.body == request.body
    assert MARK.encode() in second.body
    assert second.header(b"content-length") == str(len(second.body)).encode()
    assert MARK.encode() not in exchange.body
    assert [state["pool"] for state in host.states] == [pool, pool]
    assert "user" not in host.states[1]
    assert found == [("set inside", "/the/route")] * 2


@each_kit
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("ladder", ["warn", "block"])
async def test_the_host_finds_what_the_app_wrote(kit: DialectKit, rounds: int, ladder: str) -> None:
    """Watched, guarded or changed: the route is there behind the call, and the headers are the client's."""
    inner = play(reply(kit, elsewhere(), stream=True))
    given: list[Scope] = []

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = "/the/route"
        await inner(scope, receive, send)

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        given.append(scope)
        await guard(routed, ladder)(scope, receive, send)

    request = ask(kit, spin(rounds), stream=True)
    request = Request(request.path, request.body, (*request.headers, (b"x-callfuse-mode", b"warn")))
    await drive(around, request)
    assert given[0]["route"] == "/the/route"
    assert given[0]["headers"] == request.scope()["headers"]


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("rounds", [1, 2])
async def test_headers_that_can_be_read_once(kit: DialectKit, stream: bool, rounds: int) -> None:
    """Of the request and of the answers: both sides get each of them."""
    given = reply(kit, again(), stream=stream)
    heard: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(list(scope["headers"]))
        start = {"type": "http.response.start", "status": 200, "headers": (one for one in given.headers)}
        await send(start)
        await send({"type": "http.response.body", "body": given.body})

    plain = ask(kit, spin(rounds), stream=stream)

    class Once(Request):
        def scope(self) -> Scope:
            headers: Iterator[tuple[bytes, bytes]] = iter(plain.scope()["headers"])
            return {**plain.scope(), "headers": headers}

    exchange = await drive(guard(app, "block"), Once(plain.path, plain.body))
    names = {name for name, _ in exchange.headers}
    assert names >= {name for name, _ in given.headers if name != b"content-length"}
    assert {name for name, _ in heard[0]} >= {name for name, _ in plain.headers}
    assert (MARK.encode() in exchange.body) is (rounds == 2)


def test_a_snapshot_shares_what_the_state_holds() -> None:
    """Its mapping is a copy, its values are the host's own: pools, clients, locks. Another kind of state stays."""
    pool = object()
    scope: Scope = {"type": "http", "state": {"pool": pool, "_ls_connection_state": Cached(b"x")}}
    made = snapshot(scope)
    assert made["state"] == {"pool": pool}
    made["state"]["more"] = 1
    assert "more" not in scope["state"]
    assert snapshot({"type": "http"}) == {"type": "http"}
    assert snapshot({"state": pool})["state"] is pool


def test_the_headers_are_not_handed_back() -> None:
    """All else is."""
    given: Scope = {"headers": [(b"a", b"1")], "path": "/"}
    hand_back({"headers": [], "path": "/b", "route": 1}, given)
    assert given == {"headers": [(b"a", b"1")], "path": "/b", "route": 1}
    hand_back(given, given)
    assert given["path"] == "/b"
