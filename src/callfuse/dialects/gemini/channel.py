"""How the chunks of a stream stand on the wire: as server-sent events, or as the elements of one JSON array."""

import json
from collections.abc import Sequence
from typing import Any, Final

from callfuse.wire import CRLF_EVENTS, JSON_ARRAY, Format, Payload, with_separator
from callfuse.wire.jsontext import Edit, apply

_BLANK_LINES: Final = (b"\r\n\r\n", b"\n\n", b"\r\r")


def encode(value: Any) -> bytes:
    """JSON without a character that any client takes for the end of a line (google-genai splits at U+2028)."""
    return json.dumps(value, separators=(",", ":")).encode()


class Channel:
    """Writes the chunks of one client's stream: as server-sent events, or as the elements of one JSON array.

    The first element of an array follows its bracket, each other one a comma, whatever is taken out or put in.
    """

    def __init__(self, *, is_array: bool) -> None:
        self._is_array = is_array
        self._format: Format = JSON_ARRAY if is_array else CRLF_EVENTS
        self._has_element = False
        self._has_spliced = False
        """Whether an element of another answer may go out before those that wait."""

    def began(self) -> None:
        """Note that the client has a chunk."""
        self._has_element = True

    def next_answer(self) -> None:
        """Note that what is spliced from now on is another answer's."""
        self._has_spliced = False

    def chunk(self, payload: Payload) -> bytes:
        """A chunk of callfuse's own."""
        if not self._is_array:
            return b"data: " + encode(payload) + b"\r\n\r\n"
        lead = b",\r\n" if self._has_element else b"["
        self._has_element = True
        return lead + encode(payload)

    def edit(self, frame: bytes, edits: Sequence[Edit], *, spliced: bool = False) -> bytes:
        """A chunk with these changes. `spliced`: it is another answer's, and may go out after chunks that wait."""
        if edits:
            frame = self._format.with_text(frame, apply(self._format.text(frame), edits))
        if not self._is_array:
            return frame
        first = not (self._has_element or (spliced and self._has_spliced))
        self._has_spliced |= spliced
        self._has_element |= not spliced
        return with_separator(frame, first=first)

    def bare(self, frame: bytes, *, ends: bool = True) -> bytes:
        """A frame without payload; nothing where it would end a stream that goes on."""
        if not self.is_end(frame):
            return frame
        return self.end() if ends else b""

    def terminate(self, frame: bytes) -> bytes:
        """A frame after which more comes: the last one of an answer may lack its blank line."""
        return frame if self._is_array or frame.endswith(_BLANK_LINES) else frame.rstrip(b"\r\n") + b"\r\n\r\n"

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the stream."""
        return self._is_array and b"]" in frame

    def is_separator(self, frame: bytes) -> bool:
        """Whether a frame is the line end that Google puts between an element and the next one's comma."""
        return self._is_array and not frame.strip()

    def end(self) -> bytes:
        """The end of the stream; events need none."""
        if not self._is_array:
            return b""
        return b"]" if self._has_element or self._has_spliced else b"[]"
