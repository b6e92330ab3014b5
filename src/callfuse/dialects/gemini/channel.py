"""Writes the chunks of a Gemini stream: as server-sent events, or as the elements of one JSON array."""

from collections.abc import Sequence
from typing import Final

from callfuse.wire import CRLF_EVENTS, JSON_ARRAY, Format, Payload, with_separator
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import Edit, dumps_ascii

_BLANK_LINES: Final = (b"\r\n\r\n", b"\n\n", b"\r\r")


class Channel:
    """The output of one client's stream. Keeps a JSON array valid when elements are removed or inserted: the first
    element follows the bracket, every other element a comma."""

    def __init__(self, *, is_array: bool) -> None:
        self._is_array = is_array
        form: Format = JSON_ARRAY if is_array else CRLF_EVENTS
        self._editor = FrameEditor(form)
        self._has_element = False
        self._has_spliced = False
        """Whether an element of the next answer was written; it may be sent before elements that wait."""

    def note_chunk(self) -> None:
        """Note that the client got a chunk."""
        self._has_element = True

    def next_answer(self) -> None:
        """Begin to splice another answer."""
        self._has_spliced = False

    def chunk(self, payload: Payload) -> bytes:
        """Write a chunk by callfuse."""
        if not self._is_array:
            return b"data: " + dumps_ascii(payload) + b"\r\n\r\n"
        lead = b",\r\n" if self._has_element else b"["
        self._has_element = True
        return lead + dumps_ascii(payload)

    def edit(self, frame: bytes, edits: Sequence[Edit], *, spliced: bool = False) -> bytes:
        """Apply edits to a chunk. `spliced`: it belongs to the next answer, and may be sent after waiting chunks."""
        frame = self._editor.edit(frame, edits)
        if not self._is_array:
            return frame
        first = not (self._has_element or (spliced and self._has_spliced))
        self._has_spliced |= spliced
        self._has_element |= not spliced
        return with_separator(frame, first=first)

    def bare(self, frame: bytes, *, ends: bool = True) -> bytes:
        """Return a frame without payload; empty if the frame would end a stream that continues (`ends=False`)."""
        if not self.is_end(frame):
            return frame
        return self.end() if ends else b""

    def terminate(self, frame: bytes) -> bytes:
        """Return a frame with a blank line at its end, which the last frame of an answer may lack."""
        return frame if self._is_array or frame.endswith(_BLANK_LINES) else frame.rstrip(b"\r\n") + b"\r\n\r\n"

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the stream."""
        return self._is_array and b"]" in frame

    def is_separator(self, frame: bytes) -> bool:
        """Whether a frame is the line end that Google writes between an element and the next comma."""
        return self._is_array and not frame.strip()

    def end(self) -> bytes:
        """Return the bytes that end the stream; empty for events, which need none."""
        if not self._is_array:
            return b""
        return b"]" if self._has_element or self._has_spliced else b"[]"
