"""What reaches the upstream and what comes back: line, headers, framing."""

import gzip

import pytest

from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.proxy.proxying import Recorder, through
from tests.proxy.wire import CHUNKED, END, OK, Peer, chunk, get, post, unchunked
from tests.proxy.wire import client as connect
from tests.proxy.wire import upstream as listening
from tests.support.asgi import Receive, Scope, Send
from tests.support.serving import serve


async def test_request_headers_keep_their_order_and_duplicates() -> None:
    """The upstream gets the client's headers as they stood, its own host before them, and not one more."""
    upstream = Recorder()
    async with through(upstream) as client:
        await client.send(post("/v1/x", b"{}", b"X-B: 1", b"x-a: 2", b"X-b: 3", b"authorization: Bearer k", b"x-a: 2"))
        await client.response()
    sent = [pair for pair in upstream.head.headers if pair[0] != b"host"]
    assert sent == [
        (b"x-b", b"1"),
        (b"x-a", b"2"),
        (b"x-b", b"3"),
        (b"authorization", b"Bearer k"),
        (b"x-a", b"2"),
        (b"content-length", b"2"),
    ]
    assert upstream.head.all(b"host")[0].startswith(b"127.0.0.1:")


async def test_response_headers_keep_their_order_duplicates_and_bytes() -> None:
    """The client gets the upstream's headers as they stood, bytes beyond ASCII included."""
    lines = [b"Set-Cookie: a=1", b"X-Latin: caf\xe9", b"set-cookie: b=2", "x-utf8: café".encode(), b"content-length: 2"]
    async with through(Recorder(b"\r\n".join([b"HTTP/1.1 201 Made Up", *lines, b"", b"ok"]))) as client:
        await client.send(get("/"))
        head, body = await client.response()
    assert head.line.split()[1] == b"201"
    assert head.headers == (
        (b"set-cookie", b"a=1"),
        (b"x-latin", b"caf\xe9"),
        (b"set-cookie", b"b=2"),
        (b"x-utf8", "café".encode()),
        (b"content-length", b"2"),
    )
    assert body == b"ok"


async def test_cookies_are_not_kept() -> None:
    """A cookie that the upstream sets is the client's affair: the next request carries none."""
    upstream = Recorder(b"HTTP/1.1 200 OK\r\nset-cookie: session=1; path=/\r\ncontent-length: 0\r\n\r\n")
    async with through(upstream) as client:
        for _ in range(2):
            await client.send(get("/"))
            await client.response()
    assert all(not head.all(b"cookie") for head, _ in upstream.heard)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/a%2Fb%20c:generate?key=a%2Bb+c&empty=&x=%C3%A9",
        "/a/../b/./c?q=/../",
        "//elsewhere.test/x?y=http://z",
        "/@elsewhere.test/",
        "/caf%E9/%zz",
        "/?a?b=c&=",
    ],
)
async def test_the_target_is_sent_byte_for_byte(target: str) -> None:
    """Path and query reach the upstream as the client wrote them, behind the base URL's path."""
    for prefix in ("", "/base%2Fpath/"):
        upstream = Recorder()
        async with through(upstream, prefix=prefix) as client:
            await client.send(get(target))
            await client.response()
        assert upstream.head.line == b"GET " + (prefix.rstrip("/") + target).encode() + b" HTTP/1.1"


async def test_a_client_that_takes_it_for_a_forward_proxy() -> None:
    """A target with another host in it asks the upstream all the same: nobody is carried elsewhere."""
    upstream = Recorder()
    async with through(upstream) as client:
        await client.send(get("http://elsewhere.test/x?y=1"))
        await client.response()
    assert upstream.head.line == b"GET /x?y=1 HTTP/1.1"
    assert upstream.head.all(b"host")[0].startswith(b"127.0.0.1:")


