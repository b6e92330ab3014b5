"""Bytes go through as they come, at the pace of the slower side, whatever their number."""

import asyncio
import hashlib

import pytest

from tests.proxy.proxying import proxied, through
from tests.proxy.wire import CHUNKED, END, OK, Peer, chunk, get, unchunked
from tests.proxy.wire import client as connect

BIG_BYTES = 50_000_000
"""More than the system keeps of one connection of the proxy (32 MB on Linux, on a busy machine); the other one's end
is a test's, which has it keep little."""
BLOCK = bytes(range(256)) * 256
STALL_S = 1.0
"""A write that takes longer is taken for blocked; on a slow machine that is only seen too early."""


async def test_an_answer_comes_in_lock_step() -> None:
    """The client has each chunk before the upstream sends the next."""
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        for at in range(5):
            await peer.send(chunk(b"data: %d\n\n" % at))
            await asyncio.wait_for(seen.wait(), 30)
            seen.clear()
        await peer.send(END)

    async with through(script) as client:
        await client.send(get("/"))
        await client.head()
        for at in range(5):
            await client.until(b"data: %d\n\n\r\n" % at)
            seen.set()
        assert await client.until(END) == END


async def test_the_headers_come_before_the_first_chunk() -> None:
    """The client has the headers while the upstream's body is still to come."""
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await asyncio.wait_for(seen.wait(), 30)
        await peer.send(END)

    async with through(script) as client:
        await client.send(get("/"))
        await client.head()
        seen.set()
        assert await client.until(END) == END


async def test_a_request_goes_in_lock_step() -> None:
    """The upstream has each part of the body before the client sends the next."""
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        for at in range(5):
            await peer.until(b"part %d" % at)
            seen.set()
        await peer.until(END)
        await peer.send(OK)

    async with through(script) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for at in range(5):
            await client.send(chunk(b"part %d" % at))
            await asyncio.wait_for(seen.wait(), 30)
            seen.clear()
        await client.send(END)
        assert (await client.response())[1] == b"ok"


async def test_an_answer_can_begin_before_the_request_ends() -> None:
    """Both ways at once: the client reads the answer's first chunk and then sends the rest of its body."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(CHUNKED + chunk(b"go on"))
        await peer.until(b"the rest")
        await peer.send(END)

    async with through(script) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\nfirst")
        await client.until(b"go on\r\n")
        await client.send(b"the rest")
        assert await client.until(END) == END


async def push(peer: Peer) -> int:
    """Write blocks until the other side stops taking them; how many bytes it took."""
    peer.writer.transport.set_write_buffer_limits(high=0)
    pushed = 0
    try:
        while pushed < BIG_BYTES:
            peer.writer.write(BLOCK)
            pushed += len(BLOCK)
            await asyncio.wait_for(peer.writer.drain(), STALL_S)
    except TimeoutError:
        pass
    return pushed


def digest(size: int) -> str:
    """Of so many bytes of blocks."""
    return hashlib.sha256(BLOCK * (size // len(BLOCK))).hexdigest()


SIZE = BIG_BYTES // len(BLOCK) * len(BLOCK) + len(BLOCK)


@pytest.mark.parametrize("framing", [b"content-length: %d" % SIZE, b"transfer-encoding: chunked"])
async def test_a_big_answer_waits_for_a_slow_client(framing: bytes) -> None:
    """While the client does not read, the upstream cannot send on: 50 MB are never held. Then all of it arrives."""
    stalled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    chunked = b"chunked" in framing

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + (b"%x\r\n" % SIZE if chunked else b""))
        pushed = await push(peer)
        stalled.set_result(pushed)
        while pushed < SIZE:
            await peer.send(BLOCK)
            pushed += len(BLOCK)
        await peer.send(b"\r\n" + END if chunked else b"")

    async with through(script) as client:
        await client.send(get("/"))
        head = await client.head()
        assert await asyncio.wait_for(stalled, 60) < BIG_BYTES
        body = await client.body(head)
    assert (len(body), hashlib.sha256(body).hexdigest()) == (SIZE, digest(SIZE))


async def test_a_big_request_waits_for_a_slow_upstream() -> None:
    """While the upstream does not read, the client cannot send on: 50 MB are never held. Then all of it arrives."""
    go_on = asyncio.Event()
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        head = await peer.head()
        await go_on.wait()
        arrived.set_result(await peer.body(head))
        await peer.send(OK)

    async with through(script) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % SIZE)
        pushed = await push(client)
        assert pushed < BIG_BYTES
        go_on.set()
        while pushed < SIZE:
            await client.send(BLOCK)
            pushed += len(BLOCK)
        assert (await client.response())[1] == b"ok"
    body = await arrived
    assert (len(body), hashlib.sha256(body).hexdigest()) == (SIZE, digest(SIZE))


async def test_many_clients_at_once() -> None:
    """A hundred streams run side by side, each with its own bytes, and none waits for another."""
    all_here = asyncio.Event()
    streams = 0

    async def script(peer: Peer) -> None:
        nonlocal streams
        head = await peer.head()
        name = head.line.split()[1]
        streams += 1
        if streams == 100:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 60)
        await peer.send(CHUNKED + chunk(name) + END)

    async with proxied(script) as base_url:

        async def one(at: int) -> bytes:
            async with connect(base_url) as client:
                await client.send(get(f"/stream/{at}"))
                await client.head()
                return unchunked(await client.until(END))[0]

        assert await asyncio.gather(*map(one, range(100))) == [b"/stream/%d" % at for at in range(100)]
