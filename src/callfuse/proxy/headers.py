"""Filter the headers that the proxy forwards, both ways.

Order and duplicates stay. Hop-by-hop headers are removed (RFC 9110, 7.6.1), and from requests also `host` and `expect`,
which each hop sets for itself. Streams get one more: `x-accel-buffering`.
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
# The server in front answers `expect`; a 100 of the upstream would not be read.
_NOT_REQUESTED = HOP_BY_HOP | {b"host", b"expect"}
# nginx buffers answers (4 KB or more), unless its configuration or this header turns it off.
_UNBUFFERED = (b"x-accel-buffering", b"no")
_STREAMS = (b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream")


def to_upstream(headers: Pairs) -> list[tuple[str, str]]:
    """Filter request headers, from ASGI to aiohttp. UTF-8 keeps its bytes; other bytes are read as Latin-1."""
    kept: list[tuple[str, str]] = []
    named: set[str] | None = None
    chunked = False
    for raw_name, value in headers:
        name = raw_name.lower()
        if name not in _NOT_REQUESTED:
            kept.append((name.decode("latin-1"), _text(value)))
        elif name == b"connection":
            named = _add_named(value, named)
        elif name == b"transfer-encoding":
            chunked = True
    if chunked:  # with both lengths, two servers may see different requests (request smuggling)
        named = (named or set()) | {"content-length"}
    return [(name, value) for name, value in kept if name not in named] if named else kept


def has_unknown_coding(headers: Pairs) -> bool:
    """Whether a request's body has a transfer coding other than `chunked` (RFC 9112, 6.1).

    httptools removes only the chunks, and leaves others, such as gzip, in the body. Forwarded without its
    `transfer-encoding`, the body would have another meaning.
    """
    codings = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    return bool(codings) and [one.strip() for one in b",".join(codings).split(b",") if one.strip()] != [b"chunked"]


def declared_length(headers: Iterable[tuple[str, str]]) -> int | None:
    """Return the length of the body in request headers; None if there is none. Raises ValueError for an invalid length,
    or several lengths."""
    values = {value.strip() for name, value in headers if name == "content-length"}
    if not values:
        return None
    (value,) = values
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(value)
    return int(value)


def to_client(headers: Pairs, *, bodiless: bool) -> list[tuple[bytes, bytes]]:
    """Filter response headers, from aiohttp to ASGI.

    `bodiless`: a 204 or 304, whose `content-length` is dropped, because servers would expect that many bytes.
    """
    kept: list[tuple[bytes, bytes]] = []
    named: set[str] | None = {"content-length"} if bodiless else None
    for raw_name, value in headers:
        name = raw_name.lower()
        if name not in HOP_BY_HOP:
            kept.append((name, value))
        elif name == b"connection":
            named = _add_named(value, named)
        elif name == b"transfer-encoding":
            named = (named or set()) | {"content-length"}
    return [(name, value) for name, value in kept if name.decode("latin-1") not in named] if named else kept


def unbuffered(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Tell an nginx in front not to buffer a stream. Names are in lower case. If the upstream has set the header
    itself, its value stays."""
    names = dict(headers)
    is_stream = names.get(b"content-type", b"").strip().lower().startswith(_STREAMS)
    return [*headers, _UNBUFFERED] if is_stream and _UNBUFFERED[0] not in names else headers


def _add_named(connection: bytes, named: set[str] | None) -> set[str] | None:
    """Add the headers that a `connection` header names. None stands for an empty set, as in nearly every message."""
    tokens = {token.strip() for token in connection.decode("latin-1").lower().split(",")}
    tokens -= {"", "close", "keep-alive", "content-length"}
    return (named or set()) | tokens if tokens else named


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
