"""The upstream fails: before its answer the client is told in its own dialect, within it the answer breaks off."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
import pytest
import uvloop

from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.failures import explain, openai_error
from tests.proxy.proxying import proxied, through
from tests.proxy.wire import CHUNKED, END, OK, Head, Peer, chunk, get, post, unchunked
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream as listening
from tests.support.asgi import Message, Request
from tests.support.serving import serve

SECRET = "secret-of-the-test"


def refusal(head: Head, body: bytes) -> tuple[int, str]:
    """Status and message of an error answer."""
    assert head.all(b"content-type") == [b"application/json"]
    assert head.all(b"x-should-retry") == []
    message: str = json.loads(body)["error"]["message"]
    return int(head.line.split()[1]), message


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the proxy warned of."""
    return [record.getMessage() for record in caplog.records if record.name == "callfuse.proxy"]


async def asked(upstream: str, request: bytes = post(f"/v1/x?key={SECRET}"), **settings: Any) -> tuple[int, str]:
    """What a client is told about an upstream."""
    proxy = ReverseProxy(ServeSettings(upstream=upstream, **settings))
    async with serve(proxy) as base_url, connect(base_url) as client:
        await client.send(request)
        return refusal(*await client.response())


async def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    """A refused connection is a 502 with the reason; the log has one line, without query or credentials."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with caplog.at_level(logging.WARNING):
        status, message = await asked(f"http://me:{SECRET}@127.0.0.1:{port}", post(f"/v1/x%0Ay?key={SECRET}"))
    assert (status, message) == (502, f"cannot connect to http://127.0.0.1:{port}: Connection refused")
    assert warnings(caplog) == [f"POST /v1/x\\ny: 502, {message}"]
    assert SECRET not in caplog.text


async def test_an_unknown_host() -> None:
    """A name that does not resolve is a 502 that names the upstream."""
    status, message = await asked("http://nowhere.invalid")
    assert (status, message) == (502, "the host name of http://nowhere.invalid cannot be resolved")


async def test_no_connection_in_time() -> None:
    """An upstream that accepts nobody is a 504 after the connect timeout: here every slot of the pool is taken."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"first"))
        await peer.rest()

    proxy = proxied(script, connect_timeout_s=0.1, max_connections=1)
    async with proxy as url, connect(url) as busy, connect(url) as client:
        await busy.send(get("/"))
        await busy.until(b"first\r\n")
        await client.send(get("/"))
        status, message = refusal(*await client.response())
    assert status == 504
    assert message.endswith("within the connect timeout")


@pytest.mark.parametrize("request_", [get("/"), post("/"), post("/", b"x" * 100_000)], ids=["get", "post", "big"])
async def test_no_first_byte_in_time(request_: bytes) -> None:
    """An upstream that takes the request and says nothing is a 504 after the first-byte timeout."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.rest()

    async with through(script, first_byte_timeout_s=0.1) as client:
        await client.send(request_)
        status, message = refusal(*await client.response())
    assert (status, message.partition(" ")[2]) == (504, "was silent for longer than the timeout")


async def test_the_first_byte_may_take_longer_than_a_pause() -> None:
    """The idle timeout begins with the answer: a model may think for longer than its stream may pause."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.6)
        await peer.send(OK)

    async with through(script, idle_timeout_s=0.1, first_byte_timeout_s=30) as client:
        await client.send(post("/"))
        assert (await client.response())[1] == b"ok"


