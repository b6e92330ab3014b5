"""The check of the hosts finds what is wrong: an app without callfuse, a host that holds streams back."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import httpx
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


@contextmanager
def _client(app: App) -> Iterator[httpx.Client]:
    with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=10) as http:
        yield http


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

    with _client(holding) as http:
        assert client.is_buffered(http, client.PATH, timeout_s=0.5)
    with _client(models) as http:
        assert not client.is_buffered(http, client.PATH)
