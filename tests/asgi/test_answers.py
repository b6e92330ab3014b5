"""Answers as ASGI messages: starts, bodies, files and trailers, in order and with the right headers."""

import asyncio
import logging
from itertools import accumulate

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Message, Receive, Scope, Send
from tests.guard.driving import each_kit
from tests.support.asgi import App, Exchange, drive
from tests.support.config import guard, settings
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import MARK, ask, every_dialect, framewise, given_log, meet, reply, streamed_and_whole
from tests.support.model import Answer, History, User
from tests.support.plain import again, elsewhere, known_call, new_call, once, same_call, saying, spin
from tests.support.scripted import Reply, play, whole
from tests.support.wire import frames

FIRST = b"call_first"


@each_kit
async def test_a_message_without_a_body_is_an_empty_one(kit: DialectKit) -> None:
    """ASGI lets `body` and `more_body` be left out."""
    chunks = frames(stream_of(kit, elsewhere()))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(start)
        for one in chunks:
            await send({"type": "http.response.body", "more_body": True})
            await send({"type": "http.response.body", "body": one, "more_body": True})
        await send({"type": "http.response.body"})

    for history in (spin(1), spin(2)):
        guarded = CallFuseMiddleware(app, settings())
        with given_log() as log:
            exchange = await drive(guarded, ask(kit, history, stream=True))
        assert exchange.body == b"".join(chunks)
        assert len(guarded.ledger) == 1  # type: ignore[arg-type]  # the default ledger has a length
        assert log == []


@each_kit
def test_empty_messages_before_a_whole_answer_do_not_overtake_its_start(kit: DialectKit) -> None:
    """The start waits for the end of the body, where headers depend on it."""
    request = ask(kit, History((User("Find the giraffe."),)), stream=False)
    done = reply(kit, saying("There.", new_call("call_a")), stream=False)
    met = meet(request, [done.cut((b"", b"", *done.chunks))])
    assert met.client.body == done.body
    assert met.client.sent[0][1]["type"] == "http.response.start"


@each_kit
def test_white_space_behind_an_answer_that_was_closed_does_not_pass(kit: DialectKit) -> None:
    """Only that before a whole answer leaves at once: how the body is cut changes nothing."""
    done = reply(kit, again(), stream=False)
    padded = done.body + b" " * 20
    request, limit = ask(kit, spin(), stream=False), len(done.body) + 3

    def met(*chunks: bytes) -> bytes:
        return meet(request, [whole(padded).cut(chunks)], max_response_bytes=limit, fail_closed=True).client.body

    one, other = met(padded), met(done.body, *[b" "] * 20)
    assert one == other
    assert MARK.encode() in one


@every_dialect
@streamed_and_whole
async def test_what_a_healthy_app_sends_behind_its_end(kit: DialectKit, *, stream: bool) -> None:
    """It is for the server to refuse, as it does without callfuse."""
    answer = reply(kit, elsewhere(), stream=stream)
    late = {"type": "http.response.body", "body": b"late", "more_body": False}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await play(answer)(scope, receive, send)
        await send(late)

    for watched in (app, guard(app)):
        exchange = await drive(watched, ask(kit, spin(1), stream=stream))
        assert exchange.sent[-1][1] == late
        assert exchange.body == answer.body + b"late"


BLANKS = (b"\n", b"", b" \r\n\t")
"""What a gateway sends to keep a connection open, an empty message among it."""


def kept_open(kit: DialectKit, answer: Answer, *headers: tuple[bytes, bytes]) -> Reply:
    """A whole answer behind white space, in pieces."""
    body = kit.whole(answer)
    return Reply((*BLANKS, body[:40], body[40:]), headers=((b"content-type", b"application/json"), *headers))


