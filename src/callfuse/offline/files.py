"""Read recorded runs from files: JSON Lines, a JSON array of records, or concatenated objects.

`Reading` takes file names and yields runs and faults. `pieces` splits a stream of bytes into records, with one record
in memory at a time, and reports those longer than `MAX_PIECE` as faults. Compressed files (gzip, xz) are recognised by
their first bytes.
"""

import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, NamedTuple, cast

from callfuse.conversations.monologue import equal_answers
from callfuse.offline.formats import FORMATS, format_of
from callfuse.offline.formats.messages import is_message
from callfuse.offline.joining import LIMIT_BYTES, Joining, beginnings, run_of
from callfuse.offline.runs import BadRecord, RecordedConversation, RecordedRun, Unreadable, kind_of
from callfuse.wire import BOM
from callfuse.wire.json_array import JSON_ARRAY
from callfuse.wire.jsontext import NotJSON, dumps, loads

STDIN: Final = "-"
MAX_PIECE: Final = 64 * 2**20
"""The most bytes of one line, or of one element of an array: a run of a thousand calls with results of 64 KB."""

_TOO_LONG: Final = f"is a record of more than {MAX_PIECE >> 20} MiB"
_FIRST_LINE: Final = 2**18
"""The bytes of the first line that are read to recognise the kind of file."""
_CHUNK: Final = 2**18
_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"
_LISTS: Final = re.compile(rb"\s*\[\s*\[")
_FOREIGN: Final = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""Exceptions that readers raise for JSON of an unknown shape."""


class Reading:
    """The runs of some files, one at a time and in the order of the files. Iterate it once.

    `names` are paths; `-` is standard input. `source` is the source of all runs; if empty, a run's source is in its
    record, or else is the name of the file. `words`: read equal answers in words, for `monologue`. `limit_bytes` limits
    the JSON of unfinished conversations (see `offline/joining.py`). Anything unreadable becomes an `Unreadable` among
    the runs; nothing is raised.
    """

    def __init__(
        self, names: Sequence[str], *, source: str = "", words: bool = False, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._names = names
        self._source = source
        self._words = words
        self._limit = limit_bytes
        self._raw: BinaryIO | None = None
        self._before = 0
        self.records = 0
        """The number of records that could be read."""

    @property
    def position(self) -> int:
        """The bytes of all files read so far, before decompression; standard input counts 0."""
        return self._before + (self._raw.tell() if self._raw is not None else 0)

    def __iter__(self) -> Iterator[RecordedRun | Unreadable]:
        for name in self._names:
            try:
                raw = open_raw(name)
            except OSError as error:
                yield Unreadable(name, 0, f"cannot be opened: {error.strerror or error}")
                continue
            with nullcontext(raw) if name == STDIN else raw:
                self._raw = None if name == STDIN else raw
                yield from self._file(name, raw)
                self._before, self._raw = self.position, None

    def _file(self, name: str, raw: BinaryIO) -> Iterator[RecordedRun | Unreadable]:
        joining = Joining(self._limit)
        for piece in pieces(name, raw):
            if isinstance(piece, Unreadable):
                yield piece
                continue
            try:
                yield from self._record(name, piece, joining)
            except BadRecord as error:
                yield Unreadable(name, piece.line, str(error))
        yield from joining.rest()

    def _record(self, name: str, piece: "Piece", joining: Joining) -> Iterator[RecordedRun | Unreadable]:
        """Read a record and yield the runs that are now complete. Raises BadRecord."""
        format_ = format_of(piece.value)
        if format_ is None:
            known = ", ".join(one.name for one in FORMATS)
            raise BadRecord(f"is {kind_of(piece.value)}, in none of the known formats ({known})")
        place = f"{name}:{piece.line}"
        file = PurePath(name).name.partition(".")[0] or name
        try:
            for one in format_.read(piece.value, piece.text):
                if isinstance(one, BadRecord):
                    yield Unreadable(name, piece.line, str(one))
                    continue
                run = run_of(one) if isinstance(one, RecordedConversation) else one
                run = replace(run, id=run.id or place, source=self._source or run.source or file)
                self.records += 1
                if isinstance(one, RecordedConversation):
                    if self._words:
                        run = replace(run, equal=tuple(equal_answers(one.request)))
                    # A record with a verdict is a run of its own, named or not.
                    session = one.label.session or (f"{place}/{self.records}" if run.success is not None else "")
                    yield from joining.take(run, beginnings(run, one.request, session), len(one.request.body))
                else:
                    yield run
        except BadRecord:
            raise
        except _FOREIGN as error:
            raise BadRecord(f"cannot be read as {format_.name}: {type(error).__name__}: {error}") from error


def lines_of(name: str) -> Iterator[bytes]:
    """Yield the lines of a file, compressed or not, each up to `MAX_PIECE`; `-` is standard input. Raises OSError, also
    for a file that cannot be decompressed."""
    raw = open_raw(name)
    with nullcontext(raw) if name == STDIN else raw:
        try:
            yield from _raw_lines(_decompress(raw))
        except (EOFError, lzma.LZMAError, zlib.error) as error:
            raise OSError(0, f"cannot be read to its end: {error}", name) from None


class Piece(NamedTuple):
    """The value of a record, the JSON text that it was read from, and its line in the file, from 1."""

    value: Any
    text: bytes
    line: int


def open_raw(name: str) -> BinaryIO:
    """Open a file as bytes, without decompression; `-` is standard input. Raises OSError."""
    return sys.stdin.buffer if name == STDIN else Path(name).open("rb")


def _decompress(raw: BinaryIO) -> BinaryIO:
    """Wrap a stream of a gzip or xz file to decompress it; any other stream is only buffered."""
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))
    begin = stream.peek(len(_XZ))
    if begin.startswith(_XZ):
        return cast(BinaryIO, lzma.open(stream))
    if begin.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(stream))
    return stream


def pieces(name: str, raw: BinaryIO) -> Iterator[Piece | Unreadable]:
    """Yield the records of a file, compressed or not, and a fault for each that could not be read."""
    try:
        yield from _pieces(name, _decompress(raw))
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        yield Unreadable(name, 0, f"cannot be read to its end: {error}")


def _pieces(name: str, stream: BinaryIO) -> Iterator[Piece | Unreadable]:
    number = 1
    first = stream.readline(_FIRST_LINE).removeprefix(BOM)
    while first and not first.strip():
        first = stream.readline(_FIRST_LINE)
        number += 1
    if len(first) >= _FIRST_LINE and _begins_array(first):
        yield from _document(name, first, stream, number)
        return
    first += b"" if first.endswith(b"\n") else stream.readline(MAX_PIECE + 1 - len(first))
    second = b"" if _is_json(first) else stream.readline(MAX_PIECE + 1)
    if _is_lines(first, second):
        yield from _lines(name, chain([first, second] if second else [first], _raw_lines(stream)), number)
    else:
        yield from _document(name, first + second, stream, number)


def _begins_array(text: bytes) -> bool:
    """Whether a long line begins an array of records, which can be read one by one."""
    try:
        found = [JSON_ARRAY.payload(frame) for frame in JSON_ARRAY.framer().feed(text)]
    except NotJSON:
        return False
    return text.lstrip().startswith(b"[") and bool(found) and not is_message(found[0])


def _is_lines(first: bytes, second: bytes) -> bool:
    """Whether each of the first two lines is a JSON value by itself."""
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
    """Yield the lines of a stream. A line longer than `MAX_PIECE` is cut just after that."""
    while line := stream.readline(MAX_PIECE + 1):
        yield line
        while len(line) > MAX_PIECE and not line.endswith(b"\n"):
            line = stream.readline(MAX_PIECE + 1)


def _lines(name: str, lines: Iterator[bytes], number: int) -> Iterator[Piece | Unreadable]:
    for at, line in enumerate(lines, number):
        if not line.strip():
            continue
        if len(line) > MAX_PIECE:
            yield Unreadable(name, at, _TOO_LONG)
            continue
        try:
            value = loads(line)
        except NotJSON as error:
            yield Unreadable(name, at, f"is not JSON: {error}")
            continue
        yield from _records(name, Piece(value, line, at))


def _document(name: str, begin: bytes, stream: BinaryIO, line: int) -> Iterator[Piece | Unreadable]:
    """Yield records that span several lines, or the elements of one array."""
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
                yield Unreadable(name, at, _TOO_LONG)
                continue
            try:
                value = JSON_ARRAY.payload(frame)
            except NotJSON as error:
                yield Unreadable(name, at, f"is not JSON from here on: {error}")
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
            yield Unreadable(name, line, f"{_TOO_LONG}; the rest is not read")
            return
    if framer.flush().strip():
        yield Unreadable(name, line, "ends in the middle of a record")


def _whole(name: str, begin: bytes, stream: BinaryIO, line: int) -> Iterator[Piece | Unreadable]:
    """Read a file that is one JSON value."""
    text = begin + stream.read(max(0, MAX_PIECE - len(begin)))
    if stream.read(1):
        yield Unreadable(name, line, f"{_TOO_LONG}: write each run in its own line")
        return
    try:
        yield from _records(name, Piece(loads(text), text, line))
    except NotJSON as error:
        yield Unreadable(name, line, f"is not JSON: {error}")


def _records(name: str, piece: Piece) -> Iterator[Piece | Unreadable]:
    """Yield the records in a value: the value itself, or the elements of a list that is not a list of messages."""
    value = piece.value
    if isinstance(value, dict) or (isinstance(value, list) and (not value or is_message(value[0]))):
        yield piece
    elif isinstance(value, list):
        for element in value:
            if isinstance(element, dict | list):
                yield Piece(element, dumps(element), piece.line)
            else:
                yield Unreadable(name, piece.line, f"an element is {kind_of(element)}; use objects")
    else:
        yield Unreadable(name, piece.line, f"holds {kind_of(value)}; use an object, or a list of messages")
