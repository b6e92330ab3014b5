"""What the proxy knows of its upstreams: the last try of each."""

import pytest

from callfuse.config.serve import Route, ServeSettings
from callfuse.proxy import client as clients
from callfuse.proxy.app import ReverseProxy
from tests.proxy.proxying import Recorder
from tests.proxy.wire import client, upstream
from tests.support.redis import free_port
from tests.support.serving import serve

GET = b"GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"


async def ask(proxy: ReverseProxy, request: bytes = GET) -> None:
    """One request through the proxy, and its whole answer."""
    async with serve(proxy) as base_url, client(base_url) as peer:
        await peer.send(request)
        await peer.rest()


async def test_an_upstream_that_answers_is_reached() -> None:
    """Unknown before the first request, and whatever its status."""
    refusing = Recorder(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
    async with upstream(refusing) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        assert proxy.reachable is None
        await ask(proxy)
        assert proxy.reachable is True


async def test_one_that_cannot_be_connected_to_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while; then that is unknown again."""
    proxy = ReverseProxy(ServeSettings(upstream=f"http://127.0.0.1:{free_port()}"))
    await ask(proxy)
    assert proxy.reachable is False
    monkeypatch.setattr(clients, "FAILED_FOR_S", 0.0)
    assert proxy.reachable is None


async def test_one_of_several_is_enough() -> None:
    """Who is down takes the others with it no more than their requests do."""
    async with upstream(Recorder()) as origin:
        down = Route(path="/down", upstream=f"http://127.0.0.1:{free_port()}")
        proxy = ReverseProxy(ServeSettings(upstream=origin, routes=(down,)))
        await ask(proxy, GET.replace(b"/v1", b"/down/v1"))
        assert proxy.reachable is None, "the other has not been tried"
        await ask(proxy)
        assert proxy.reachable is True
