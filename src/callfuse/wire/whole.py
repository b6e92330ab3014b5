"""The `Format` of a whole JSON body, treated as a stream of one frame that is complete when the body is."""

import re
from typing import Final

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import UnreadableJSON, as_utf8, loads, loads_exact, value_end
from callfuse.wire.values import has_too_many_values

_WIDE: Final = re.compile(rb"\d{19}")
"""Integers of 19 digits may exceed 64 bits, which orjson reads as rounded floats."""
_BRACKET: Final = 0x5B
_LOGPROBS: Final = re.compile(rb'"logprobs(?:Result)?"[ \t\n\r]*:[ \t\n\r]*(?=[\[{])')
"""Log probabilities of tokens. With 20 alternatives for each token, 800 tokens have 100,000 values."""


class WholeFramer:
    """Collects one body. `empty` is always False, because no chunk is a whole frame. `waiting`: all bytes so far."""

    __slots__ = ("_buffer", "empty", "waiting")
    broken: Final = False

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.empty = False
        self.waiting = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return no frames, because the body comes with `flush`."""
        self._buffer += chunk
        self.waiting = len(self._buffer)
        return []

    def flush(self) -> bytes:
        """Return the body and clear the buffer."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self.waiting = 0
        return rest


class Whole:
    """The only frame is the body; the payload is the JSON object in it."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = True

    def framer(self) -> Framer:
        """Make a collector for one body."""
        return WholeFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse the body, with every digit of its integers, in any encoding that Python's `json` reads. A body with
        very many values is parsed without its log probabilities.

        Raises UnreadableJSON if some client may still read it, and NotJSON if none can.
        """
        text = as_utf8(frame)
        if has_too_many_values(text) and has_too_many_values(text := _without_logprobs(text)):
            raise UnreadableJSON("too many values")
        value = loads_exact(text) if _WIDE.search(text) else loads(text)
        if not isinstance(value, dict):
            raise UnreadableJSON("a body is not an object")
        return value

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of the payload."""
        return frame

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the new payload, which is the whole body."""
        return text


def _without_logprobs(text: bytes) -> bytes:
    """Return a JSON text with its log probabilities emptied. Text that is not JSON is returned unchanged."""
    kept: list[bytes] = []
    at = 0
    while found := _LOGPROBS.search(text, at):
        start = found.end()
        kept += (text[at:start], b"[]" if text[start] == _BRACKET else b"{}")
        try:
            at = value_end(text, start)
        except ValueError:
            return text
    kept.append(text[at:])
    return b"".join(kept)


WHOLE: Final = Whole()