async def test_what_belongs_to_the_connection_stays_behind_on_the_way_in() -> None:
    """Hop-by-hop headers, those that `connection` names, and `expect` do not reach the upstream."""
    upstream = Recorder()
    dropped = (b"te: trailers", b"proxy-authorization: Basic x", b"keep-alive: 5", b"trailer: x-t", b"x-mine: 1")
    headers = (*dropped, b"connection: keep-alive, X-Mine", b"proxy-connection: close", b"x-other: 1")
    async with through(upstream) as client:
        await client.send(post("/", b"{}", *headers))
        await client.response()
    assert upstream.head.names == [b"host", b"x-other", b"content-length"]


async def test_what_belongs_to_the_connection_stays_behind_on_the_way_out() -> None:
    """Hop-by-hop headers and those that `connection` names do not reach the client."""
    reply = (
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nx-kept: 1\r\nconnection: x-mine\r\nx-mine: 1\r\n"
        b"proxy-authenticate: Basic\r\nupgrade: h2c\r\ntrailer: x-t\r\ncontent-length: 2\r\n\r\nok"
    )
    async with through(Recorder(reply)) as client:
        await client.send(get("/"))
        head, body = await client.response()
    assert head.headers == ((b"x-kept", b"1"), (b"content-length", b"2"))
    assert body == b"ok"


async def test_expect_is_answered_here() -> None:
    """A client that waits for 100-continue gets it, and its request goes on without the header."""
    upstream = Recorder()
    async with through(upstream) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n")
        assert (await client.head()).line == b"HTTP/1.1 100 Continue"
        await client.send(b"hello")
        assert (await client.response())[1] == b"ok"
    assert (upstream.body, upstream.head.all(b"expect")) == (b"hello", [])


async def test_an_interim_response_is_not_the_answer() -> None:
    """A 103 of the upstream's is passed over."""
    async with through(Recorder(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK)) as client:
        await client.send(get("/"))
        head, body = await client.response()
    assert (head.line.split()[1], body) == (b"200", b"ok")


async def test_a_request_without_a_body_has_none() -> None:
    """A GET goes out with neither length nor chunks."""
    upstream = Recorder()
    async with through(upstream) as client:
        await client.send(get("/v1/models", b"accept: */*"))
        await client.response()
    assert upstream.head.names == [b"host", b"accept"]


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3_000_000])
async def test_a_length_stays_a_length(size: int) -> None:
    """A body of known length arrives with that length, in its place among the headers."""
    upstream, body = Recorder(), bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with through(upstream) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\nx-after: 1\r\n\r\n" % size + body)
        await client.response()
    assert upstream.head.headers[1:] == ((b"content-length", str(size).encode()), (b"x-after", b"1"))
    assert upstream.body == body


async def test_a_chunked_request_arrives_chunked() -> None:
    """A body whose length nobody knows yet is sent in chunks, without a length."""
    upstream = Recorder()
    async with through(upstream) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"hel"))
        await client.send(chunk(b"lo") + END)
        await client.response()
    framing = (upstream.head.all(b"content-length"), upstream.head.all(b"transfer-encoding"))
    assert upstream.body == b"hello"
    assert framing in [([], [b"chunked"]), ([b"5"], [])]  # a body that came whole may be counted


async def test_a_chunked_answer_arrives_chunked() -> None:
    """An answer without a length comes to its proper end."""
    async with through(Recorder(CHUNKED + chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + END)) as client:
        await client.send(get("/"))
        head, body = await client.response()
    own = (b"x-accel-buffering", b"no")
    assert head.headers == ((b"content-type", b"text/event-stream"), own, (b"transfer-encoding", b"chunked"))
    assert body == b"data: 1\n\ndata: 2\n\n"


