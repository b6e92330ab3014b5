"""A proxy in front of a scripted upstream, and a client at it: the three ends that nearly every test needs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.proxy.wire import OK, Head, Peer, Script, client, upstream
from tests.support.serving import serve


@asynccontextmanager
async def proxied(script: Script, *, prefix: str = "", **settings: Any) -> AsyncIterator[str]:
    """The base URL of a proxy whose upstream plays the script."""
    async with upstream(script) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin + prefix, **settings))
        async with serve(proxy, server_header=False, date_header=False) as base_url:
            yield base_url


@asynccontextmanager
async def through(script: Script, *, prefix: str = "", **settings: Any) -> AsyncIterator[Peer]:
    """A client connected to such a proxy."""
    async with proxied(script, prefix=prefix, **settings) as base_url, client(base_url) as peer:
        yield peer


class Recorder:
    """An upstream that answers every request with the same bytes and keeps what it heard."""

    def __init__(self, reply: bytes = OK) -> None:
        self.reply = reply
        self.heard: list[tuple[Head, bytes]] = []
        self.connections = 0

    async def __call__(self, peer: Peer) -> None:
        """Answer until the other end closes."""
        self.connections += 1
        while True:
            self.heard.append(await peer.request())
            await peer.send(self.reply)

    @property
    def head(self) -> Head:
        """The head of the only request."""
        ((head, _),) = self.heard
        return head

    @property
    def body(self) -> bytes:
        """The body of the only request."""
        ((_, body),) = self.heard
        return body
