"""Splits server-sent events into raw frames, and reads and writes their data.

A frame is an event with its blank line. Lines end at CR, LF or CRLF and nowhere else (not at U+2028, which JSON may
hold unescaped). A frame is returned with the byte that completes it: if that is a lone CR and an LF follows after all,
the LF is a frame of its own.
"""

import re
from typing import Final

_BLANK_LINE: Final = re.compile(rb"\r\n(?>\r\n|\n|\r)|\r\r|\n[\r\n]")
_LINE: Final = re.compile(rb"([^\r\n]*)(?>\r\n|\n|\r|\Z)")
BOM: Final = b"\xef\xbb\xbf"
DONE: Final = b"[DONE]"
"""The data of the event that ends a stream of OpenAI's kind."""
_LF: Final = 0x0A
_CR: Final = 0x0D


class SSEFramer:
    """Splits one stream into events. `empty`: nothing is buffered. `waiting`: how many bytes of an event are."""

    __slots__ = ("_buffer", "_has_cr", "_scanned", "_split_crlf", "empty", "waiting")
    broken: Final = False

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._has_cr = False
        self._scanned = 0
        self._split_crlf = False
        self.empty = True
        self.waiting = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the events that it completes, each with its blank line.

        Comments are events without data.
        """
        if self.empty and not self._split_crlf:  # most chunks are one event
            size, carriage = len(chunk), chunk.find(b"\r")
            if carriage < 0:
                if chunk.find(b"\n\n", chunk.find(b"\n")) == size - 2 >= 0:
                    return [chunk]
            elif carriage == size - 4 and chunk.find(b"\n") == size - 3 and chunk[-2:] == b"\r\n":
                return [chunk]
        if self._has_cr or _CR in chunk:
            return self._feed_any(chunk)
        self._buffer += chunk
        if self._buffer.find(b"\n\n", self._scanned) < 0:
            self._drop(0)
            return []
        *frames, rest = bytes(self._buffer).split(b"\n\n")
        self._drop(len(self._buffer) - len(rest))
        return [frame + b"\n\n" for frame in frames]

    def _feed_any(self, chunk: bytes) -> list[bytes]:
        """Split a stream that contains carriage returns, which needs the slower pattern."""
        self._has_cr = True
        frames: list[bytes] = []
        if self._split_crlf and chunk:
            self._split_crlf = False
            if chunk[0] == _LF:
                frames.append(b"\n")
                chunk = chunk[1:]
        self._buffer += chunk
        start, position = 0, self._scanned
        while match := _BLANK_LINE.search(self._buffer, position):
            if match.group() == b"\r\n\r" and match.end() == len(self._buffer):
                break  # the LF of a blank CRLF line may still come
            frames.append(bytes(self._buffer[start : match.end()]))
            start = position = match.end()
            if frames[-1][-1] == _CR and self._buffer[start : start + 1] == b"\n":
                frames.append(b"\n")
                start = position = start + 1
        self._split_crlf = bool(start) and start == len(self._buffer) and frames[-1][-1] == _CR
        self._drop(start)
        return frames

    def _drop(self, end: int) -> None:
        """Drop the returned bytes, and keep where the search continues: an end of up to 4 bytes may have begun."""
        del self._buffer[:end]
        self.waiting = len(self._buffer)
        self._scanned = max(0, self.waiting - 3)
        self.empty = not self.waiting

    def flush(self) -> bytes:
        """Return the buffered bytes (a last event without blank line) and clear the buffer."""
        rest = bytes(self._buffer)
        self._drop(len(rest))
        return rest


def data(frame: bytes) -> bytes | None:
    """Return the data of an event, its lines joined by LF; None if it has no data (a comment, a bare `event:`)."""
    if b"data:" not in frame:  # a stream may be full of blank lines and comments
        return None
    lines = [line[5:] for line in _lines(frame) if line.startswith(b"data:")]
    if not lines:
        return None
    return b"\n".join(line[1:] if line.startswith(b" ") else line for line in lines)


def is_comment(frame: bytes) -> bool:
    """Whether a frame contains only comments."""
    lines = [line for line in _lines(frame) if line]
    return bool(lines) and all(line.startswith(b":") for line in lines)


def is_done(frame: bytes) -> bool:
    """Whether an event ends a stream: its data are `DONE`."""
    return (data(frame) or b"").strip() == DONE


def event(payload: bytes, name: str = "") -> bytes:
    """Write an event with this payload, and this name unless it is empty. Each line of JSON is a line of data."""
    prefix = f"event: {name}\n".encode() if name else b""
    if b"\n" in payload or b"\r" in payload:
        payload = b"\ndata: ".join(payload.splitlines())
    return prefix + b"data: " + payload + b"\n\n"


def with_data(frame: bytes, payload: bytes) -> bytes:
    """Replace the payload of an event; its other fields, comments and line ends stay."""
    pieces: list[bytes] = []
    written = False
    for match in _LINE.finditer(frame):
        line = match.group(1)
        if not line.removeprefix(BOM).startswith(b"data:"):
            pieces.append(match.group())
        elif not written:
            written = True
            field = line[: line.index(b"data:") + 5] + (b" " if b"data: " in line[:9] else b"")
            end = match.group()[len(line) :] or b"\n"
            pieces += [field + part + end for part in payload.split(b"\n")]
    return b"".join(pieces)


def _lines(frame: bytes) -> list[bytes]:
    """Split a frame into lines without their ends and without a byte order mark."""
    return [match.group(1).removeprefix(BOM) for match in _LINE.finditer(frame)]