async def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    """HTTP/1.0 style: the upstream's closing is the end of the body."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with through(script) as client:
        await client.send(get("/"))
        _, body = await client.response()
    assert body == b"all of it"


async def test_a_compressed_answer_is_not_touched() -> None:
    """gzip comes through byte for byte, with its header and length."""
    packed = gzip.compress(b"data: 1\n\n" * 100, mtime=0)
    lines = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    upstream = Recorder(lines + packed)
    async with through(upstream) as client:
        await client.send(get("/", b"accept-encoding: gzip, br"))
        head, body = await client.response()
    assert upstream.head.all(b"accept-encoding") == [b"gzip, br"]
    assert (head.all(b"content-encoding"), body) == ([b"gzip"], packed)


async def test_a_redirect_is_the_clients_to_follow() -> None:
    """A 307 comes back as it is; nothing else is asked."""
    upstream = Recorder(b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/else\r\ncontent-length: 0\r\n\r\n")
    async with through(upstream) as client:
        await client.send(post("/"))
        head, _ = await client.response()
    assert head.all(b"location") == [b"http://127.0.0.1:1/else"]
    assert len(upstream.heard) == 1


@pytest.mark.parametrize(
    ("method", "reply", "headers"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n", ((b"content-length", b"12345"),)),
        (b"GET", b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n", ((b"x-a", b"1"),)),
        (b"GET", b'HTTP/1.1 304 Not Modified\r\netag: "1"\r\ncontent-length: 12345\r\n\r\n', ((b"etag", b'"1"'),)),
    ],
)
async def test_answers_without_a_body(method: bytes, reply: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """HEAD, 204 and 304 end with their headers, and the connection serves the next request."""
    upstream = Recorder(reply)
    async with through(upstream) as client:
        for _ in range(2):
            await client.send(get("/", method=method))
            assert (await client.head()).headers == headers
    assert (len(upstream.heard), upstream.connections) == (2, 1)


async def test_connections_are_kept() -> None:
    """Requests one after another share one connection to the upstream."""
    upstream = Recorder(CHUNKED + chunk(b"x") + END)
    async with through(upstream) as client:
        for _ in range(5):
            await client.send(post("/"))
            assert (await client.response())[1] == b"x"
    assert upstream.connections == 1


async def test_an_answer_before_the_end_of_the_request() -> None:
    """An upstream that refuses a body early is heard, and the rest of the body troubles nobody."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.exactly(5)
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")

    async with through(script) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhello")
        head, body = await client.response()
    assert (head.line.split()[1], body) == (b"413", b"big")


async def test_credentials_of_the_base_url_are_for_requests_that_bring_none() -> None:
    """`user:password@` becomes basic authorization; a client's own authorization stands."""
    upstream = Recorder()
    async with listening(upstream) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin.replace("//", "//me:p%40ss@")))
        async with serve(proxy) as base_url, connect(base_url) as client:
            for headers in ((), (b"authorization: Bearer own",)):
                await client.send(get("/", *headers))
                await client.response()
    assert [head.all(b"authorization") for head, _ in upstream.heard] == [[b"Basic bWU6cEBzcw=="], [b"Bearer own"]]


async def test_mounted_under_a_path() -> None:
    """Below a mount without a lifespan, the upstream sees the path without the mount's; `close` ends the session."""
    upstream = Recorder()
    async with listening(upstream) as origin:
        proxy = ReverseProxy(ServeSettings(upstream=origin))

        async def host(scope: Scope, receive: Receive, send: Send) -> None:
            await proxy({**scope, "root_path": "/vendor"}, receive, send)

        async with serve(host, lifespan="off") as base_url, connect(base_url) as client:
            for path in ("/vendor/v1/a%2Fb?c=d", "/vendor", "/vendors"):
                await client.send(get(path))
                await client.response()
        await proxy.close()
    lines = [head.line.split()[1] for head, _ in upstream.heard]
    assert lines == [b"/v1/a%2Fb?c=d", b"/", b"/vendors"]


def test_chunks_are_read_as_they_were_written() -> None:
    """The reader of these tests tells an end from a break."""
    assert unchunked(chunk(b"a") + chunk(b"b")) == (b"ab", False)
    assert unchunked(chunk(b"a") + END) == (b"a", True)
