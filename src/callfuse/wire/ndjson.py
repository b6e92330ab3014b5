"""The `Format` of newline-delimited JSON, as Ollama streams it.

A frame is a line with its line feed; a carriage return before it belongs to the line. Only a line feed ends a frame,
because JSON on one line contains none. A blank line has no payload.
"""

from typing import Final

import orjson

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, loads_exact
from callfuse.wire.values import MOST_VALUES, has_too_many_values

_DIGITS_AS_ZEROS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else byte for byte in range(256))
_WIDE: Final = b"0" * 19
"""Integers of 19 digits may exceed 64 bits, which orjson reads as rounded floats."""


class NDJSONFramer:
    """Splits one stream into lines. `empty`: nothing is buffered. `waiting`: how many bytes of a line are buffered."""

    __slots__ = ("_buffer", "empty", "waiting")
    broken: Final = False

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.empty = True
        self.waiting = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the lines that it completes, each with its line feed."""
        if self.empty and chunk.find(b"\n") == len(chunk) - 1 >= 0:
            return [chunk]
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._buffer += chunk
            self._count()
            return []
        lines = chunk[:end].split(b"\n")[:-1]
        lines[0] = bytes(self._buffer) + lines[0]
        self._buffer[:] = chunk[end:]
        self._count()
        return [line + b"\n" for line in lines]

    def _count(self) -> None:
        self.waiting = len(self._buffer)
        self.empty = not self.waiting

    def flush(self) -> bytes:
        """Return the buffered bytes (a last line without line feed) and clear the buffer."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._count()
        return rest


class Lines:
    """Frames are lines; the payload is the JSON object in the line."""

    frame_end: Final = b"\n"
    ordered: Final = False

    def framer(self) -> Framer:
        """Make a splitter for one stream."""
        return NDJSONFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse a line, with every digit of its integers; return None for a blank line. Raises NotJSON if the line is
        not an object, or has too many values."""
        if len(frame) > MOST_VALUES and has_too_many_values(frame):
            raise NotJSON("too many values")
        if frame[:1] == b"{" and frame.translate(_DIGITS_AS_ZEROS).find(_WIDE) < 0:
            try:
                found: Payload = orjson.loads(frame)
            except orjson.JSONDecodeError:
                pass  # the lenient parser below may read it
            else:
                return found
        if frame.isspace():
            return None
        value = loads_exact(frame)
        if not isinstance(value, dict):
            raise NotJSON("a line is not an object")
        return value

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of the payload; `{}` for a blank line."""
        return frame.strip() or b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the line with its payload replaced; its line end stays."""
        return text + frame[len(frame.rstrip(b"\r\n")) :]


NDJSON: Final = Lines()
