"""Memory is given back without the collector: no cycle holds a body, a chunk or a queue once an exchange is over.

In: exchanges over sockets, with the collector off, that end badly: clients that leave in their upload, upstreams that
die in a hold. Out: the bytes that can still be reached from any container, told by their length or their content.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.proxy.wire import CHUNKED, Peer, Script, chunk, client, post, upstream
from tests.support.asgi import Request
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise
from tests.support.model import History
from tests.support.plain import again, new_call, saying, spin
from tests.support.scripted import OTHER_STREAMS
from tests.support.serving import serve

MARK = b"a body of the test "
TIMES = 4
PATIENCE_S = 20
ENOUGH_TASKS = 3
"""The test's own, the server's and its lifespan's."""
JSON = (b"content-type: application/json",)

some_dialects = pytest.mark.parametrize("kit", KITS[:3], ids=lambda kit: kit.name)


@pytest.fixture(autouse=True)
def _no_collector(frozen_heap: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def bytes_left() -> int:
    """The marked bytes that any container or frame still refers to."""
    kept: dict[int, int] = {}
    for one in gc.get_referents(*gc.get_objects()):
        if isinstance(one, bytes | bytearray):
            kept[id(one)] = one.count(MARK) * len(MARK)
    return sum(kept.values())


async def settle() -> int:
    """The marked bytes that stay once everything that is still on its way has ended."""
    left = bytes_left()
    async with asyncio.timeout(PATIENCE_S):
        while left:  # connections close in their own time; a cycle never goes by itself
            await asyncio.sleep(0.02)
            now = bytes_left()
            if now == left and len(asyncio.all_tasks()) <= ENOUGH_TASKS:
                break
            left = now
    return left


@asynccontextmanager
async def standing(script: Script, *, guarded: bool) -> AsyncIterator[str]:
    """A proxy before an upstream with this script, behind the middleware or alone."""
    async with upstream(script) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        app: Any = CallFuseMiddleware(proxy, {"tool_call_loop": {"mode": "block"}}) if guarded else proxy
        async with serve(app, server_header=False, date_header=False) as base_url:
            yield base_url


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "alone"])
@pytest.mark.parametrize("length", [b"content-length: 9000000", b"transfer-encoding: chunked"])
async def test_a_client_that_leaves_in_its_upload(guarded: bool, length: bytes) -> None:
    """What it had sent is gone when it is, though aiohttp keeps its requests in cycles."""
    body = MARK * 50_000
    if length.startswith(b"transfer"):
        body = chunk(body)

    async def script(peer: Peer) -> None:
        await peer.rest()

    async with standing(script, guarded=guarded) as base_url:
        for _ in range(TIMES):
            async with client(base_url) as peer:
                await peer.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + length + b"\r\n\r\n" + body)
                peer.writer.close()
                await peer.rest()
            del peer
        del body
        assert await settle() == 0


@some_dialects
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "alone"])
@pytest.mark.parametrize("history", [spin(1), spin()], ids=["watched", "held"])
async def test_an_upstream_that_dies_in_its_answer(kit: DialectKit, guarded: bool, history: History) -> None:
    """Request, queue and what had come of the answer are gone, whatever aiohttp keeps the exception for."""
    asked = ask(kit, history, stream=True)
    listed = kit.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)
    head = [frame.raw for frame in listed[:last]]
    target = f"{asked.path}?{asked.query.decode()}" if asked.query else asked.path

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"".join(map(chunk, head)))
        for _ in range(20):
            await peer.send(chunk(b": " + MARK * 100 + b"\n\n"))
        peer.writer.transport.abort()

    async with standing(script, guarded=guarded) as base_url:
        for _ in range(TIMES):
            async with client(base_url) as peer:
                spaces = b" " * 10_000
                await peer.send(post(target, asked.body[:-1] + spaces + asked.body[-1:], *JSON))
                await peer.rest()
            del peer
        assert await settle() == 0


class Broke(Exception):
    """The upstream broke."""


@every_dialect
@pytest.mark.parametrize("history", [spin(1), spin()], ids=["watched", "held"])
async def test_what_an_app_keeps_keeps_no_body(kit: DialectKit, history: History) -> None:
    """An app that keeps its exception, with its traceback, its `receive` and its `send`, keeps these alone."""
    asked = ask(kit, history, stream=True)
    chunks = framewise(kit, saying("Well.", new_call())).chunks[:3]
    things = [asked.body, *chunks]
    before = [sys.getrefcount(thing) for thing in things]
    kept = await _break(kit, asked, chunks)
    assert len(kept) == 3
    assert [sys.getrefcount(thing) for thing in things] == before


async def _break(kit: DialectKit, asked: Request, chunks: tuple[bytes, ...]) -> list[Any]:
    """One exchange whose app breaks off after these chunks; returns what the app has kept of it."""
    kept: list[Any] = []
    stream = OTHER_STREAMS.get(kit.path, b"text/event-stream")

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", stream)]})
        for one in chunks:
            await send({"type": "http.response.body", "body": one, "more_body": True})
        del one
        kept.extend([receive, send, Broke("the connection")])
        raise kept[-1]

    messages = asked.messages()

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_message: Any) -> None:
        """The client reads on."""

    with suppress(Broke):
        await guard(app)(asked.scope(), receive, send)
    return kept