@every_dialect
@pytest.mark.parametrize(
    ("history", "answer", "is_withheld"),
    [
        (spin(1), elsewhere(), False),
        (once(new_call()), saying("Well.", *(new_call(f"call_{at}Q") for at in range(3))), True),
        (spin(2), elsewhere(), False),
        (spin(2, beside=True), saying("Well.", same_call("call_2Q"), known_call()), True),
        (spin(2), saying("Well.", same_call("call_2Q")), True),
    ],
    ids=["healthy", "too many", "innocent", "sibling", "looping"],
)
def test_what_keeps_a_whole_answer_alive_is_not_delayed(
    kit: DialectKit, history: History, answer: Answer, *, is_withheld: bool
) -> None:
    """Start and white space leave in their turn, and what follows is judged as without them."""
    script = kept_open(kit, answer)
    met = meet(ask(kit, history, stream=False), [script])
    assert met.client.sent[0][0] == 0
    assert [met.client.body_by(turn) for turn in range(4)] == [b"\n", b"\n", b"\n \r\n\t", b"\n \r\n\t"]
    assert met.client.complete
    assert (met.body != script.body) == is_withheld
    plain = meet(ask(kit, history, stream=False), [reply(kit, answer, stream=False)])
    assert met.body == b"".join(BLANKS) + plain.body
    assert met.client.header(b"x-callfuse-action") is None


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("history", [spin(1), spin(2)], ids=["healthy", "suspect"])
def test_white_space_with_a_length_behind_it(kit: DialectKit, history: History, *, stream: bool) -> None:
    """Who says the length of an answer has it, and need not keep a connection open: of a healthy exchange the start
    keeps its headers, and the white space waits with it. `stream`: was asked for, and a whole answer came."""
    length = sum(map(len, BLANKS)) + len(kit.whole(elsewhere()))
    script = kept_open(kit, elsewhere(), (b"content-length", str(length).encode()))
    met = meet(ask(kit, history, stream=stream), [script])
    assert met.body == script.body
    if history == spin(1):
        assert met.client.headers == list(script.headers)


@each_kit
def test_the_start_of_a_whole_answer(kit: DialectKit) -> None:
    """Of a healthy exchange it leaves at once, unless it has headers that hold for the exact bytes; of a suspect one it
    waits for the verdict, which it tells."""
    etag = (b"etag", b'"x"')
    bodies = (kit.whole(again())[:40], kit.whole(again())[40:])
    for history, headers, turn in ((spin(1), (), 0), (spin(1), (etag,), 2), (spin(2), (etag,), 2)):
        script = Reply(bodies, headers=((b"content-type", b"application/json"), *headers))
        met = meet(ask(kit, history, stream=False), [script])
        assert met.client.sent[0][0] == turn
        assert (met.client.header(b"x-callfuse-action") is None) == (history == spin(1))
        assert (met.client.header(b"etag") is None) == (headers == () or history == spin(2))


JSON_START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}


async def suspicious(app: App, kit: DialectKit, *, stream: bool = False) -> Exchange:
    """An exchange whose answer is held until its end."""
    return await drive(guard(app), ask(kit, spin(), stream=stream))


