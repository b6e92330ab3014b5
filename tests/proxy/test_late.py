"""Clients that fall silent in their request: each wait has a limit, after which the connection is free again."""

import asyncio
import pickle

import pytest

from callfuse.cli.patience import PatientConfig, PatientProtocol
from callfuse.cli.serve import uvicorn_options
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.proxy.proxying import Recorder, through
from tests.proxy.wire import Peer, chunk, get, post, upstream
from tests.proxy.wire import client as connect
from tests.support.serving import serve

LIMIT_S = 0.2


class Quick(PatientProtocol):
    """With a short limit."""

    head_timeout_s = LIMIT_S


@pytest.mark.parametrize(
    "said",
    [
        b"content-length: 10\r\n\r\n",
        b"content-length: 10\r\n\r\nhalf",
        b"transfer-encoding: chunked\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n" + chunk(b"half"),
        b"content-length: 1000000\r\n\r\n" + b"x" * 500_000,
    ],
    ids=["no body", "half", "no chunk", "one chunk", "much"],
)
async def test_a_body_that_does_not_come(said: bytes) -> None:
    """408, not to be sent again as it is, and the connection is closed."""

    async def script(peer: Peer) -> None:
        await peer.rest()

    async with through(script, read_timeout_s=LIMIT_S) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + said)
        head, body = await client.response()
        assert head.line.split()[1] == b"408"
        assert head.all(b"x-should-retry") == [b"false"]
        assert b"serve.read_timeout_s" in body
        assert await client.rest() == b""


async def test_a_body_that_comes_slowly() -> None:
    """The limit is on the waiting for so many bytes as come slowly, but come: not on the whole."""
    recorder = Recorder()
    async with through(recorder, read_timeout_s=1.0) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(0.1)
            await client.send(chunk(b"x" * 200))
        await client.send(b"0\r\n\r\n")
        head, _ = await client.response()
    assert head.line.split()[1] == b"200"
    assert recorder.body == b"x" * 12 * 200


async def test_a_body_that_comes_by_drops() -> None:
    """A byte now and then is as good as nothing: 408, although no pause is as long as the limit."""

    async def script(peer: Peer) -> None:
        await peer.rest()

    async def drip(client: Peer) -> None:
        while True:
            await client.send(chunk(b"x"))
            await asyncio.sleep(LIMIT_S / 4)

    async with through(script, read_timeout_s=LIMIT_S) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        dripping = asyncio.create_task(drip(client))
        head, _ = await asyncio.wait_for(client.response(), 20)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert head.line.split()[1] == b"408"


@pytest.mark.parametrize(
    ("said", "answered"),
    [(b"", False), (b"POST /v1/mess", True), (b"GET / HTTP/1.1\r\nhost: x\r\n", True)],
    ids=["nothing", "half a line", "no end"],
)
@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
async def test_a_head_that_does_not_come(said: bytes, answered: bool, before: int) -> None:
    """The connection is closed; with a 408 if a head had begun."""
    recorder = Recorder()
    async with upstream(recorder) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        async with serve(proxy, http=Quick, timeout_keep_alive=1) as base_url, connect(base_url) as client:
            for _ in range(before):
                await client.send(get("/"))
                assert (await client.response())[1] == b"ok"
            await client.send(said)
            rest = await client.rest()
    assert rest.startswith(b"HTTP/1.1 408 ") is answered
    assert (b"x-should-retry: false" in rest) is answered


async def test_a_long_answer_is_not_cut() -> None:
    """While a request is answered, no limit of its head counts."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await go_on.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with upstream(script) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        async with serve(proxy, http=Quick) as base_url, connect(base_url) as client:
            await client.send(post("/"))
            await asyncio.sleep(2 * LIMIT_S)
            go_on.set()
            assert (await client.response())[1] == b"ok"


def test_serve_has_the_limit() -> None:
    """`callfuse serve` runs uvicorn with it, and so do its workers, to which the configuration is pickled."""
    options = uvicorn_options(ServeSettings(upstream="http://h", read_timeout_s=7))
    config = pickle.loads(pickle.dumps(PatientConfig("app:app", **options)))
    assert (config.http, config.head_timeout_s) == (PatientProtocol, 7)
