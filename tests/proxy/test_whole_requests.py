"""What one client sends never reaches the upstream as part of another's request, and no answer another client."""

import asyncio
import gzip
import random
from contextlib import AsyncExitStack

import pytest

from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.proxy.proxying import Recorder, through
from tests.proxy.strict import GUARDED, HIDDEN, OWN, SERVERS, Strict, owned, strictly
from tests.proxy.wire import END, chunk, client, get, upstream
from tests.support.asgi import Message, Receive, Send
from tests.support.config import guard
from tests.support.serving import serve

every_server = pytest.mark.parametrize("server", SERVERS)
every_own_server = pytest.mark.parametrize("server", OWN)
UPGRADES = {
    "h2c": (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAEAAEAAAAIAAAABAAMAAABk"),
    "websocket": (b"Connection: keep-alive,\tupgrade", b"Upgrade: websocket"),
    "anything": (b"connection: UPGRADE", b"connection: x-owner-of", b"upgrade: any/1, thing"),
}


async def honest(base_url: str, owner: bytes = b"honest", path: str = "/plain") -> None:
    """A request of a client of its own, and its own answer."""
    async with client(base_url) as peer:
        await peer.send(owned(owner, path=path))
        head, body = await peer.response()
        assert (head.line.split()[1], body) == (b"200", owner)


@every_own_server
@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("path", ["/plain", GUARDED])
@pytest.mark.parametrize("step", [1, 10_000])
async def test_an_upgrade_is_ignored(server: str, upgrade: str, path: str, step: int) -> None:
    """The body is read, of either framing, and pipelined requests behind it, too; however all that is cut."""
    chunked = owned(b"two", b"transfer-encoding: chunked", *UPGRADES[upgrade], path=path, words=0, length=-1)
    sent = owned(b"one", *UPGRADES[upgrade], path=path) + chunked + chunk(b"two two") + END + owned(b"three", path=path)
    async with strictly(server) as (strict, base_url), client(base_url) as peer:
        for start in range(0, len(sent), step):
            await peer.send(sent[start : start + step])
            await asyncio.sleep(0)
        answers = [(await peer.response())[1] for _ in range(3)]
    assert answers == [b"one", b"two", b"three"]
    assert [body for _, body in strict.requests] == [b"one one one", b"two two", b"three three three"]
    names = {name for head, _ in strict.requests for name in head.names}
    assert {b"upgrade", b"connection", b"http2-settings"} & names == set()
    assert strict.strangers() == []


@every_own_server
async def test_hundreds_of_upgrades_at_once(server: str) -> None:
    """They are pipelined in one piece, and each is answered; nothing recurses."""
    many = 300
    async with strictly(server) as (_, base_url), client(base_url) as peer:
        await peer.send(get("/nothing", *UPGRADES["websocket"], b"x-owner: one") * many)
        heads = [await peer.response() for _ in range(many)]
    assert {head.line.split()[1] for head, _ in heads} == {b"200"}


@every_own_server
async def test_a_websocket_is_refused_as_before(server: str) -> None:
    """426 where the guard is, and the connection goes on; CONNECT ends it."""
    async with strictly(server) as (strict, base_url), client(base_url) as peer:
        await peer.send(get(GUARDED, *UPGRADES["websocket"], b"x-owner: one"))
        head, _ = await peer.response()
        assert head.line.split()[1] == b"426"
        await peer.send(owned(b"one"))
        assert (await peer.response())[1] == b"one"
        await peer.send(b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost\r\n\r\n" + owned(b"two"))
        refusal = await peer.rest()
    assert refusal.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 "))
    assert b"two" not in refusal
    assert len(strict.requests) == 1


@every_own_server
@pytest.mark.parametrize("step", [1, 10_000])
async def test_trailers_are_dropped(server: str, step: int) -> None:
    """Headers are those in front of the body."""
    trailers = b"0\r\nauthorization: Bearer other\r\nx-owner: two\r\nx-trailer: a\r\nexpect: 100-continue\r\n\r\n"
    sent = owned(b"one", b"transfer-encoding: chunked", b"trailer: x-trailer", words=0, length=-1)
    async with strictly(server) as (strict, base_url), client(base_url) as peer:
        for _ in range(2):  # what the first one brought is not the second one's
            for start in range(0, len(sent + trailers), step):
                await peer.send((sent + trailers)[start : start + step])
                await asyncio.sleep(0)
            assert (await peer.response())[1] == b"one"
    for head, _ in strict.requests:
        assert {b"authorization", b"x-trailer", b"trailer"} & set(head.names) == set()
    assert strict.strangers() == []


async def test_trailers_of_an_answer_are_dropped() -> None:
    """A client gets the headers in front of the body."""
    reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-late\r\n\r\n2\r\nok\r\n0\r\nx-late: a\r\n\r\n"
    async with through(Recorder(reply)) as peer:
        await peer.send(get("/"))
        head, body = await peer.response()
    assert (body, {b"x-late", b"trailer"} & set(head.names)) == (b"ok", set())


CODINGS: list[tuple[bytes, tuple[bytes, ...]]] = [
    (b"501", (b"transfer-encoding: gzip, chunked",)),
    (b"501", (b"Transfer-Encoding: GZip", b"transfer-encoding: chunked")),
    (b"501", (b"transfer-encoding: identity, chunked",)),
    (b"400", (b"transfer-encoding: gzip",)),
    (b"400", (b"transfer-encoding: gzip", b"content-length: 6")),
    (b"400", (b"transfer-encoding: chunked, gzip",)),
    (b"400", (b"transfer-encoding: chunked", b"transfer-encoding: chunked")),
]
"""Framings, and the status over httptools; h11 knows chunks only, and uvicorn answers 400 to all else."""


@every_own_server
@pytest.mark.parametrize(("status", "lines"), CODINGS)
@pytest.mark.parametrize("path", ["/plain", GUARDED])
async def test_a_transfer_coding_besides_chunks_is_refused(
    server: str, status: bytes, lines: tuple[bytes, ...], path: str
) -> None:
    """Forwarded with the chunks taken off, it would be another body. The connection ends with the answer."""
    packed = chunk(gzip.compress(b"one one one")) + END
    async with strictly(server) as (strict, base_url), client(base_url) as peer:
        await peer.send(owned(b"one", *lines, path=path, words=0, length=-1) + packed + owned(b"two"))
        head = await peer.head()
        rest = await peer.rest()
    assert head.line.split()[1] == (status if server == "callfuse serve" else b"400")
    assert b"HTTP/1.1" not in rest
    assert strict.requests == []
    if head.line.split()[1] == b"501":
        assert head.all(b"x-should-retry") == [b"false"]
        assert b"use content-encoding" in rest


@every_own_server
@pytest.mark.parametrize("line", [b"Transfer-Encoding: Chunked", b"transfer-encoding: chunked "])
async def test_chunks_are_read_however_they_are_named(server: str, line: bytes) -> None:
    """Codings have no case, and blanks around them mean nothing."""
    async with strictly(server) as (strict, base_url), client(base_url) as peer:
        await peer.send(owned(b"one", line, words=0, length=-1) + chunk(b"one one") + END)
        assert (await peer.response())[1] == b"one"
    assert [body for _, body in strict.requests] == [b"one one"]


LENGTHS: dict[str, tuple[tuple[bytes, ...], list[bytes]]] = {
    "none came": ((b"10",), [b""]),
    "short": ((b"10",), [b"1234"]),
    "long": ((b"4",), [b"1234567890"]),
    "short in parts": ((b"10",), [b"1234", b"5", b""]),
    "long in parts": ((b"4",), [b"12", b"34", b"56"]),
    "long at once": ((b"4",), [b"123456", b"78"]),
    "two lengths": ((b"4", b"5"), [b"1234"]),
    "a sign": ((b"+4",), [b"1234"]),
    "a list": ((b"4, 4",), [b"1234"]),
    "other digits": (("\u0664".encode(),), [b"1234"]),
}


@pytest.mark.parametrize("case", LENGTHS)
async def test_a_length_that_is_not_that_of_the_body(case: str) -> None:
    """Whatever a server in front hands on: 400, no byte more than declared, and the connection is not used again."""
    values, pieces = LENGTHS[case]
    strict = Strict()
    sent: list[Message] = []
    last = len(pieces) - 1
    incoming: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": at < last} for at, piece in enumerate(pieces)
    ]

    async def receive() -> Message:
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    def scope(*lengths: bytes) -> Message:
        headers = [(b"x-owner", b"one"), *[(b"content-length", value) for value in lengths]]
        return {"type": "http", "method": "POST", "path": "/plain", "headers": headers}

    async with upstream(strict) as origin, AsyncExitStack() as stack:
        proxy = ReverseProxy(ServeSettings(upstream=origin))
        stack.push_async_callback(proxy.close)
        await proxy(scope(*values), receive, send)
        assert sent[0]["status"] == 400
        assert {(b"connection", b"close"), (b"x-should-retry", b"false")} <= set(sent[0]["headers"])
        assert b"content-length" in sent[1]["body"]
        incoming[:] = [{"type": "http.request", "body": b"one"}]
        sent.clear()
        await proxy(scope(b"3"), receive, send)
        assert b"".join(message.get("body", b"") for message in sent) == b"one"
    *before, (_, body) = strict.requests
    assert body == b"one"
    assert all(len(seen) <= int(values[0]) for _, seen in [*before, *strict.cut])


@every_server
async def test_an_upgrade_without_its_body(server: str) -> None:
    """A server that takes the body for another protocol's hands on none: the next client is not made to bring it."""
    async with strictly(server) as (strict, base_url):
        for upgrade in UPGRADES.values():
            for path in ("/early/401", "/plain", GUARDED):
                async with client(base_url) as peer:
                    await peer.send(owned(b"one", *upgrade, path=path, words=0, length=len(HIDDEN)) + HIDDEN)
                    await peer.response()
                await honest(base_url)
    assert strict.strangers() == []
    assert [head for head, _ in strict.requests if b"hidden" in head.line] == []


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_what_a_mounted_app_gets(http: str) -> None:
    """Behind the middleware, under plain uvicorn: over httptools no body with an upgrade, and trailers as headers."""
    seen: list[tuple[dict[bytes, bytes], bytes]] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        seen.append((dict(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    trailers = b"0\r\nauthorization: Bearer other\r\n\r\n"
    async with serve(guard(app), http=http, interface="asgi3", lifespan="off") as base_url:
        for sent in (
            owned(b"one", *UPGRADES["h2c"]),
            owned(b"one", b"transfer-encoding: chunked", words=0, length=-1) + chunk(b"one") + trailers,
        ):
            async with client(base_url) as peer:
                await peer.send(sent)
                await peer.response()
    (upgraded, body), (trailed, _) = seen
    assert upgraded[b"content-length"] == b"11"
    assert body == (b"" if http == "httptools" else b"one one one")
    assert (b"authorization" in trailed) is (http == "httptools")


EARLY = ["200", "201", "204", "301", "304", "400", "401", "408", "413", "429", "500", "503", "599"]


@every_server
@pytest.mark.parametrize("framing", [b"content-length: 1000000", b"transfer-encoding: chunked"])
async def test_an_early_answer_with_a_body_unsent(server: str, framing: bytes) -> None:
    """The client gets it, whatever its status; the connection to the upstream is closed and never used again."""
    async with strictly(server) as (strict, base_url):
        for status in EARLY:
            async with client(base_url) as peer:
                begun = owned(b"one", framing, path=f"/early/{status}", words=0, length=-1)
                await peer.send(begun + (chunk(b"one one") if b"chunked" in framing else b"one one"))
                head = await peer.head()
                assert (head.line.split()[1], head.all(b"x-of")) == (status.encode(), [b"one"])
                await honest(base_url)
                await peer.send(b"4\r\none \r\n" if b"chunked" in framing else b" one one")
                await honest(base_url, b"another")
            await all_idle(strict)
    assert len(strict.requests) == 2 * len(EARLY)
    assert strict.strangers() == []


async def all_idle(strict: Strict, most: int = 1) -> None:
    """Wait until the upstream has no more connections open than the pool's own."""
    async with asyncio.timeout(20):
        while strict.open > most:  # noqa: ASYNC110 - the upstream sees it a turn or two later
            await asyncio.sleep(0.001)


@every_server
@pytest.mark.parametrize("path", ["/plain", "/early/401"])
async def test_a_reset_at_every_byte(server: str, path: str) -> None:
    """Of a request, of either framing: the next client's is whole, and its answer its own."""
    lengths = owned(b"one", path=path)
    chunks = owned(b"one", b"transfer-encoding: chunked", path=path, words=0, length=-1) + chunk(b"one one") + END
    async with strictly(server) as (strict, base_url):
        for sent in (lengths, chunks):
            for at in range(len(sent)):
                async with client(base_url) as peer:
                    await peer.send(sent[:at])
                    if at % 3 == 0:
                        await asyncio.sleep(0.001)  # so that some of it has been sent on
                    peer.writer.transport.abort()
                await honest(base_url)
    assert strict.strangers() == []


FRAMINGS: list[tuple[bytes, ...]] = [
    (b"content-length: 6",),
    (b"content-length: 40",),
    (b"content-length: 1000000",),
    (b"content-length: 0",),
    (b"content-length: 6", b"content-length: 40"),
    (b"content-length: 6", b"content-length: 6"),
    (b"content-length: 6, 6",),
    (b"content-length: +6",),
    (b"content-length: 0x6",),
    (b"content-length: -1",),
    (b"content-length : 40",),
    (b"content-length:\t40",),
    (b"transfer-encoding: chunked",),
    (b"transfer-encoding: chunked", b"content-length: 6"),
    (b"content-length: 40", b"transfer-encoding: chunked"),
    (b"transfer-encoding: xchunked", b"content-length: 6"),
    (b"transfer-encoding: chunked, identity",),
    (b"transfer-encoding: identity", b"content-length: 40"),
    (b"transfer-encoding:\x0bchunked", b"content-length: 40"),
    (b"transfer-encoding: chunked", b"transfer-encoding: chunked"),
    (b"connection: content-length", b"content-length: 40"),
    (b"connection: transfer-encoding", b"transfer-encoding: chunked"),
    (b"x-folded: a\r\n transfer-encoding: chunked", b"content-length: 6"),
    (b"expect: 100-continue", b"content-length: 40"),
    (),
]
BODIES = [
    b"",
    b"one",
    b"oneone",
    b"one one one one one one one one one one.",
    b"6\r\noneone\r\n0\r\n\r\n",
    b"6\r\noneone\r\n0\r\nx-trailer: a\r\nx-owner: other\r\n\r\n",
    b"6\roneone\r0\r\r",
    b"fffffffffffffffff\r\none",
    b"0\r\n\r\n" + HIDDEN,
    HIDDEN,
    b"6;\nx\r\noneone\r\n0\r\n\r\n",
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"]


def hostile(draw: random.Random, *, trailers: bool) -> bytes:
    """A request of a client that wants another's answer, or its own bytes in another's request."""
    upgrade = draw.choice([(), (), *UPGRADES.values()])
    path = draw.choice(["/plain", "/early/200", "/early/401", "/early/503", GUARDED])
    lines = [*draw.choice(FRAMINGS), *upgrade]
    draw.shuffle(lines)
    head = [b"POST %s %s" % (path.encode(), draw.choice(VERSIONS)), b"host: localhost", b"x-owner: one", *lines]
    return b"\r\n".join(
        [*head, b"", draw.choice(BODIES if trailers else [body for body in BODIES if b"x-trailer" not in body])]
    )


async def attack(base_url: str, draw: random.Random, *, trailers: bool) -> None:
    """Hostile requests over connections that come and go, piece by piece in any order, with honest ones between."""
    async with client(base_url) as first, client(base_url) as second:
        peers = [first, second]
        waiting = [(peer, hostile(draw, trailers=trailers)) for peer in peers for _ in range(draw.choice([1, 1, 2]))]
        while waiting:
            at = draw.randrange(len(waiting))
            peer, sent = waiting.pop(at)
            cut = draw.choice([len(sent), draw.randrange(len(sent)) + 1])
            try:
                await peer.send(sent[:cut])
            except ConnectionError:
                continue
            if draw.random() < 0.2:
                peer.writer.transport.abort()
                waiting = [one for one in waiting if one[0] is not peer]
            elif cut < len(sent):
                waiting.append((peer, sent[cut:]))
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            if draw.random() < 0.3:
                await honest(base_url, path=draw.choice(["/plain", "/plain", GUARDED]))
        await honest(base_url)
    await honest(base_url)


@every_server
@pytest.mark.parametrize("seed", range(4))
async def test_no_request_is_part_of_another(server: str, seed: int) -> None:
    """Whatever hostile clients send, in whatever order: the upstream sees whole requests of their owners only, and an
    honest client gets its own answer. Plain uvicorn over httptools hands trailers on as headers, and gets none here."""
    draw = random.Random(seed)
    async with strictly(server) as (strict, base_url):
        for _ in range(12):
            await attack(base_url, draw, trailers=server != "uvicorn over httptools")
    assert strict.strangers() == []
    assert strict.requests
