"""Both ends of the wire, byte by byte: an upstream that plays what a test writes, and a client that reads what came.

In: bytes. Out: bytes. HTTP libraries would repair or hide what these tests look at: the order of headers, the end of a
chunked body, the moment of a byte.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

LIMIT_S = 60.0
"""For waits that end by themselves unless something is broken."""
RECEIVED = 65536
"""Bytes that the system keeps for either end until they are read; by itself it takes up to 32 MB more."""

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the headers of a message, names in lower case."""

    line: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key == name]

    @property
    def names(self) -> list[bytes]:
        """The names of the headers, in order."""
        return [key for key, _ in self.headers]


@dataclass(frozen=True, slots=True)
class Peer:
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write, and wait until the system has taken it."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Head:
        """Read a message up to its body."""
        async with asyncio.timeout(LIMIT_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *rest = raw[:-4].split(b"\r\n")
        pairs = [header.partition(b":") for header in rest]
        return Head(line, tuple((name.lower(), value.strip()) for name, _, value in pairs))

    async def until(self, what: bytes) -> bytes:
        """Read until these bytes have come."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readuntil(what)

    async def exactly(self, size: int) -> bytes:
        """Read so many bytes."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Read until the other end closes; a reset is an end too."""
        seen = bytearray()
        async with asyncio.timeout(LIMIT_S):
            try:
                while data := await self.reader.read(65536):
                    seen += data
            except ConnectionError:
                pass
        return bytes(seen)

    async def body(self, head: Head) -> bytes:
        """Read the body that the headers announce."""
        if lengths := head.all(b"content-length"):
            return await self.exactly(int(lengths[0]))
        return await self.chunks() if head.all(b"transfer-encoding") else b""

    async def chunks(self) -> bytes:
        """Read a chunked body to its end."""
        body = bytearray()
        while size := int(await self.until(b"\r\n"), 16):
            body += (await self.exactly(size + 2))[:-2]
        await self.exactly(2)
        return bytes(body)

    async def request(self) -> tuple[Head, bytes]:
        """Read a whole request."""
        head = await self.head()
        return head, await self.body(head)

    response = request


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def upstream(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The base URL of a server that plays the script on each connection; what a script raises is raised at the end."""
    playing: set[asyncio.Task[None]] = set()
    failed: list[BaseException] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the proxy closed an idle connection, or left as the test wants
        except Exception as error:  # noqa: BLE001 - it is raised where the test sees it
            failed.append(error)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(play(reader, writer))
        playing.add(task)
        task.add_done_callback(playing.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    for listener in server.sockets:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(playing):
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await server.wait_closed()
    for error in failed:
        raise error


@asynccontextmanager
async def client(base_url: str) -> AsyncIterator[Peer]:
    """A connection to a server."""
    url = urlsplit(base_url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (url.hostname or "", url.port or 0))
        reader, writer = await asyncio.open_connection(sock=connection.dup(), limit=2**20)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


def post(path: str, body: bytes = b"{}", *headers: bytes) -> bytes:
    """A POST with a body of known length."""
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"host: localhost", *headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", body])


def get(path: str, *headers: bytes, method: bytes = b"GET") -> bytes:
    """A request without a body."""
    return b"\r\n".join([method + b" " + path.encode() + b" HTTP/1.1", b"host: localhost", *headers, b"", b""])


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def unchunked(raw: bytes) -> tuple[bytes, bool]:
    """The data of a chunked body, and whether its end was said."""
    body = bytearray()
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        if int(size, 16) == 0:
            return bytes(body), True
        body += raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]
    return bytes(body), False
