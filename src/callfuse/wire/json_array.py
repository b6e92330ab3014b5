"""A JSON array that is streamed in pieces, split into its elements, as a `Format`.

A frame is an element with the bracket or comma before it, a closing bracket, or a blank behind an element: joined they
are the stream. A frame leaves with the byte that completes it. Where an element ends is known from its braces; in
a stream that is pretty-printed, as its first element shows, a brace at the beginning of a line is enough.
"""

import re
from typing import Any, Final

import orjson

from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, loads

_SPACE: Final = b" \t\r\n"
_CLOSING: Final = 0x7D
_BLANKS: Final = re.compile(rb"[ \t\r\n]*+")
_NEXT: Final = re.compile(rb",[ \t\r\n]*+(?=\{)")
_BRACE: Final = re.compile(rb'[^"{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}]*+)*+([{}])?', re.DOTALL)
"""Up to the next brace outside a string; none where the text ends before, or in a string."""
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_INDENTED_END: Final = re.compile(rb"\n[ \t]++[}\]]")
_ELEMENT_END: Final = b"\n}"
_LINE_ENDS: Final = (b"\n", b"\r")
_INDIFFERENT: Final = bytes(byte for byte in range(256) if byte not in b'{}"\\\n')
"""Bytes that decide nothing about where an element ends, nor about whether it is indented."""


class JSONArrayFramer:
    """Splits one stream. `empty` says that nothing waits, and that an element's end can be told at a glance."""

    __slots__ = (
        "_begin",
        "_begun",
        "_broken",
        "_buffer",
        "_depth",
        "_in_string",
        "_indented",
        "_lead",
        "_position",
        "_separated",
        "_skeleton",
        "empty",
    )

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begun = False
        self._broken = False
        self._indented = False
        self._lead = self._skeleton = b""
        self._restart()
        self.empty = False

    def _restart(self) -> None:
        """Look for the braces of the next element from the front of the buffer."""
        self._begin = self._position = 0
        self._depth = 0
        self._in_string = False
        self._separated = False

    @property
    def waiting(self) -> int:
        """Bytes that wait for the end of their element."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The elements, brackets and blanks that this chunk completes."""
        if self._begun and not self._buffer:
            if self._is_like_before(chunk):
                return [chunk]
            element = chunk.strip(_SPACE)
            if self._is_element(element):
                if len(element) == len(chunk):
                    self._learn(chunk)
                    return [chunk]
                before, _, after = chunk.partition(element)
                return [*_each(before), element, *_each(after)]
        self._buffer += chunk
        frames: list[bytes] = []
        while self._buffer and (end := self._end_of_frame()):
            frames.append(bytes(self._buffer[:end]))
            del self._buffer[:end]
            self._restart()
        self.empty = self._indented and not self._buffer
        return frames

    def rest(self) -> bytes:
        """What waits for its end, and forget it."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._restart()
        return rest

    def _is_like_before(self, chunk: bytes) -> bool:
        """Whether a chunk differs from an element before only in what decides nothing about its end."""
        return (
            bool(self._skeleton)
            and chunk.startswith(self._lead)
            and chunk[-1] == _CLOSING
            and chunk.translate(None, _INDIFFERENT) == self._skeleton
        )

    def _learn(self, chunk: bytes) -> None:
        """Keep what decides about the end of this element: its braces and quotes. What a backslash escapes would be
        missing there, and an indented one is known more cheaply."""
        skeleton = chunk.translate(None, _INDIFFERENT)
        if not self._indented and b"\\" not in skeleton:
            self._lead, self._skeleton = chunk[: chunk.find(b"{") + 1], skeleton

    def _is_element(self, chunk: bytes) -> bool:
        """Whether a chunk is one element behind its comma, as most are, and nothing else. Quick; False proves nothing.

        Where braces count: those of JSON are balanced, and those of what begins like it are not.
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
        try:
            orjson.loads(chunk[begin:])
        except orjson.JSONDecodeError:
            return False
        return True

    def _end_of_frame(self) -> int:
        """Where the frame at the front of the buffer ends; 0 where it has no end yet."""
        if self._broken:
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
                self._broken, self._begun = True, False  # no array of objects: all of it passes as it comes
                return len(self._buffer)
            self._begun = True
            self._position = self._begin
        end = self._end_of_element()
        if end and not self._indented:
            element = self._buffer[:end]
            self._indented = element.count(_ELEMENT_END) == 1 and _INDENTED_END.search(element) is not None
        return end

    def _skip_lead(self) -> bytes:
        """What comes first behind a bracket or comma and the blanks around it; nothing where that has not come yet."""
        self._begin = _end(_BLANKS, self._buffer, self._begin)
        if not self._separated and self._buffer.startswith((b"[", b","), self._begin):
            self._separated = True
            self._begin = _end(_BLANKS, self._buffer, self._begin + 1)
        return bytes(self._buffer[self._begin : self._begin + 1])

    def _end_of_element(self) -> int:
        """Where the element ends whose braces have been read up to the position."""
        buffer = self._buffer
        if self._indented and buffer.startswith(_LINE_ENDS, self._begin + 1):
            found = buffer.find(_ELEMENT_END, max(self._begin, self._position - 1))
            if found >= 0:
                return found + len(_ELEMENT_END)
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
    """Frames are elements; their payload is the object."""

    frame_end: Final = (b"\n}", b"\n}\n", b"\n}\r\n")
    ordered: Final = True

    def framer(self) -> Framer:
        """A splitter into elements."""
        return JSONArrayFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """The object of an element; None for brackets and blanks. Raises NotJSON for anything else."""
        begin = frame.find(b"{")
        if begin < 0 and not frame.strip(_SPACE + b"[],"):
            return None
        if begin < 0 or frame[:begin].strip(_SPACE + b"[,"):
            raise NotJSON("no object and no part of an array")
        value: Any = loads(frame[begin:])
        if not isinstance(value, dict):
            raise NotJSON("an element is no object")
        return value

    def text(self, frame: bytes) -> bytes:
        """The JSON text of the payload."""
        begin = frame.find(b"{")
        return frame[begin:] if begin >= 0 else b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """The same frame with another payload."""
        return frame[: max(0, frame.find(b"{"))] + text


def placed(frame: bytes, *, first: bool) -> bytes:
    """An element behind the bracket or comma that its place in the array wants; where it has that, as it is."""
    begin = max(0, frame.find(b"{"))
    lead = frame[:begin]
    if first:
        return b"[" + frame[begin:] if b"," in lead else frame
    return frame if b"," in lead else b",\r\n" + frame[begin:]


def _each(blanks: bytes) -> list[bytes]:
    """Blanks as frames."""
    return [blanks[at : at + 1] for at in range(len(blanks))]


def _end(pattern: re.Pattern[bytes], buffer: bytearray, position: int) -> int:
    """Where a pattern that matches anywhere ends."""
    match = pattern.match(buffer, position)
    return match.end() if match else position


JSON_ARRAY: Final = JSONArray()
