"""The `Format` of a whole JSON body, treated as a stream of one frame that is complete when the body is."""

import re
from typing import Final

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, loads, loads_exact
from callfuse.wire.values import has_too_many_values

_WIDE: Final = re.compile(rb"\d{19}")
"""Integers of 19 digits may exceed 64 bits, which orjson reads as rounded floats."""


class WholeFramer:
    """Collects one body. `empty` is always false, because no chunk is a whole frame."""

    __slots__ = ("_buffer", "empty")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.empty = False

    @property
    def waiting(self) -> int:
        """The number of buffered bytes: all that have come."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; returns no frame before `flush`."""
        self._buffer += chunk
        return []

    def flush(self) -> bytes:
        """Return the body and clear the buffer."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


class Whole:
    """The only frame is the body; the payload is the JSON object in it."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = True

    def framer(self) -> Framer:
        """Make a collector for one body."""
        return WholeFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse the body, with every digit of its integers. Raises NotJSON if it is no JSON object, or if it has too
        many values."""
        if has_too_many_values(frame):
            raise NotJSON("too many values")
        value = loads_exact(frame) if _WIDE.search(frame) else loads(frame)
        if not isinstance(value, dict):
            raise NotJSON("a body is no object")
        return value

    def text(self, frame: bytes) -> bytes:
        """The JSON text of the payload."""
        return frame

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """The new payload, which is the whole body."""
        return text


WHOLE: Final = Whole()