async def test_an_upstream_that_does_not_take_the_request() -> None:
    """A body that is not read is given up after the idle timeout."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await asyncio.Event().wait()

    async with proxied(script, idle_timeout_s=0.5) as base_url, connect(base_url) as client:
        length = 60_000_000
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length)
        client.writer.write(b"x" * length)
        status, _ = refusal(*await client.response())
    assert status == 504


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "closed the connection before it answered"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "did not answer with valid HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "did not answer with valid HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "answered with 101"),
        (b"HTTP/1.1 799 Odd\r\ncontent-length: 0\r\n\r\n", "answered with 799"),
    ],
)
async def test_no_answer_that_could_be_passed_on(reply: bytes, reason: str) -> None:
    """What is not an HTTP answer is a 502 with the reason, after one try."""
    tries = 0

    async def script(peer: Peer) -> None:
        nonlocal tries
        tries += 1
        await peer.request()
        await peer.send(reply)

    async with through(script) as client:
        await client.send(post("/"))
        status, message = refusal(*await client.response())
    assert (status, message.partition(" ")[2], tries) == (502, reason, 1)


async def test_the_dialect_writes_the_error() -> None:
    """The body and its type are what the given function makes of path, status and message."""

    def error_body(path: str, status: int, message: str) -> tuple[bytes, str]:
        return json.dumps([path, status, message]).encode(), "application/vnd.test+json"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serve(ReverseProxy(ServeSettings(upstream=origin), error_body)) as base_url, connect(base_url) as client:
        await client.send(post("/v1/mess%61ges"))
        head, body = await client.response()
    assert head.all(b"content-type") == [b"application/vnd.test+json"]
    assert json.loads(body) == ["/v1/messages", 502, f"cannot connect to {origin}: Connection refused"]


Run = Callable[[Coroutine[Any, Any, None]], None]
Breaks = Callable[[Peer], Coroutine[Any, Any, None]]


async def closes(peer: Peer) -> None:
    """The upstream ends the connection."""
    peer.writer.close()


async def resets(peer: Peer) -> None:
    """The upstream's machine is gone."""
    peer.writer.transport.abort()


async def falls_silent(peer: Peer) -> None:
    """The upstream says nothing more."""
    await peer.rest()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("http", ["httptools", "h11"])
@pytest.mark.parametrize("breaks", [closes, resets, falls_silent])
def test_an_answer_that_breaks_off(run: Run, http: str, breaks: Breaks, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets every byte that came, and then the connection closes without the end of the body."""

    async def scenario() -> None:
        seen = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.send(CHUNKED + chunk(b"data: 1\n\n"))
            await asyncio.wait_for(seen.wait(), 30)
            await breaks(peer)

        async with listening(script) as origin:
            proxy = ReverseProxy(ServeSettings(upstream=origin, idle_timeout_s=0.2))
            async with serve(proxy, http=http) as base_url, connect(base_url) as client:
                await client.send(post(f"/v1/x?key={SECRET}"))
                await client.head()
                seen.set()
                assert unchunked(await client.rest()) == (b"data: 1\n\n", False)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    (line,) = warnings(caplog)
    assert line.startswith("POST /v1/x broke off in the middle of the answer: http://127.0.0.1:")
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_counted_answer_that_breaks_off() -> None:
    """With a content-length, the client sees fewer bytes than were announced."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nnot all of it")

    async with through(script) as client:
        await client.send(post("/"))
        assert (await client.head()).all(b"content-length") == [b"100"]
        assert await client.rest() == b"not all of it"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_no_byte_before_the_break_is_lost(run: Run) -> None:
    """What the upstream sent with its last breath reaches the client."""
    body = b"".join(chunk(b"%06d" % at * 10) for at in range(2000))

    async def scenario() -> None:
        for pieces in (1, 2, 50):
            size = len(body) // pieces + 1

            async def script(peer: Peer, size: int = size) -> None:
                await peer.request()
                peer.writer.write(CHUNKED)
                for start in range(0, len(body), size):
                    peer.writer.write(body[start : start + size])

            async with through(script) as client:
                await client.send(post("/"))
                await client.head()
                assert unchunked(await client.rest()) == unchunked(body)

    run(scenario())


async def test_no_byte_before_the_break_is_lost_on_a_slow_client() -> None:
    """What the proxy had read when the upstream broke off still goes out, once the client takes it."""
    taken, broken = asyncio.Event(), asyncio.Event()
    sent: list[Message] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"first"))
        await asyncio.wait_for(taken.wait(), 30)
        await peer.send(chunk(b"second") + chunk(b"third"))
        peer.writer.close()
        await peer.writer.wait_closed()
        broken.set()

    async def send(message: Message) -> None:
        sent.append(message)
        if message.get("body") == b"first":
            taken.set()
            await asyncio.wait_for(broken.wait(), 30)
            await asyncio.sleep(0.1)  # the proxy reads what came, and the end; too short a time hides a fault, no more

    async with listening(script) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        incoming = iter(Request("/").messages())

        async def receive() -> Message:
            for message in incoming:
                return message
            await asyncio.Event().wait()
            raise AssertionError

        await proxy(Request("/").scope(), receive, send)
        await proxy.close()
    assert b"".join(message.get("body", b"") for message in sent) == b"firstsecondthird"
    assert all(message["more_body"] for message in sent[1:])


