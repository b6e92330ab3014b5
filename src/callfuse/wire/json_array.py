"""The `Format` of a JSON array that is streamed element by element, as Gemini does without `alt=sse`.

A frame is an element with the bracket or comma before it, the closing bracket, or one white-space byte between
elements; the frames, joined, are the stream. The end of an element is found by counting braces. If the first element
is indented, so are the others, and a brace at the beginning of a line ends an element.
"""

import re
from typing import Any, Final

import orjson

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotFramed, NotJSON, loads
from callfuse.wire.values import MOST_VALUES, has_too_many_values

_SPACE: Final = b" \t\r\n"
_CLOSING: Final = 0x7D
_BLANKS: Final = re.compile(rb"[ \t\r\n]*+")
_LEAD: Final = re.compile(rb"[ \t\r\n]*+[\[,]?+[ \t\r\n]*+")
_NEXT: Final = re.compile(rb",[ \t\r\n]*+(?=\{)")
_BRACE: Final = re.compile(rb'[^"{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}]*+)*+([{}])?', re.DOTALL)
"""Text up to and with the next brace outside a string; group 1 is missing if the text ends before that brace."""
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_INDENTED_END: Final = re.compile(rb"\n[ \t]++[}\]]")
_ELEMENT_END: Final = b"\n}"
_LINE_ENDS: Final = (b"\n", b"\r")
_INDIFFERENT: Final = bytes(byte for byte in range(256) if byte not in b'{}"\\\n')
"""Bytes that matter neither for the end of an element nor for its indentation."""


class JSONArrayFramer:
    """Splits one stream. `empty`: nothing is buffered. `waiting`: the number of bytes of an incomplete element.
    `broken`: the stream is not an array of objects; all further bytes pass as they come."""

    __slots__ = (
        "_begin",
        "_begun",
        "_buffer",
        "_depth",
        "_in_string",
        "_indented",
        "_lead",
        "_position",
        "_separated",
        "_skeleton",
        "broken",
        "empty",
        "waiting",
    )

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False
        self.broken = False
        self._indented = False
        self._lead = self._skeleton = b""
        self._restart()
        self.empty = True
        self.waiting = 0

    def _restart(self) -> None:
        """Reset the brace counting: the next element starts at the front of the buffer."""
        self._begin = self._position = 0
        self._depth = 0
        self._in_string = False
        self._separated = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the elements, brackets and white-space bytes that it completes."""
        if self._begun and not self._buffer:  # most chunks are exactly one element
            if self._has_known_skeleton(chunk):
                return [chunk]
            element = chunk.strip(_SPACE)
            if self._is_element(element):
                if len(element) == len(chunk):
                    self._learn_skeleton(chunk)
                    return [chunk]
                before, _, after = chunk.partition(element)
                return [*_each(before), element, *_each(after)]
        self._buffer += chunk
        frames: list[bytes] = []
        while self._buffer and (end := self._end_of_frame()):
            frames.append(bytes(self._buffer[:end]))
            del self._buffer[:end]
            self._restart()
        self.waiting = len(self._buffer)
        self.empty = not self.waiting
        return frames

    def flush(self) -> bytes:
        """Return the buffered bytes and clear the buffer."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self.waiting = 0
        self._restart()
        return rest

    def _has_known_skeleton(self, chunk: bytes) -> bool:
        """Whether a chunk has the same braces, quotes and lines as an earlier complete element, and so is complete."""
        return (
            bool(self._skeleton)
            and chunk.startswith(self._lead)
            and chunk[-1] == _CLOSING
            and chunk.translate(None, _INDIFFERENT) == self._skeleton
        )

    def _learn_skeleton(self, chunk: bytes) -> None:
        """Remember the braces and quotes of this complete element.

        Not with backslashes, whose escaped characters the skeleton lacks; nor if indented, which has a cheaper check.
        """
        skeleton = chunk.translate(None, _INDIFFERENT)
        if not self._indented and b"\\" not in skeleton:
            self._lead, self._skeleton = chunk[: chunk.find(b"{") + 1], skeleton

    def _is_element(self, chunk: bytes) -> bool:
        """Whether a cheap check shows that a chunk is a comma and one whole element; False means "not sure".

        Unless indented, parsing decides: a part of an element never parses, because its braces are not balanced.
        """
        lead = _NEXT.match(chunk)
        if lead is None:
            return False
        begin = lead.end()
        if self._indented:
            last = len(chunk) - len(_ELEMENT_END)
            return chunk.startswith(_LINE_ENDS, begin + 1) and chunk.find(_ELEMENT_END) == last
        if chunk[-1] != _CLOSING or chunk.find(b"\n", begin) >= 0:
            return False
        if len(chunk) > MOST_VALUES:  # that many values may be too many to be parsed
            return False
        try:
            orjson.loads(chunk[begin:])
        except orjson.JSONDecodeError:
            return False
        return True

    def _end_of_frame(self) -> int:
        """Return the end of the frame at the front of the buffer; 0 if the frame is not complete."""
        if self.broken:
            return len(self._buffer)
        if not self._position:
            if self._begun and self._buffer[0] in _SPACE:
                return 1
            first = self._skip_lead()
            if not first:
                return 0
            if first == b"]":
                return self._begin + 1
            if first != b"{":
                self.broken, self._begun = True, False  # not an array of objects: `payload` raises NotFramed for this
                return self._begin + 1
            self._begun = True
            self._position = self._begin
        end = self._end_of_element()
        if end and not self._indented:
            element = self._buffer[:end]
            self._indented = element.count(_ELEMENT_END) == 1 and _INDENTED_END.search(element) is not None
        return end

    def _skip_lead(self) -> bytes:
        """Skip the bracket or comma and white space; return the next byte, empty if it has not come yet."""
        self._begin = _end(_BLANKS, self._buffer, self._begin)
        if not self._separated and self._buffer.startswith((b"[", b","), self._begin):
            self._separated = True
            self._begin = _end(_BLANKS, self._buffer, self._begin + 1)
        return bytes(self._buffer[self._begin : self._begin + 1])

    def _end_of_element(self) -> int:
        """Return the end of the element, counting braces from where the last chunk stopped; 0 if incomplete."""
        buffer = self._buffer
        if self._indented and buffer.startswith(_LINE_ENDS, self._begin + 1):
            found = buffer.find(_ELEMENT_END, max(self._begin, self._position - 1))
            if found >= 0:
                return found + len(_ELEMENT_END)
            self._position = len(buffer)  # counting unbalanced braces would depend on the chunks
            return 0
        position = self._position
        while True:
            if self._in_string:
                position = _end(_REST_OF_STRING, buffer, position)
                if buffer[position : position + 1] != b'"':
                    break
                position += 1
                self._in_string = False
            match = _BRACE.match(buffer, position)
            position = match.end() if match else position
            if match is None or match.group(1) is None:
                self._in_string = buffer[position : position + 1] == b'"'
                position += self._in_string
                if self._in_string:
                    continue
                break
            self._depth += 1 if match.group(1) == b"{" else -1
            if not self._depth:
                return position
        self._position = position
        return 0


