"""What is none of callfuse's business passes with the very same objects."""

from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.types import Message, Receive, Scope, Send
from tests.guard.driving import each_kit
from tests.support.config import settings
from tests.support.kits import DialectKit
from tests.support.meeting import ask
from tests.support.plain import spin


class Spy:
    """An app that keeps what it was called with."""

    def __init__(self) -> None:
        self.seen: tuple[Scope, Receive, Send] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen = (scope, receive, send)


async def never() -> Message:
    """A `receive` that must not be called."""
    raise AssertionError("callfuse read from a request that is none of its business")


async def nowhere(message: Message) -> None:
    """A `send` that nobody calls."""
    raise AssertionError(message)


CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "scope",
    [
        {"type": "lifespan"},
        {"type": "websocket", "path": "/chat"},
        {"type": "http", "method": "GET", "path": CHAT},
        {"type": "http", "method": "OPTIONS", "path": CHAT},
        {"type": "http", "method": "POST", "path": "/v1/embeddings"},
        {"type": "http", "method": "POST", "path": "/v1/messages/count_tokens"},
        {"type": "http", "method": "POST", "path": "/v1/messages/batches"},
        {"type": "http", "method": "POST", "path": "/projects/p/models/count-tokens:rawPredict"},
        {"type": "http", "method": "POST", "path": ""},
    ],
)
async def test_what_is_no_exchange_passes_with_the_same_objects(scope: Scope) -> None:
    """Scope, receive and send reach the app themselves, and nothing is read."""
    spy = Spy()
    await CallFuseMiddleware(spy, settings())(scope, never, nowhere)
    assert spy.seen is not None
    assert [one is other for one, other in zip(spy.seen, (scope, never, nowhere), strict=True)] == [True] * 3


@each_kit
async def test_disabled_means_not_one_byte_is_read(kit: DialectKit) -> None:
    """A looping request reaches the app with the very same objects."""
    spy = Spy()
    scope = ask(kit, spin(9), stream=True).scope()
    await CallFuseMiddleware(spy, {"tool_call_loop": {"enabled": False}})(scope, never, nowhere)
    assert spy.seen is not None
    assert [one is other for one, other in zip(spy.seen, (scope, never, nowhere), strict=True)] == [True] * 3


@each_kit
async def test_a_healthy_exchange_keeps_its_scope(kit: DialectKit) -> None:
    """Where no call is suspect the app gets the scope as it is, headers and all."""
    request = ask(kit, spin(1), stream=True)
    scope, messages = request.scope(), iter(request.messages())
    seen: list[Any] = []

    async def app(given: Scope, receive: Receive, _send: Send) -> None:
        seen.extend([given, await receive()])

    async def receive() -> Message:
        return next(messages)

    await CallFuseMiddleware(app, settings())(scope, receive, nowhere)
    assert seen[0] is scope
    assert seen[1] == request.messages()[0]
