"""The request's body: read within a limit, and replayed message by message."""

import asyncio
from collections import UserDict
from typing import Any
from weakref import WeakSet

import pytest

from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import ByteBudget
from callfuse.asgi.types import Message, Receive


def part(body: bytes, *, more: bool = False) -> Message:
    """A message of the body."""
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


def given(*messages: Message) -> tuple[Receive, list[Message]]:
    """A `receive` that gives these messages, and those that it still has."""
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive, left


async def test_the_body_is_replayed_as_it_came() -> None:
    """The same bytes in one message, and then what the client does."""
    messages = [part(b"ab", more=True), part(b"", more=True), {"type": "http.request", "body": b"c"}, GONE]
    receive, left = given(*messages)
    body = RequestBody(receive)
    await body.read(100)
    assert body.content == b"abc"
    assert left == [GONE]
    for _ in range(2):
        again = body.replay()
        assert await again() == part(b"abc")
        assert (await again())["type"] == "http.disconnect"
    assert body.gone


async def test_another_body_in_its_place() -> None:
    """One message, then the real `receive`."""
    receive, _ = given(part(b"ab"), part(b"late"))
    body = RequestBody(receive)
    await body.read(100)
    again = body.replay(b"new")
    assert await again() == part(b"new")
    assert await again() == part(b"late")


async def test_a_call_that_is_given_up_takes_no_message() -> None:
    """An app may ask in a task and cancel it before it runs, or ask twice before it waits."""
    receive, _ = given(part(b"ab"), GONE)
    body = RequestBody(receive)
    await body.read(100)
    again = body.replay()
    task = asyncio.ensure_future(again())
    task.cancel()
    await asyncio.wait([task])
    first, second = again(), again()
    assert await second == part(b"ab")
    assert await first == GONE


async def test_a_disconnect_is_repeated() -> None:
    """To every call of the app, though the server told it once."""
    receive, left = given(part(b"ab"), GONE)
    body = RequestBody(receive)
    await body.read(100)
    first, second = body.replay(), body.replay(b"again")
    await first()
    assert await first() == await first() == GONE
    assert left == []
    assert (await second())["body"] == b"again"
    assert await second() == GONE


@pytest.mark.parametrize(
    ("messages", "read"),
    [
        ([part(b"x" * 11), part(b"never read")], 1),
        ([part(b"x" * 6, more=True), part(b"x" * 6, more=True), part(b"never read")], 2),
    ],
)
async def test_a_body_over_the_limit_streams_on(messages: list[Message], read: int) -> None:
    """What was read is replayed, and the rest comes from the server as it arrives."""
    receive, left = given(*messages)
    body = RequestBody(receive)
    await body.read(10)
    assert body.content is None
    assert not body.gone
    assert len(left) == len(messages) - read
    again = body.replay()
    begin = part(b"".join(message["body"] for message in messages[:read]), more=messages[read - 1]["more_body"])
    assert [await again() for _ in messages[read - 1 :]] == [begin, *messages[read:]]


class Counted(UserDict[str, Any]):
    """A message that can be referred to weakly, and told from equal ones."""

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize("piece", [b"", b"x"])
@pytest.mark.parametrize("ends", [True, False])
async def test_many_small_messages(piece: bytes, ends: bool) -> None:
    """Their bytes are kept, in one message, and they themselves are not; what is kept is what counts."""
    alive: WeakSet[Counted] = WeakSet()
    most = 0
    messages = iter(range(1000))

    async def receive() -> Message:
        nonlocal most
        at = next(messages, None)
        if at is None and not ends:
            return GONE
        most = max(most, len(alive))
        message = Counted(part(piece, more=at is not None))
        alive.add(message)
        return message

    budget = ByteBudget()
    body = RequestBody(receive, budget.open())
    await body.read(100_000)
    assert most <= 2
    again = body.replay()
    assert budget.used == len(piece) * (1001 if ends else 1000)
    told = await again()
    if ends:
        assert (told, body.content) == (part(piece * 1001), piece * 1001)
    elif piece:
        assert told == part(piece * 1000, more=True)
        assert await again() == GONE
    else:
        assert told == GONE


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    """One byte more is not."""
    receive, _ = given(part(b"x" * 10))
    body = RequestBody(receive)
    await body.read(10)
    assert body.content == b"x" * 10


async def test_a_client_that_leaves_in_its_body() -> None:
    """The app sees the same."""
    receive, _ = given(part(b"ab", more=True), GONE)
    body = RequestBody(receive)
    await body.read(100)
    assert body.content is None
    assert body.gone
    again = body.replay()
    assert [(await again())["type"] for _ in range(3)] == ["http.request", "http.disconnect", "http.disconnect"]
