"""The check of the hosts finds what is wrong: an app without callfuse, a host that holds streams back."""

from importlib import import_module
from typing import Any

import anyio
import pytest

from callfuse import CallFuseMiddleware
from callfuse.testing import served
from tests.hosts import client
from tests.hosts.mounting import APPS
from tests.support.asgi import App, Receive, Scope, Send

pytestmark = pytest.mark.slow


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> App:
    """The plain ASGI app of the scripted models."""
    monkeypatch.syspath_prepend(str(APPS / "common"))
    app: App = import_module("bare").app
    return app


def test_a_guarded_app_passes(models: App) -> None:
    """In one process, with uvicorn."""
    with served(CallFuseMiddleware(models)) as url:
        client.check(url)


def test_an_app_without_a_guard_is_found(models: App) -> None:
    """Its agent goes on."""
    with served(models) as url, pytest.raises(AssertionError):
        client.check(url)


def test_a_stream_that_is_held_back_is_found(models: App) -> None:
    """The whole answer comes at its end."""

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        kept: list[Any] = []

        async def keep(message: Any) -> None:
            kept.append(message)

        if scope["type"] != "http":
            await models(scope, receive, send)
            return
        await models(scope, receive, keep)
        for message in kept:
            await send(message)

    with served(holding) as url:
        assert client.is_buffered(url, timeout_s=0.5)
    with served(models) as url:
        assert not client.is_buffered(url)


def test_work_that_goes_on_is_found(models: App) -> None:
    """Of a host that does not tell its app that the client has left."""

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                await anyio.sleep(client.TIMEOUT_S)
            return message

        await models(scope, hear, send)

    with served(deaf) as url:
        assert not client.is_ended(url, timeout_s=0.5)
    with served(models) as url:
        assert client.is_ended(url)
