"""The app of `callfuse serve` that other servers run; they themselves are in `tests/hosts/test_servers.py`."""

import inspect
import json
import logging
from collections.abc import MutableMapping
from typing import Any

import pytest

from callfuse.errors import ConfigError
from callfuse.server import create_app

ENV = {"CALLFUSE_SERVE_UPSTREAM": "http://127.0.0.1:9", "CALLFUSE_ADMIN_TOKEN": "the-token-of-the-tests"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a server, and the logging that it finds afterwards."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    logger = logging.getLogger("callfuse")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)


async def test_it_is_the_proxy_with_its_page() -> None:
    """As servers tell what kind of app it is, it is ASGI 3."""
    app = create_app()
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/_callfuse/health",
        "raw_path": b"/_callfuse/health",
    }
    scope |= {"query_string": b"", "headers": [], "scheme": "http", "http_version": "2", "root_path": ""}
    assert inspect.iscoroutinefunction(app)
    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["status"] == "ok"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CALLFUSE_SERVE_UPSTREAM", "serve.upstream = null"),
        ("CALLFUSE_ADMIN_TOKEN", "CALLFUSE_ADMIN_TOKEN is not set"),
    ],
)
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    """Each worker would make a token of its own."""
    monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=said):
        create_app()


def test_without_the_page_no_token_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It protects nothing else."""
    monkeypatch.delenv("CALLFUSE_ADMIN_TOKEN")
    monkeypatch.setenv("CALLFUSE_ADMIN_ENABLED", "off")
    assert callable(create_app())