@each_kit
@pytest.mark.parametrize("kind", ["http.response.pathsend", "http.response.zerocopysend"])
async def test_a_file_in_place_of_a_body(kit: DialectKit, kind: str) -> None:
    """What a server's extension knows passes, behind the start."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(JSON_START)
        await send({"type": kind, "path": "/x"})

    exchange = await suspicious(app, kit)
    assert [message["type"] for _, message in exchange.sent] == ["http.response.start", kind]


@each_kit
@streamed_and_whole
async def test_trailers_follow_the_body(kit: DialectKit, stream: bool) -> None:
    """Once, at the end."""
    given = reply(kit, elsewhere(), stream=stream)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(given.headers), "trailers": True})
        await send({"type": "http.response.body", "body": given.body})
        await send({"type": "http.response.trailers", "headers": [(b"x", b"1")], "more_trailers": False})

    exchange = await suspicious(app, kit, stream=stream)
    kinds = [message["type"].removeprefix("http.response.") for _, message in exchange.sent]
    assert kinds == ["start", "body", "trailers"]
    assert exchange.body == given.body


@each_kit
@pytest.mark.parametrize("raises", [True, False])
@streamed_and_whole
async def test_an_answer_that_stops_behind_its_start(kit: DialectKit, stream: bool, raises: bool) -> None:
    """The client sees the start, as it would have; what the app raises the server sees."""
    given = reply(kit, elsewhere(), stream=stream)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(given.headers)})
        if raises:
            raise ConnectionError("upstream")

    exchange = await suspicious(app, kit, stream=stream)
    assert [message["type"] for _, message in exchange.sent] == ["http.response.start"]
    assert (exchange.raised is not None) is raises


@each_kit
def test_fail_closed_says_its_own_length(kit: DialectKit) -> None:
    """A refusal in place of a whole answer that could not be judged."""
    met = meet(
        ask(kit, spin(), stream=False), [reply(kit, again(), stream=False)], fail_closed=True, max_response_bytes=50
    )
    assert met.client.header(b"content-length") == str(len(met.body)).encode()
    assert MARK.encode() in met.body
    assert FIRST not in met.body


@each_kit
def test_an_untouched_whole_answer_keeps_its_headers(kit: DialectKit) -> None:
    """Length, etag and digests, though it was held to its end."""
    bound = ((b"etag", b'"1"'), (b"digest", b"SHA-256=x"), (b"x-a", b"b"))
    given = whole(kit.whole(elsewhere()), 200, *bound)
    met = meet(ask(kit, spin(), stream=False), [given])
    assert met.client.headers == list(given.headers)
    touched = meet(ask(kit, spin(), stream=False), [whole(kit.whole(again()), 200, *bound)])
    names = [name for name, _ in touched.client.headers]
    assert b"etag" not in names
    assert b"digest" not in names
    assert touched.client.header(b"x-a") == b"b"
    assert touched.client.header(b"content-length") == str(len(touched.body)).encode()
    assert touched.client.header(b"x-callfuse-action") == b"block; kind=repeat; count=3"


def coded(coding: bytes) -> Reply:
    """Bytes that are said to be in this coding, and are in none."""
    return Reply((b"data: {}\n\n",), headers=((b"content-type", b"text/event-stream"), (b"content-encoding", coding)))


@each_kit
@pytest.mark.parametrize(
    ("second", "why"),
    [
        (whole(b"{}", 503), "it answered with status 503"),
        (whole(b"{}"), "the first answer had another form (streamed or whole)"),
        (coded(b"x-unheard-of"), "its answer cannot be read: content-encoding"),
        (coded(b"gzip"), "its answer broke off"),
        (Reply((b"<html>",), headers=()), "its answer broke off"),
        (Reply((b"{}",), headers=()), "its answer broke off"),
        (Reply((b": ready\n\n",)), "its answer broke off"),
        (Reply((), raises=KeyError("secret")), "KeyError"),
    ],
    ids=["status", "form", "encoding", "spoiled", "page", "undeclared", "broke", "raised"],
)
def test_why_the_model_could_not_be_asked_again(kit: DialectKit, second: Reply, why: str) -> None:
    """One line says it; the client gets the block's text."""
    met = meet(ask(kit, spin(), stream=True), [reply(kit, again(), stream=True), second], "chance_then_block")
    (line,) = [text for text in met.log_at(logging.WARNING) if "asked again" in text]
    assert line == f"The model could not be asked again: {why}"
    assert MARK.encode() in met.body


async def test_nothing_follows_the_end() -> None:
    """A heartbeat that waits while the last message is on its way is not sent behind it."""
    sent: list[Message] = []
    begun, slow = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message)
        begun.set()
        await slow.wait()

    client = ClientStream(send)
    client.shared = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.write(b"one", final=True))
        await begun.wait()
        client.closed = False  # as it was when the heartbeat looked, a moment before
        late = tasks.create_task(client.write(b": heartbeat"))
        await asyncio.sleep(0)
        client.closed = True
        slow.set()
        await late
    assert [message["body"] for message in sent] == [b"one"]
    assert client.closed


@each_kit
@pytest.mark.parametrize("history", [spin(1), spin(2)], ids=["healthy", "suspect"])
def test_a_stream_that_is_declared_as_json_leaves_as_it_comes(kit: DialectKit, history: History) -> None:
    """Its first byte tells that it is one, where the client has asked for it."""
    chunks = framewise(kit, saying("One piece.", " Another.")).chunks
    met = meet(ask(kit, history, stream=True), [Reply(chunks, headers=((b"content-type", b"application/json"),))])
    assert [met.client.body_by(turn) for turn in range(len(chunks))] == list(accumulate(chunks))
    assert met.client.complete
