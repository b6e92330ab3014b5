"""White space that keeps a connection open before an answer whose form the headers do not tell, or that is packed."""

import asyncio
import zlib
from collections.abc import Sequence

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.types import Message, Receive, Scope, Send
from tests.guard.driving import each_kit
from tests.support.asgi import Headers, drive
from tests.support.config import settings
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import ask, every_dialect, meet
from tests.support.model import Answer, History
from tests.support.plain import again, elsewhere, same_call, saying, spin
from tests.support.scripted import Reply

BLANKS = (b"\n", b"", b" \r\n\t")
"""What a gateway sends to keep a connection open, an empty message among it."""
JSON: Headers = ((b"content-type", b"application/json"),)
ETAG: Headers = ((b"etag", b'"x"'),)
GZIP: Headers = ((b"content-encoding", b"gzip"),)

cases = pytest.mark.parametrize(
    ("history", "answer"),
    [
        (spin(1), elsewhere()),
        (spin(2), elsewhere()),
        (spin(2), saying("Well.", same_call("call_2Q"))),
    ],
    ids=["healthy", "innocent", "looping"],
)


def packed(chunks: Sequence[bytes]) -> tuple[bytes, ...]:
    """In gzip, so that each chunk can be unpacked when it comes."""
    packer = zlib.compressobj(wbits=31)
    made = [packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH) for chunk in chunks]
    return (*made[:-1], made[-1] + packer.flush())


@every_dialect
@cases
@pytest.mark.parametrize(
    ("stream", "headers"),
    [(False, ()), (False, ETAG), (False, (*JSON, *ETAG)), (True, JSON), (True, (*JSON, *ETAG))],
    ids=["undeclared", "undeclared with etag", "with etag", "in place of a stream", "the same with etag"],
)
def test_start_and_blanks_before_a_whole_answer_leave_at_once(
    kit: DialectKit, history: History, answer: Answer, *, stream: bool, headers: Headers
) -> None:
    """Whatever its form is going to be; what follows is judged as without them."""
    if stream and kit.name in ("gemini", "ollama"):
        pytest.skip("its streams may be declared as JSON, too, and are read as such")
    body = kit.whole(answer)
    met = meet(ask(kit, history, stream=stream), [Reply((*BLANKS, body[:40], body[40:]), headers=headers)])
    assert met.client.sent[0][0] == 0
    assert [met.client.body_by(turn) for turn in range(3)] == [b"\n", b"\n", b"\n \r\n\t"]
    assert met.client.complete
    assert met.client.header(b"x-callfuse-action") is None
    plain = meet(ask(kit, history, stream=stream), [Reply((body,), headers=headers)])
    assert met.body == b"".join(BLANKS) + plain.body
    assert (plain.body != body) == (history == spin(2) and answer != elsewhere())


@each_kit
@cases
@pytest.mark.parametrize("kind", [JSON, ()], ids=["declared", "undeclared"])
def test_an_answer_that_declares_its_length_is_not_kept_open(
    kit: DialectKit, history: History, answer: Answer, kind: Headers
) -> None:
    """Nobody who keeps a connection open knows it: white space at its beginning is a part of it, however it is cut."""
    body = b" \n" + kit.whole(answer)
    headers = (*kind, (b"content-length", str(len(body)).encode()))
    request = ask(kit, history, stream=False)
    met = meet(request, [Reply((b" ", body[1:]), headers=headers)])
    assert met.client.header(b"content-length") == str(len(met.body)).encode()
    assert met.client.complete


@each_kit
@cases
@pytest.mark.parametrize("blanks", [BLANKS, (b"\n",), (b"  ",)], ids=["mixed", "lines", "spaces"])
def test_blanks_before_a_stream_without_a_content_type_leave_at_once(
    kit: DialectKit, history: History, answer: Answer, blanks: tuple[bytes, ...]
) -> None:
    """The client reads them as it would without callfuse; spaces in the first line make its event void."""
    ready, body = b": ready\n\n", stream_of(kit, answer)
    met = meet(ask(kit, history, stream=True), [Reply((*blanks, ready, body), headers=())])
    assert met.client.body_by(len(blanks) - 1) == b"".join(blanks)
    plain = meet(ask(kit, history, stream=True), [Reply((ready, body), headers=())])
    assert met.body == b"".join(blanks) + plain.body
    assert met.client.complete


@each_kit
@cases
@pytest.mark.parametrize("headers", [(), JSON], ids=["undeclared", "declared"])
def test_blanks_of_a_packed_answer_leave_unpacked(
    kit: DialectKit, history: History, answer: Answer, headers: Headers
) -> None:
    """Where a guard reads it; so does all behind them, though it may turn out to be of no form that is known."""
    chunks = (*BLANKS, kit.whole(answer))
    met = meet(ask(kit, history, stream=False), [Reply(packed(chunks), headers=(*headers, *GZIP))])
    if history == spin(1):  # it is not read
        assert met.body == b"".join(packed(chunks))
        return
    assert met.client.header(b"content-encoding") is None
    assert met.client.body_by(0) == b"\n"
    plain = meet(ask(kit, history, stream=False), [Reply(chunks, headers=headers)])
    assert met.body == plain.body
    page = (b"\n", b"<html>", b"</html>")
    other = meet(ask(kit, history, stream=False), [Reply(packed(page), headers=GZIP)])
    assert other.body == b"".join(page)
    assert other.client.complete
    assert other.client.header(b"content-encoding") is None


@each_kit
@pytest.mark.parametrize("begun", [False, True], ids=["from its start", "behind blanks"])
@pytest.mark.parametrize("headers", [(), JSON], ids=["undeclared", "declared"])
async def test_an_answer_that_cannot_be_unpacked_ends_with_the_apps_call(
    kit: DialectKit, headers: Headers, *, begun: bool
) -> None:
    """It breaks off for the client, also where the app waits to be told that it is over."""
    whole = packed([*([b"\n"] if begun else []), kit.whole(again())[:40], kit.whole(again())[40:]])
    *most, last = whole
    told: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, *GZIP]})
        for chunk in most:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"\xff" * len(last), "more_body": False})
        told.append(await receive())

    guarded = CallFuseMiddleware(app, settings())
    async with asyncio.timeout(20):
        exchange = await drive(guarded, ask(kit, spin(), stream=False), limit_s=10)
    assert exchange.raised is None
    assert not exchange.complete
    assert [one["type"] for one in told] == ["http.disconnect"]
