"""The app itself: lifespan, websocket, shutdown, and what it does not serve."""

import asyncio
from collections.abc import Iterator

import pytest

from callfuse.config.serve import ServeSettings
from callfuse.errors import ConfigError
from callfuse.proxy.app import ReverseProxy
from tests.proxy.proxying import Recorder
from tests.proxy.wire import CHUNKED, END, Peer, chunk, get
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream as listening
from tests.support.asgi import Message, Receive
from tests.support.serving import serve


def saying(*kinds: str) -> Receive:
    """A host that says these and nothing more."""
    messages: Iterator[str] = iter(kinds)

    async def receive() -> Message:
        return {"type": next(messages)}

    return receive


async def sent_by(scope: Message, receive: Receive) -> list[Message]:
    """What the app says to a host."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await ReverseProxy(ServeSettings(upstream="http://127.0.0.1:1"))(scope, receive, send)
    return sent


async def test_a_lifespan() -> None:
    """Start and end are confirmed, and the session is closed with the end."""
    sent = await sent_by({"type": "lifespan"}, saying("lifespan.startup", "lifespan.shutdown"))
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_refused() -> None:
    """The handshake is closed before it is accepted, which servers answer with 403."""
    sent = await sent_by({"type": "websocket", "path": "/"}, saying("websocket.connect"))
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_a_client_that_is_gone_already() -> None:
    """Nothing is asked and nothing sent."""
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    assert await sent_by(scope, saying("http.disconnect")) == []


async def test_an_unknown_scope() -> None:
    """The host is told what the app serves."""
    with pytest.raises(RuntimeError, match="'tcp' is unknown; this app serves http and lifespan"):
        await sent_by({"type": "tcp"}, saying())


def test_without_an_upstream() -> None:
    """It is an error before anything is served."""
    with pytest.raises(ConfigError, match=r"serve\.upstream is not set"):
        ReverseProxy(ServeSettings())


async def test_an_open_stream_ends_before_the_shutdown() -> None:
    """A server that was told to stop lets the stream end; the connection to the upstream is closed after that."""
    stopping, closed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"first"))
        await asyncio.wait_for(stopping.wait(), 30)
        await peer.send(chunk(b"second") + END)
        assert await peer.rest() == b""
        closed.set()

    async with listening(script) as origin:
        serving = serve(ReverseProxy(ServeSettings(upstream=origin)))
        async with connect(await serving.__aenter__()) as client:
            await client.send(get("/"))
            await client.until(b"first\r\n")
            stopped = asyncio.create_task(serving.__aexit__(None, None, None))
            await asyncio.sleep(0.3)  # the server looks up from its work ten times a second
            assert not stopped.done()
            stopping.set()
            assert await client.until(END) == b"6\r\nsecond\r\n" + END
            await asyncio.wait_for(stopped, 30)
        await asyncio.wait_for(closed.wait(), 30)


async def test_a_session_is_opened_again_after_its_end() -> None:
    """An app that is started twice, one after the other, serves twice."""
    upstream = Recorder()
    async with listening(upstream) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        for _ in range(2):
            async with serve(proxy) as base_url, connect(base_url) as client:
                await client.send(get("/"))
                assert (await client.response())[1] == b"ok"
    assert upstream.connections == 2
