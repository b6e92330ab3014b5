"""Waits that end by themselves: one timer for all that run in an event loop, under asyncio and under others."""

import asyncio

import anyio
import pytest
import trio

from callfuse.asgi.body import RequestBody
from callfuse.asgi.silence import Waiting
from callfuse.asgi.types import Message

PART: Message = {"type": "http.request", "body": b"half", "more_body": True}


async def silent() -> Message:
    """A `receive` that gives nothing."""
    await trio.sleep_forever()
    raise AssertionError


async def test_waits_of_different_lengths() -> None:
    """Each ends in its own time, the shorter one that began later first."""
    ended: list[str] = []

    async def wait(name: str, pause_s: float) -> None:
        async with Waiting(pause_s) as waiting:
            await asyncio.Event().wait()
        assert waiting.is_over
        ended.append(name)

    await asyncio.wait_for(asyncio.gather(*(wait(f"{n}", n / 20) for n in (3, 2, 1))), 20)
    assert ended == ["1", "2", "3"]


async def test_a_cancellation_from_outside_goes_on() -> None:
    """The end of the task is not taken for the end of the wait."""

    async def wait() -> None:
        async with Waiting(60):
            await asyncio.Event().wait()
        raise AssertionError("not reached")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_within_goes_on() -> None:
    """A TimeoutError of somebody else, too."""
    for error in (TimeoutError, ValueError):
        with pytest.raises(error):
            async with Waiting(60):
                raise error


def test_a_wait_of_one_event_loop_is_nothing_to_the_next() -> None:
    """Loops come and go; each has its own timer."""

    async def turn() -> None:
        body = RequestBody(silent_here)
        await body.read(100, 0.02)
        assert body.unread == "read_timeout_s"

    async def silent_here() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    for _ in range(3):
        asyncio.run(asyncio.wait_for(turn(), 20))


async def dripping() -> Message:
    """A `receive` that gives a byte at a time, for ever."""
    await anyio.sleep(0.005)
    return {"type": "http.request", "body": b"x", "more_body": True}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_body_by_drops(backend: str) -> None:
    """The whole has a limit, too, under every event loop; what has come is replayed, and the rest streams."""

    async def turn() -> RequestBody:
        body = RequestBody(dripping)
        with anyio.fail_after(20):
            await body.read(10**9, 0.02)
            assert (await body.pass_on()())["body"][:1] == b"x"
        return body

    body = anyio.run(turn, backend=backend)
    assert (body.content, body.unread) == (None, "read_timeout_s")
    assert not body.share._request


def test_under_trio() -> None:
    """A scope of anyio ends the wait."""
    parts = [PART]

    async def receive() -> Message:
        return parts.pop() if parts else await silent()

    async def turn() -> RequestBody:
        body = RequestBody(receive)
        with trio.fail_after(20):
            await body.read(100, 0.02)
        return body

    body = trio.run(turn)
    assert (body.content, body.unread) == (None, "read_timeout_s")
    assert trio.run(body.replay()) == PART
