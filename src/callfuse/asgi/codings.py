"""Remove content codings (gzip, deflate, zstd, br), piece by piece, in bounded time and memory.

A decompression bomb is a few bytes that unpack to many. So input is processed in small steps, output comes in pieces of
bounded length, and a reader may stop at any piece. The cost of a step is proportional to its input and output.
"""

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol

PIECE_BYTES: Final = 64 * 1024
"""The most bytes of one output piece."""
_STEP: Final = 16 * 1024
"""Bytes of one input step. zlib copies its unused bytes for each piece and each member."""
_ZSTD_WINDOW_LOG: Final = 23
"""The largest window of the coding `zstd`, 8 MB, in bits (RFC 9659). The format itself allows 2 GB."""

MOST_CODINGS: Final = 3
"""The most codings of one body. Clients use one; misconfigured gateways are known to use two."""
MOST_MEMBERS: Final = 1000
"""The most members (gzip) or frames (zstd) of a request's body. Clients write one; parallel packers one per 128 KB."""
HARMLESS_BYTES: Final = 16 * 1024 * 1024
"""A body may always unpack to this length, because a looping conversation packs very well. It is 4 million tokens, more
than any model reads."""
MOST_TIMES: Final = 100
"""A body that unpacks to more than that may grow by at most this factor. Text grows by 3 to 20, images hardly."""


class UnreadableBodyError(ValueError):
    """The content coding is unknown or broken, or the decoded body is over a limit."""


class Unpacker(Protocol):
    """Removes one coding from one body.

    `members`: how many members (gzip) or frames (zstd) of the body have begun.
    """

    @property
    def members(self) -> int:
        """How many members or frames have begun."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the body, and yield the unpacked bytes in pieces, which may be empty. Raises
        UnreadableBodyError."""
        ...

    def finish(self) -> None:
        """End the body. Raises UnreadableBodyError if it is cut off."""
        ...


class _Inflate:
    """Unpacks zlib's formats and raw deflate streams, which some clients send as `deflate`."""

    def __init__(self, *, is_gzip: bool) -> None:
        self.members = 0
        self._is_gzip = is_gzip
        self._stream: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _STEP):
            rest, more = data[at : at + _STEP], False
            while rest or more:
                if self._stream is None:
                    has_header = self._is_gzip or rest[:1] == b"\x78"
                    self._stream = zlib.decompressobj(15 + 32 if has_header else -15)
                    self.members += 1
                try:
                    piece = self._stream.decompress(rest, PIECE_BYTES)
                except zlib.error as error:
                    raise UnreadableBodyError(str(error)) from None
                rest, more = self._stream.unconsumed_tail, len(piece) == PIECE_BYTES
                if self._stream.eof:
                    rest, more, self._stream = self._stream.unused_data, False, None
                yield piece

    def finish(self) -> None:
        if self._stream is not None:
            raise UnreadableBodyError("cut off")


class _Zstd:
    """Unpacks zstd. Needs Python 3.14, or the package `backports.zstd` for older ones."""

    def __init__(self) -> None:
        self.members = 0
        try:
            self._zstd = _import_first("compression.zstd", "backports.zstd")
        except ImportError:
            raise UnreadableBodyError("needs Python 3.14 or the package backports.zstd") from None
        self._options = {self._zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        self._stream: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _STEP):
            rest, more = data[at : at + _STEP], False
            while rest or more:
                if self._stream is None:
                    self._stream = self._zstd.ZstdDecompressor(options=self._options)
                    self.members += 1
                try:
                    piece = self._stream.decompress(rest, PIECE_BYTES)
                except self._zstd.ZstdError as error:
                    raise UnreadableBodyError(str(error)) from None
                rest, more = b"", not self._stream.needs_input
                if self._stream.eof:
                    rest, more, self._stream = self._stream.unused_data, False, None
                yield piece

    def finish(self) -> None:
        if self._stream is not None:
            raise UnreadableBodyError("cut off")