async def test_a_pooled_connection_that_was_just_closed() -> None:
    """A POST that meets a connection which the upstream was giving up is sent once more: no 502 for that."""
    bodies: list[bytes] = []
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        stale = connections == 1
        bodies.append((await peer.request())[1])
        await peer.send(OK)
        bodies.append((await peer.request())[1])
        await peer.send(b"" if stale else OK)

    async with through(script) as client:
        for body in (b"first", b"second"):
            await client.send(post("/", body))
            head, answer = await client.response()
            assert (head.line.split()[1], answer) == (b"200", b"ok")
    assert (bodies, connections) == ([b"first", b"second", b"second"], 2)


async def second_request(*connections: Sequence[bytes], second: bytes = b"") -> tuple[int, int]:
    """Send two requests of a client: the status of the second one, and how many connections the upstream had.

    `connections`: what the upstream sends for each request on a connection, which it then closes. `second`: chunks that
    have no end, in place of a request like the first."""
    opened = 0

    async def script(peer: Peer) -> None:
        nonlocal opened
        opened += 1
        for at, answer in enumerate(connections[opened - 1]):
            await (peer.until(second[-8:]) if at and second else peer.request())
            await peer.send(answer)

    async with through(script) as client:
        await client.send(post("/"))
        await client.response()
        await client.send(second or post("/"))
        status, _ = refusal(*await client.response())
    return status, opened


async def test_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    """A pooled connection that breaks within the headers was not stale: the vendor is at work, and it is a 502."""
    begun = b"HTTP/1.1 200 OK\r\ncontent-le"
    assert await second_request([OK, begun]) == (502, 1)


async def test_a_second_try_is_the_last() -> None:
    """An upstream that closes its new connection as well is a 502."""
    assert await second_request([OK, b""], [b""]) == (502, 2)


async def test_a_body_that_came_in_parts_is_not_sent_twice() -> None:
    """What was passed on and not kept cannot be repeated: the stale connection is a 502, which the client may retry."""
    half = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half")
    assert await second_request([OK, b""], second=half) == (502, 1)


async def test_a_request_that_was_at_work_is_not_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream that breaks later than a stale connection would may have begun to generate: no second try."""
    monkeypatch.setattr("callfuse.proxy.client.STALE_WITHIN_S", 0.0)
    assert await second_request([OK, b""]) == (502, 1)


async def test_after_a_failure_the_next_request_is_served() -> None:
    """A broken answer leaves nothing behind: the next one comes whole, on a connection of its own."""
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.request()
        await peer.send(CHUNKED + chunk(b"x") + (b"" if connections == 1 else END))

    async with proxied(script, max_connections=1) as base_url:
        for complete in (False, True):
            async with connect(base_url) as client:
                await client.send(post("/", b"{}", b"connection: close"))
                await client.head()
                assert unchunked(await client.rest()) == (b"x", complete)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (aiohttp.ServerDisconnectedError(), 502, "U closed the connection before it answered"),
        (aiohttp.ClientPayloadError(SECRET), 502, "U closed the connection before the end of its answer"),
        (ConnectionResetError(104, SECRET), 502, "the connection to U broke: Connection reset by peer"),
        (aiohttp.ClientConnectionError(SECRET), 502, "the connection to U broke"),
        (aiohttp.ClientError(SECRET), 502, "the connection to U broke"),
        (aiohttp.InvalidURL(SECRET), 400, "the request has a target that cannot be forwarded"),
        (ValueError(SECRET), 400, "the request has a header that cannot be forwarded"),
        (TimeoutError(), 504, "U was silent for longer than the timeout"),
    ],
)
def test_reasons_are_our_own_words(error: Exception, status: int, reason: str) -> None:
    """The text of an exception is never shown; it could hold anything."""
    failure = explain(error, "U", None)
    assert (failure.status, failure.reason) == (status, reason)


def test_the_envelope_by_default() -> None:
    """Without a dialect the error is in the form of the OpenAI APIs."""
    body, content_type = openai_error("/v1/x", 504, "late")
    assert content_type == "application/json"
    assert json.loads(body) == {
        "error": {"message": "late", "type": "upstream_error", "param": None, "code": "upstream_timeout"}
    }
