"""A whole JSON body as a stream of one frame, as a `Format`: the frame is complete when the body is."""

import re
from typing import Final

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, loads, loads_exact

_WIDE: Final = re.compile(rb"\d{19}")
"""Integers that the fast parser may round."""


class WholeFramer:
    """Collects one body. It is never `empty`: whatever chunk comes, it ends no frame."""

    __slots__ = ("_buffer", "empty")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.empty = False

    @property
    def waiting(self) -> int:
        """Bytes that have come."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """No frame, before the end of the body."""
        self._buffer += chunk
        return []

    def rest(self) -> bytes:
        """The body, and forget it."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


class Whole:
    """The one frame is the body; its payload is the object in it."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = True

    def framer(self) -> Framer:
        """A collector of one body."""
        return WholeFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """The object of a body, with every digit of its integers. Raises NotJSON where it is none."""
        value = loads_exact(frame) if _WIDE.search(frame) else loads(frame)
        if not isinstance(value, dict):
            raise NotJSON("a body is no object")
        return value

    def text(self, frame: bytes) -> bytes:
        """The JSON text of the payload."""
        return frame

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """The same body with another payload."""
        return text


WHOLE: Final = Whole()