class _Brotli:
    """Unpacks br. Needs the package `brotli` (1.2 or newer) or `brotlicffi`, with support for limited output."""

    def __init__(self) -> None:
        self.members = 1
        try:
            brotli = _import_first("brotli", "brotlicffi")
            self._stream = brotli.Decompressor()
            self._stream.can_accept_more_data()
        except (ImportError, AttributeError):
            raise UnreadableBodyError("needs the package brotli, 1.2 or newer") from None
        self._error: type[Exception] = brotli.error

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _STEP):
            try:
                yield self._stream.process(data[at : at + _STEP], output_buffer_limit=PIECE_BYTES)
                while not self._stream.can_accept_more_data():
                    yield self._stream.process(b"", output_buffer_limit=PIECE_BYTES)
            except self._error as error:
                raise UnreadableBodyError(str(error)) from None

    def finish(self) -> None:
        if not self._stream.is_finished():
            raise UnreadableBodyError("cut off")


def _import_first(*names: str) -> Any:
    """Import the first of these modules that is installed. Raises ImportError if there is no such module."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ImportError:
            pass
    return import_module(names[-1])


_UNPACKERS: Final[dict[str, Callable[[], Unpacker]]] = {
    "gzip": lambda: _Inflate(is_gzip=True),
    "x-gzip": lambda: _Inflate(is_gzip=True),
    "deflate": lambda: _Inflate(is_gzip=False),
    "zstd": _Zstd,
    "br": _Brotli,
}


class _Plain:
    """Returns bytes unchanged, because there is no coding."""

    members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        """Do nothing: a body without a coding cannot be cut off."""


class _Stacked:
    """Removes several codings: the output of the outer one is the input of the inner one."""

    def __init__(self, outer: Unpacker, inner: Unpacker) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def members(self) -> int:
        return max(self._outer.members, self._inner.members)

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in self._outer.feed(data):
            yield from self._inner.feed(piece)

    def finish(self) -> None:
        self._outer.finish()
        self._inner.finish()


def unpacker_of(encoding: str) -> Unpacker:
    """Return the unpacker for the codings of a `content-encoding` header. Raises UnreadableBodyError if one is unknown
    or if there are too many."""
    names = [name for part in encoding.split(",") if (name := part.strip().lower()) != "identity"]
    if len(names) > MOST_CODINGS:
        raise UnreadableBodyError(f"over {MOST_CODINGS} codings")
    unpackers = [_unpacker_of_one(name) for name in reversed(names)] or [_Plain()]
    stack = unpackers[0]
    for inner in unpackers[1:]:
        stack = _Stacked(stack, inner)
    return stack


def _unpacker_of_one(name: str) -> Unpacker:
    make = _UNPACKERS.get(name)
    if make is None:
        raise UnreadableBodyError("an unknown coding")
    return make()


def unpack(content: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a whole body by its `content-encoding` header, in time linear to the unpacked length.

    Raises UnreadableBodyError if it is broken, longer than `limit` bytes, or a decompression bomb.
    """
    try:
        return b"".join(_within_limits(unpacker_of(encoding), content, limit))
    except UnreadableBodyError as error:
        raise UnreadableBodyError(f"content-encoding {encoding}: {error}") from None


def _within_limits(unpacker: Unpacker, content: bytes, limit: int) -> Iterator[bytes]:
    """Yield the pieces of a whole body. Raises UnreadableBodyError at the first limit."""
    most = max(HARMLESS_BYTES, MOST_TIMES * len(content))
    size = 0
    for piece in unpacker.feed(content):
        size += len(piece)
        if size > limit:
            raise UnreadableBodyError("over the limit")
        if size > most:
            raise UnreadableBodyError(f"decompressed, it is more than {MOST_TIMES} times as long")
        if unpacker.members > MOST_MEMBERS:
            raise UnreadableBodyError(f"over {MOST_MEMBERS} members")
        yield piece
    unpacker.finish()
