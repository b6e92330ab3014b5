"""The client leaves: the upstream learns of it at once, in every phase, and nobody is blamed."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from callfuse.proxy.departure import Departure
from tests.proxy.proxying import proxied, through
from tests.proxy.wire import CHUNKED, END, Peer, chunk, get, post
from tests.proxy.wire import client as connect
from tests.support.asgi import Message, Receive

Run = Callable[[Coroutine[Any, Any, None]], None]

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def leaving(request: bytes, reads: bytes | None, script: Callable[[Peer], Coroutine[Any, Any, None]]) -> bytes:
    """What the upstream read between its script and the end of its connection, the client leaving in that phase."""
    ready, after = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def upstream(peer: Peer) -> None:
        await script(peer)
        ready.set()
        after.set_result(await peer.rest())

    async with through(upstream) as client:
        await client.send(request)
        if reads is not None:
            await client.until(reads)
        await ready.wait()
        client.writer.close()
        left: bytes = await asyncio.wait_for(after, 30)
        return left


@LOOPS
def test_while_it_waits_for_the_headers(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The upstream's connection closes although it has not answered; nothing is logged."""

    async def script(peer: Peer) -> None:
        await peer.request()

    async def scenario() -> None:
        assert await leaving(post("/"), None, script) == b""

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@LOOPS
def test_while_the_answer_streams(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The upstream's connection closes between two chunks, so that the vendor stops generating; nothing is logged."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"first"))

    async def scenario() -> None:
        assert await leaving(post("/"), b"first\r\n", script) == b""

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@LOOPS
def test_in_the_middle_of_its_request(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The upstream's connection closes in the body, whose end is not made up; nothing is logged."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.until(b"half\r\n")

    async def scenario() -> None:
        request = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half")
        assert await leaving(request, None, script) == b""

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@LOOPS
def test_after_a_request_that_came_in_parts(run: Run) -> None:
    """Once the last part has been passed on, the leaving is heard as after a whole request."""

    async def scenario() -> None:
        half, whole, after = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()

        async def script(peer: Peer) -> None:
            await peer.head()
            await peer.until(b"half\r\n")
            half.set()
            await peer.until(END)
            whole.set()
            after.set_result(await peer.rest())

        async with through(script) as client:
            await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half"))
            await asyncio.wait_for(half.wait(), 30)
            await client.send(END)
            await asyncio.wait_for(whole.wait(), 30)
            client.writer.close()
            assert await asyncio.wait_for(after, 30) == b""

    run(scenario())


async def test_while_it_does_not_read() -> None:
    """A client that stalls and then leaves frees the upstream, although the proxy was waiting to write."""
    blocked, closed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        try:
            while True:
                peer.writer.write(chunk(b"x" * 65536))
                await asyncio.wait_for(peer.writer.drain(), 1)
        except TimeoutError:
            blocked.set()
        try:
            await peer.send(chunk(b"x" * 2**20))
        finally:
            closed.set()

    async with through(script) as client:
        await client.send(get("/"))
        await client.head()
        await asyncio.wait_for(blocked.wait(), 60)
        client.writer.close()
        await asyncio.wait_for(closed.wait(), 30)


async def test_one_departure_is_nobody_elses() -> None:
    """The other streams go on."""
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        head = await peer.head()
        await peer.send(CHUNKED + chunk(b"first"))
        if head.line.startswith(b"GET /leaves"):
            await peer.rest()
            gone.set()
        else:
            await asyncio.wait_for(gone.wait(), 30)
            await peer.send(chunk(b"second") + END)

    async with proxied(script) as base_url, connect(base_url) as stays, connect(base_url) as leaves:
        for peer, path in ((stays, "/stays"), (leaves, "/leaves")):
            await peer.send(get(path))
            await peer.until(b"first\r\n")
        leaves.writer.close()
        assert (await stays.until(END)).endswith(b"second\r\n" + END)


async def never() -> Message:
    """A client that stays."""
    await asyncio.Event().wait()
    raise AssertionError


async def gone() -> Message:
    """A client that is not there any more."""
    return {"type": "http.disconnect"}


async def test_the_hosts_own_cancellation_goes_through() -> None:
    """A server that cancels the exchange is obeyed, not taken for a client that left; nobody listens any more."""
    inside, deaf = asyncio.Event(), asyncio.Event()

    async def staying() -> Message:
        try:
            return await never()
        finally:
            deaf.set()

    async def exchange() -> None:
        with Departure(staying) as client:
            client.listen()
            await asyncio.sleep(0)
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(exchange())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(deaf.wait(), 30)


async def test_a_departure_is_taken_back() -> None:
    """After the block the task is as it was: later awaits are not cancelled."""
    reached = False
    with Departure(gone) as client:
        client.listen()
        await asyncio.Event().wait()
        reached = True
    assert client.gone
    assert not reached
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_departure_within_a_timeout() -> None:
    """The host's own timeout around the exchange is not taken for a departure, nor the other way round."""

    async def exchange(receive: Receive, limit_s: float) -> bool:
        async with asyncio.timeout(limit_s):
            with Departure(receive) as client:
                client.listen()
                await asyncio.Event().wait()
        return client.gone

    with pytest.raises(TimeoutError):
        await exchange(never, 0.01)
    assert await exchange(gone, 60)


async def test_a_host_that_repeats_its_request_is_asked_once() -> None:
    """A `receive` that never waits and never says disconnect does not keep the loop busy."""
    asked = 0

    async def repeating() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"", "more_body": False}

    with Departure(repeating) as client:
        client.listen()
        for _ in range(10):
            await asyncio.sleep(0)
    assert (asked, client.gone) == (1, False)


async def test_a_host_whose_receive_fails_has_lost_its_client() -> None:
    """The exchange ends, and the failure is not left unread."""

    async def failing() -> Message:
        raise OSError("the host's own trouble")

    with Departure(failing) as client:
        client.listen()
        await asyncio.Event().wait()
    assert client.gone
