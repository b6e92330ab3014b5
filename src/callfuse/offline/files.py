"""Files of recorded runs, cut into records: JSON Lines, a JSON array of records, or objects one after the other.

A stream of bytes enters; pieces, each a JSON value with its text and line, and faults leave. Whatever the size of the
file, no more than one piece is held, and none longer than `MAX_PIECE`. What is compressed is known by its first bytes.
"""

import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from callfuse.offline.formats.messages import is_message
from callfuse.offline.run import Fault, kind_of
from callfuse.wire import BOM
from callfuse.wire.json_array import JSON_ARRAY
from callfuse.wire.jsontext import NotJSON, dumps, loads

STDIN: Final = "-"
MAX_PIECE: Final = 64 * 2**20
"""Bytes of one line, or one element of an array: a run of a thousand calls with results of 64 KB."""

_TOO_LONG: Final = f"is a record of more than {MAX_PIECE >> 20} MiB"
_GLANCE: Final = 2**18
"""Bytes of a first line that show what the file is."""
_CHUNK: Final = 2**18
_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"
_LISTS: Final = re.compile(rb"\s*\[\s*\[")


class Piece(NamedTuple):
    """A record's value, the JSON text that it was read from, and its line."""

    value: Any
    text: bytes
    line: int


def open_raw(name: str) -> BinaryIO:
    """The bytes of a file as it stands, `-` for standard input; OSError."""
    return sys.stdin.buffer if name == STDIN else Path(name).open("rb")


def _plain(raw: BinaryIO) -> BinaryIO:
    """The bytes of a file without its compression."""
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))
    begin = stream.peek(len(_XZ))
    if begin.startswith(_XZ):
        return cast(BinaryIO, lzma.open(stream))
    if begin.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(stream))
    return stream


def pieces(name: str, raw: BinaryIO) -> Iterator[Piece | Fault]:
    """The records of a file, compressed or not, and what could not be read."""
    try:
        yield from _pieces(name, _plain(raw))
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        yield Fault(name, 0, f"cannot be read to its end: {error}")


def _pieces(name: str, stream: BinaryIO) -> Iterator[Piece | Fault]:
    number = 1
    first = stream.readline(_GLANCE).removeprefix(BOM)
    while first and not first.strip():
        first = stream.readline(_GLANCE)
        number += 1
    if len(first) >= _GLANCE and _begins_array(first):
        yield from _document(name, first, stream, number)
        return
    first += b"" if first.endswith(b"\n") else stream.readline(MAX_PIECE + 1 - len(first))
    second = b"" if _is_json(first) else stream.readline(MAX_PIECE + 1)
    if _is_lines(first, second):
        yield from _lines(name, chain([first, second] if second else [first], _raw_lines(stream)), number)
    else:
        yield from _document(name, first + second, stream, number)


def _begins_array(text: bytes) -> bool:
    """Whether a long line begins an array of records, which need not be read whole."""
    try:
        found = [JSON_ARRAY.payload(frame) for frame in JSON_ARRAY.framer().feed(text)]
    except NotJSON:
        return False
    return text.lstrip().startswith(b"[") and bool(found) and not is_message(found[0])


def _is_lines(first: bytes, second: bytes) -> bool:
    """Whether these are lines of JSON: not where a value goes on in the next line."""
    begin = first.strip()[:1]
    if begin not in (b"[", b"{") or (not second and _is_json(first)):
        return True
    return first.strip() != b"[" and _is_json(second)


def _is_json(text: bytes) -> bool:
    try:
        loads(text)
    except NotJSON:
        return False
    return True


def _raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream; of a long one as much as shows that it is too long."""
    while line := stream.readline(MAX_PIECE + 1):
        yield line
        while len(line) > MAX_PIECE and not line.endswith(b"\n"):
            line = stream.readline(MAX_PIECE + 1)


def _lines(name: str, lines: Iterator[bytes], number: int) -> Iterator[Piece | Fault]:
    for at, line in enumerate(lines, number):
        if not line.strip():
            continue
        if len(line) > MAX_PIECE:
            yield Fault(name, at, _TOO_LONG)
            continue
        try:
            value = loads(line)
        except NotJSON as error:
            yield Fault(name, at, f"is no JSON: {error}")
            continue
        yield from _records(name, Piece(value, line, at))


def _document(name: str, begin: bytes, stream: BinaryIO, line: int) -> Iterator[Piece | Fault]:
    """Records that go over several lines, or stand in one array."""
    if _LISTS.match(begin):
        yield from _whole(name, begin, stream, line)
        return
    framer = JSON_ARRAY.framer()
    read = bytearray()
    is_first = True
    for chunk in chain([begin], iter(lambda: stream.read(_CHUNK), b"")):
        if is_first:
            read += chunk
        for frame in framer.feed(chunk):
            at = line + frame[: max(0, frame.find(b"{"))].count(b"\n")
            line += frame.count(b"\n")
            if len(frame) > MAX_PIECE:
                yield Fault(name, at, _TOO_LONG)
                continue
            try:
                value = JSON_ARRAY.payload(frame)
            except NotJSON as error:
                yield Fault(name, at, f"is no JSON from here on: {error}")
                return
            if value is None:
                continue
            if is_first and is_message(value):
                yield from _whole(name, bytes(read), stream, at)
                return
            is_first = False
            read.clear()
            yield Piece(value, JSON_ARRAY.text(frame), at)
        if framer.waiting > MAX_PIECE:
            yield Fault(name, line, f"{_TOO_LONG}; the rest is not read")
            return
    if framer.rest().strip():
        yield Fault(name, line, "ends in the middle of a record")


def _whole(name: str, begin: bytes, stream: BinaryIO, line: int) -> Iterator[Piece | Fault]:
    """A file that is one value."""
    text = begin + stream.read(max(0, MAX_PIECE - len(begin)))
    if stream.read(1):
        yield Fault(name, line, f"{_TOO_LONG}: give each run a line of its own")
        return
    try:
        yield from _records(name, Piece(loads(text), text, line))
    except NotJSON as error:
        yield Fault(name, line, f"is no JSON: {error}")


def _records(name: str, piece: Piece) -> Iterator[Piece | Fault]:
    """The records of a value: itself, or the elements of a list that is not a run's messages."""
    value = piece.value
    if isinstance(value, dict) or (isinstance(value, list) and (not value or is_message(value[0]))):
        yield piece
    elif isinstance(value, list):
        for element in value:
            if isinstance(element, dict | list):
                yield Piece(element, dumps(element), piece.line)
            else:
                yield Fault(name, piece.line, f"an element is {kind_of(element)}; use objects")
    else:
        yield Fault(name, piece.line, f"holds {kind_of(value)}; use an object, or a list of messages")
