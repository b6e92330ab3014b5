"""Which headers go on, both ways.

In: headers as ASGI or aiohttp gives them. Out: the same headers in the same order, duplicates kept, without those that
belong to one connection only (RFC 9110, 7.6.1) and without what the other side must say for itself (`host`, `expect`).
"""

from collections.abc import Iterable

Pairs = Iterable[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# `expect` is answered by the server in front; the upstream's 100 would come to nobody.
_NOT_REQUESTED = HOP_BY_HOP | {b"host", b"expect"}


def to_upstream(headers: Pairs) -> list[tuple[str, str]]:
    """The request headers as aiohttp takes them. UTF-8 keeps its bytes; other bytes go out as the UTF-8 of Latin-1."""
    kept: list[tuple[str, str]] = []
    named: set[str] | None = None
    chunked = False
    for raw_name, value in headers:
        name = raw_name.lower()
        if name not in _NOT_REQUESTED:
            kept.append((name.decode("latin-1"), _text(value)))
        elif name == b"connection":
            named = _named(value, named)
        elif name == b"transfer-encoding":
            chunked = True
    if chunked:  # a length beside it is an attempt to make two servers see two requests
        named = (named or set()) | {"content-length"}
    return [(name, value) for name, value in kept if name not in named] if named else kept


def to_client(headers: Pairs, *, bodiless: bool) -> list[tuple[bytes, bytes]]:
    """The response headers as ASGI wants them.

    `bodiless` is a 204 or 304, where `content-length` speaks of a body that does not follow: servers would count it.
    """
    kept: list[tuple[bytes, bytes]] = []
    named: set[str] | None = {"content-length"} if bodiless else None
    for raw_name, value in headers:
        name = raw_name.lower()
        if name not in HOP_BY_HOP:
            kept.append((name, value))
        elif name == b"connection":
            named = _named(value, named)
        elif name == b"transfer-encoding":
            named = (named or set()) | {"content-length"}
    return [(name, value) for name, value in kept if name.decode("latin-1") not in named] if named else kept


def _named(connection: bytes, named: set[str] | None) -> set[str] | None:
    """Adds the headers that a `connection` header names; None while there is none, as in nearly every message."""
    tokens = {token.strip() for token in connection.decode("latin-1").lower().split(",")}
    tokens -= {"", "close", "keep-alive", "content-length"}
    return (named or set()) | tokens if tokens else named


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
