"""WebSocket handshakes on guarded paths: refused with 426, so that clients go on over HTTP; or passed and counted."""

from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from tests.support.asgi import JSON_REQUEST, Message, Request, drive
from tests.support.config import settings
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, given_log
from tests.support.plain import spin
from tests.support.scripted import play, whole

UPGRADE = (*JSON_REQUEST, (b"connection", b"Upgrade"), (b"upgrade", b"WebSocket"))


def handshake(path: str, **more: Any) -> dict[str, Any]:
    """The scope of a handshake as a server gives it that speaks WebSocket."""
    return {"type": "websocket", "path": path, "headers": [], **more}


async def connect(guarded: CallFuseMiddleware, scope: dict[str, Any]) -> list[Message]:
    """What the client of a handshake gets."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded(scope, receive, send)
    return sent


async def accepts(_scope: Any, _receive: Any, send: Any) -> None:
    """An app that takes every handshake."""
    await send({"type": "websocket.accept"})


@every_dialect
async def test_an_upgrade_over_http_is_refused(kit: DialectKit) -> None:
    """By a server that does not speak WebSocket the handshake comes as a GET."""
    app = play(whole(b"{}"))
    guarded = CallFuseMiddleware(app, settings("block"))
    exchange = await drive(guarded, Request(ask(kit, spin(), stream=True).path, headers=UPGRADE, method="GET"))
    assert (exchange.status, app.heard) == (426, [])
    assert exchange.header(b"upgrade") == b"HTTP/1.1"
    assert exchange.header(b"x-should-retry") == b"false"
    assert exchange.complete
    assert b"tool_call_loop.websocket" in exchange.body
    assert guarded.counts.of("refused", "websocket") == 1


@every_dialect
@pytest.mark.parametrize("extension", [True, False])
async def test_a_handshake_is_refused(kit: DialectKit, extension: bool) -> None:
    """With 426 where the server can say so; else it is closed before it is accepted."""
    scope = handshake(
        ask(kit, spin(), stream=True).path, extensions={"websocket.http.response": {}} if extension else {}
    )
    sent = await connect(CallFuseMiddleware(accepts, settings("block")), scope)
    if extension:
        assert [message["type"] for message in sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]
        assert sent[0]["status"] == 426
    else:
        assert [message["type"] for message in sent] == ["websocket.close"]


@every_dialect
async def test_a_handshake_may_pass(kit: DialectKit) -> None:
    """As the operator wants; it is counted as not guarded, and logged once."""
    path = ask(kit, spin(), stream=True).path
    guarded = CallFuseMiddleware(accepts, settings("block", websocket="pass"))
    with given_log() as log:
        for _ in range(2):
            assert [message["type"] for message in await connect(guarded, handshake(path))] == ["websocket.accept"]
    assert guarded.counts.of("not_guarded", "websocket") == 2
    assert len(log) == 1


@pytest.mark.parametrize(("path", "off"), [("/v1/realtime", False), ("/chat", False), ("/v1/responses", True)], ids=str)
async def test_other_handshakes_pass(path: str, off: bool) -> None:
    """Those of paths that no dialect serves, and all where nothing is guarded."""
    block = settings("block")
    if off:
        block["tool_call_loop"]["enabled"] = False
    sent = await connect(CallFuseMiddleware(accepts, block), handshake(path))
    assert [message["type"] for message in sent] == ["websocket.accept"]


async def test_a_plain_get_passes() -> None:
    """Only handshakes are refused: a stored response may be read."""
    app = play(whole(b"{}"))
    exchange = await drive(CallFuseMiddleware(app, settings("block")), Request("/v1/responses", method="GET"))
    assert exchange.status == 200
