"""An upstream that reads requests to the letter and keeps whose bytes it saw, and the servers in front of the proxy.

Every request names its owner in `x-owner`, and that of an honest client has a body of nothing but that name. An
upstream that takes bytes of one request for another's sees two names in one, or a request that nobody has sent.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from callfuse.cli import patience
from callfuse.cli.serve import ServeSetup, build_app
from callfuse.config import resolve
from tests.proxy.wire import Head, Peer, upstream
from tests.support.serving import serve

GUARDED: Final = "/v1/chat/completions"
HONEST: Final = (b"honest", b"another")
"""The owners of requests that harm nobody."""
WORDS: Final = 3
"""How often a body has its owner's name."""
HIDDEN: Final = b"POST /hidden HTTP/1.1\r\nhost: localhost\r\nx-owner: hidden\r\ncontent-length: 0\r\n\r\n"
"""A request within a body."""


class ServedOverH11(patience.PatientProtocol):
    """The protocol of `callfuse serve` where httptools is not installed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._inner = H11Protocol(**options)


SERVERS: Final[dict[str, Any]] = {
    "callfuse serve": patience.PatientProtocol,
    "callfuse serve over h11": ServedOverH11,
    "uvicorn over httptools": "httptools",
    "uvicorn over h11": "h11",
}
OWN: Final = ("callfuse serve", "callfuse serve over h11")


@dataclass
class Strict:
    """The upstream. It answers with the name of the owner; below `/early/` before the body has come, with that status.

    `requests`: all that came whole, `cut`: what did not, `odd`: bytes that are no request.
    """

    requests: list[tuple[Head, bytes]] = field(default_factory=list)
    cut: list[tuple[Head, bytearray]] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)
    open: int = 0

    async def __call__(self, peer: Peer) -> None:
        """Serve one connection."""
        self.open += 1
        try:
            while await self._serve(peer):
                pass
        finally:
            self.open -= 1

    async def _serve(self, peer: Peer) -> bool:
        line = await peer.reader.readline()
        if not line:
            return False
        if not line.startswith((b"POST /", b"GET /")) or not line.endswith(b" HTTP/1.1\r\n"):
            self.odd.append(line)
            return False
        first = await peer.head()  # it takes the first header for the line
        head = Head(line.strip(), (head_line(first.line), *first.headers))
        target = line.split()[1]
        if early := target.startswith(b"/early/"):
            await peer.send(answer(target.removeprefix(b"/early/"), head))
        seen = bytearray()
        self.cut.append((head, seen))
        await read_body(peer, head, seen.extend)
        self.requests.append((head, bytes(seen)))
        self.cut.remove((head, seen))
        if not early:
            await peer.send(answer(b"200", head))
        return True

    def strangers(self) -> list[str]:
        """What was seen that nobody has sent so: empty if every request was whole and its owner's own."""
        found = [f"no request: {line!r}" for line in self.odd]
        for head, body in [*self.requests, *self.cut]:
            owners = head.all(b"x-owner")
            if len(owners) != 1 or b"x-trailer" in head.names:
                found.append(f"nobody's: {head}")
            elif any(name in bytes(body) for name in HONEST if name not in owners):
                found.append(f"another's in that of {owners[0]!r}: {bytes(body[:200])!r}")
        for head, body in self.requests:
            (owner,) = head.all(b"x-owner")[:1] or [b""]
            if owner in HONEST and body != b" ".join([owner] * WORDS):
                found.append(f"not what {owner!r} has sent: {body[:200]!r}")
        return found


def head_line(line: bytes) -> tuple[bytes, bytes]:
    """A header's line as a pair."""
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


def answer(status: bytes, head: Head) -> bytes:
    """An answer with the owner's name."""
    owner = b" ".join(head.all(b"x-owner"))
    if status in (b"204", b"304"):
        return b"HTTP/1.1 %s X\r\nx-of: %s\r\n\r\n" % (status, owner)
    return b"HTTP/1.1 %s X\r\nx-of: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, owner, len(owner), owner)


async def read_body(peer: Peer, head: Head, take: Callable[[bytes], None]) -> None:
    """Read a body to its end, piece by piece."""
    if lengths := head.all(b"content-length"):
        left = int(lengths[0])
        while left:
            if not (piece := await peer.reader.read(min(left, 65536))):
                raise ConnectionResetError
            left -= len(piece)
            take(piece)
    elif head.all(b"transfer-encoding"):
        while size := int(await peer.until(b"\r\n"), 16):
            take((await peer.exactly(size + 2))[:-2])
        await peer.exactly(2)


@asynccontextmanager
async def behind(server: str, origin: str) -> AsyncIterator[str]:
    """The base URL of the proxy with its guard, served so, in front of an upstream."""
    app = build_app(ServeSetup(resolve({"serve": {"upstream": origin}}, {}), None, token="token-of-the-tests"))
    async with serve(app, http=SERVERS[server], interface="asgi3", server_header=False, date_header=False) as base_url:
        yield base_url


@asynccontextmanager
async def strictly(server: str) -> AsyncIterator[tuple[Strict, str]]:
    """A strict upstream, and the base URL of the proxy in front of it."""
    strict = Strict()
    async with upstream(strict) as origin, behind(server, origin) as base_url:
        yield strict, base_url


def owned(
    owner: bytes,
    *lines: bytes,
    path: str = "/plain",
    words: int = 3,
    length: int | None = None,
    method: bytes = b"POST",
) -> bytes:
    """A request whose body is made of its owner's name; `length` where another one is declared, -1 for none."""
    body = b" ".join([owner] * words)
    declared = len(body) if length is None else length
    head = [b"POST %s HTTP/1.1" % path.encode(), b"host: localhost", b"x-owner: " + owner, *lines]
    if declared >= 0:
        head.append(b"content-length: %d" % declared)
    return b"\r\n".join([*head, b"", body])
