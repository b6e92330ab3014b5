"""The header `Host`: the proxy answers to its own names, because the name of a page may lead to it (DNS rebinding)."""

import json
import logging

import pytest

from callfuse.cli.serve import ServeSetup, build_app
from callfuse.config import resolve
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.support.asgi import Request, drive

UPSTREAM = "http://127.0.0.1:1"
OWN = {
    "localhost": ["localhost", "LocalHost:8100", "localhost:"],
    "a loopback address": ["127.0.0.1", "127.0.0.1:8100", "127.8.9.10", "[::1]:8100", "[::ffff:127.0.0.1]"],
}
FOREIGN = [
    "evil.test",
    "evil.test:8100",
    "localhost.evil.test",
    "127.0.0.1.evil.test",
    "127.0.0.1@evil.test",
    "evil.test@localhost",
    "192.168.1.5:8100",
    "[fe80::1]",
    "0.0.0.0:8100",
    "",
    "localhost:x",
    "localhost, evil.test",
    "[localhost",
]


def foreign(*hosts: str, local: str = "127.0.0.1", **settings: object) -> str | None:
    """The first of these `Host` headers that is none of the proxy's."""
    proxy = ReverseProxy(ServeSettings.model_validate({"upstream": UPSTREAM, **settings}))
    headers = [(b"host", host.encode()) for host in hosts]
    return proxy.foreign_host({"type": "http", "headers": headers, "server": (local, 8100)})


@pytest.mark.parametrize("kind", OWN)
def test_own_names(kind: str) -> None:
    """With or without a port."""
    assert [host for host in OWN[kind] if foreign(host) is not None] == []


def test_foreign_names() -> None:
    """Of these a proxy on loopback is none; with two `Host` headers both have to be its own."""
    assert [host for host in FOREIGN if foreign(host) is None] == []
    assert foreign("localhost", "evil.test") == foreign("evil.test", "localhost") == "evil.test"
    assert foreign() is None  # every browser sends one


def test_what_it_listens_on() -> None:
    """By name, and by the address at which the connection has come; on every address any name is its own."""
    assert foreign("callfuse.lan:8100", host="callfuse.lan") is None
    assert foreign("192.168.1.5:8100", host="192.168.1.5", local="192.168.1.5") is None
    assert foreign("evil.test", host="192.168.1.5", local="192.168.1.5") == "evil.test"
    for host in ("0.0.0.0", "::"):
        assert foreign("whatever.test", host=host, local="172.17.0.2") is None


def test_names_that_are_set() -> None:
    """They are added, also where it listens on every address: then no other is served, but a probe's."""
    named = {"hosts": ("Proxy.Internal", "[fd00::1]", "192.168.1.5"), "host": "0.0.0.0"}
    own = ("proxy.internal", "[fd00::1]:8100", "192.168.1.5", "localhost", "172.17.0.2:8100")
    assert [host for host in own if foreign(host, local="172.17.0.2", **named) is not None] == []
    assert foreign("evil.test", local="172.17.0.2", **named) == "evil.test"
    assert foreign("evil.test", hosts=("*",)) is None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/_callfuse/", "/_callfuse/health", "/anything"])
async def test_a_foreign_host_is_refused(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """421 before anything answers, the admin page included; one line in the log, whatever the header holds."""
    resolved = resolve({"serve": {"upstream": UPSTREAM}}, {})
    app = build_app(ServeSetup(resolved, None, token="token-of-the-tests"))
    host = b"evil.test\x1b[2J\x85" + b"x" * 9000
    with caplog.at_level(logging.WARNING):
        exchange = await drive(app, Request(path, b"{}", ((b"host", host),)))
    assert exchange.status == 421
    assert exchange.header(b"x-should-retry") == b"false"
    assert "serve.hosts" in json.dumps(json.loads(exchange.body))
    (line,) = caplog.messages
    assert line.isprintable()
    assert len(line) < 300
    assert line.startswith(f"POST {path}: 421, the Host 'evil.test\\x1b[2J")
