"""An answer that a guard goes on with in mid-stream, under trio as under asyncio."""

from typing import Any

import pytest
import trio
import trio.testing

from tests.support.asgi import App, Message, Receive, Request, Scope, Send
from tests.support.config import guard
from tests.support.kits import KITS
from tests.support.meeting import ask, framewise
from tests.support.plain import new_call, once, saying

KIT = KITS[0]
HEARTBEAT = b": keep-alive\n\n"
FRAMES = framewise(KIT, saying("Let me look.", *(new_call(f"call_{at}") for at in range(3)))).chunks
"""An answer whose third call is one too many."""
THIRD = next(at for at, frame in enumerate(FRAMES) if b"call_2" in frame)


def exchange(app: App, request: Request, **settings: Any) -> list[tuple[float, bytes]]:
    """One exchange under trio and a clock that jumps; returns what the client got, and when."""
    got: list[tuple[float, bytes]] = []
    messages = request.messages()

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        got.append((trio.current_time() - began, message.get("body", b"")))

    began = 0.0

    async def turn() -> None:
        nonlocal began
        began = trio.current_time()
        await guard(app, "block", heartbeat_s=15, **settings)(request.scope(), receive, send)

    trio.run(turn, clock=trio.testing.MockClock(autojump_threshold=0))
    return [(when, body) for when, body in got if body]


def slow(silence_s: float, *, raises: Exception | None = None) -> App:
    """An app that falls silent within the third call, then ends its answer or raises."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at, frame in enumerate(FRAMES):
            if at == THIRD + 1:
                await trio.sleep(silence_s)
                if raises is not None:
                    raise raises
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


REQUEST = ask(KIT, once(new_call()), stream=True)


def test_heartbeats_go_on() -> None:
    """While the call waits, every `heartbeat_s`; then it is withheld."""
    got = exchange(slow(50), REQUEST)
    assert [round(when) for when, body in got if body == HEARTBEAT] == [15, 30, 45]
    assert not any(b"call_2" in body for _, body in got)


def test_a_hold_ends_in_time() -> None:
    """After `max_hold_s` the call leaves as it came, and no heartbeat comes behind it."""
    got = exchange(slow(200), REQUEST, max_hold_s=40)
    assert [round(when) for when, body in got if b"call_2" in body] == [40]
    assert [round(when) for when, body in got if body == HEARTBEAT] == [15, 30]
    assert b"".join(body for _, body in got if body != HEARTBEAT) == b"".join(FRAMES)


def test_the_apps_own_error_is_the_apps() -> None:
    """It is raised as it is, not wrapped in a group."""
    with pytest.raises(LookupError, match="mine"):
        exchange(slow(20, raises=LookupError("mine")), REQUEST)