class JSONArray:
    """Frames are elements of the array; the payload is the element, a JSON object. Only the framer can find the end of
    an element, so there is no usual end."""

    frame_end: Final[tuple[bytes, ...]] = ()
    ordered: Final = True

    def framer(self) -> Framer:
        """Make a splitter for one stream."""
        return JSONArrayFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse an element; return None for brackets and white space. Raises NotJSON for an element that is broken or
        has too many values, and NotFramed for anything else, after which no element can be found."""
        begin = _end(_LEAD, frame, 0)
        if frame[begin : begin + 1] in (b"", b"]"):
            return None
        if frame[begin : begin + 1] != b"{":
            raise NotFramed("neither an object nor a part of an array")
        if len(frame) > MOST_VALUES and has_too_many_values(frame[begin:]):
            raise NotJSON("too many values")
        value: Any = loads(frame[begin:])
        if not isinstance(value, dict):
            raise NotJSON("an element is not an object")
        return value

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of the payload; `{}` for brackets and white space."""
        begin = frame.find(b"{")
        return frame[begin:] if begin >= 0 else b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the frame with its element replaced; the bracket or comma before it stays."""
        return frame[: max(0, frame.find(b"{"))] + text


def with_separator(frame: bytes, *, first: bool) -> bytes:
    """Give an element the separator for its place: `[` for the first, a comma for others. Unchanged if right."""
    begin = max(0, frame.find(b"{"))
    lead = frame[:begin]
    if first:
        return b"[" + frame[begin:] if b"," in lead else frame
    return frame if b"," in lead else b",\r\n" + frame[begin:]


def _each(blanks: bytes) -> list[bytes]:
    """Split white space into frames of one byte."""
    return [blanks[at : at + 1] for at in range(len(blanks))]


def _end(pattern: re.Pattern[bytes], buffer: bytes | bytearray, position: int) -> int:
    """Return the end of a match at a position; the position itself if nothing matches."""
    match = pattern.match(buffer, position)
    return match.end() if match else position


JSON_ARRAY: Final = JSONArray()
