"""The request's body: read within a limit, replayed message by message, and decoded without trusting it."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from callfuse.asgi.body import RequestBody, UnreadableBodyError, decode
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
    """The very messages, cuts and all, and then what the client does."""
    messages = [part(b"ab", more=True), part(b"", more=True), {"type": "http.request", "body": b"c"}, GONE]
    receive, left = given(*messages)
    body = RequestBody(receive)
    await body.read(100)
    assert body.content == b"abc"
    assert left == [GONE]
    for _ in range(2):
        again = body.replay()
        assert [await again() is message for message in messages[:3]] == [True] * 3
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
    assert [await again() for _ in messages] == messages


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


TEXT = json.dumps({"messages": ["x" * 500]}).encode()


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame."""
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def zstd(data: bytes) -> bytes:
    """Zstandard, as Codex sends it."""
    packed: bytes = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    return packed


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": raw_deflate,
    "zstd": zstd,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoded_body_is_read(name: str) -> None:
    """At exactly its length; a limit one byte lower is told."""
    packed, encoding = ENCODERS[name](TEXT), name.removeprefix("raw ")
    assert decode(packed, encoding, len(TEXT)) == TEXT
    assert decode(packed, encoding.upper(), len(TEXT)) == TEXT
    with pytest.raises(UnreadableBodyError, match="limit"):
        decode(packed, encoding, len(TEXT) - 1)


def test_stacked_encodings_come_off_in_reverse() -> None:
    """The last one named was put on last."""
    assert decode(gzip.compress(zstd(TEXT)), "zstd , gzip", 10_000) == TEXT
    with pytest.raises(UnreadableBodyError):
        decode(gzip.compress(zstd(TEXT)), "gzip, zstd", 10_000)


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "identity"])
def test_a_broken_body_is_told(name: str) -> None:
    """Cut anywhere, or spoiled: never half a body."""
    packed, encoding = ENCODERS[name](TEXT), name.removeprefix("raw ")
    for at in range(1, len(packed), 3):
        with pytest.raises(UnreadableBodyError):
            decode(packed[:at], encoding, 10_000)
    with pytest.raises(UnreadableBodyError):
        decode(b"\xff" + packed[1:], encoding, 10_000)


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, br", "nonsense", ""])
def test_an_unknown_encoding_is_told(encoding: str) -> None:
    """By its name."""
    with pytest.raises(UnreadableBodyError, match="content-encoding"):
        decode(gzip.compress(TEXT), encoding, 10_000)


@pytest.mark.parametrize("name", ["gzip", "deflate", "raw deflate", "zstd"])
def test_a_bomb_does_not_go_off(name: str) -> None:
    """A hundred megabytes behind a few bytes stop at the limit."""
    packed = ENCODERS[name](b"\0" * 100_000_000)
    with pytest.raises(UnreadableBodyError, match="limit"):
        decode(packed, name.removeprefix("raw "), 1000)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_body_in_several_members_is_one(name: str) -> None:
    """Both formats allow it; half a body would be worse than none."""
    packed = ENCODERS[name](TEXT[:100]) + ENCODERS[name](TEXT[100:])
    assert decode(packed, name, 10_000) == TEXT
