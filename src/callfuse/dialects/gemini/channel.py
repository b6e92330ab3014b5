"""How a stream's chunks stand on the wire: as server-sent events, or as the elements of one JSON array.

A channel turns payloads and changed frames into the client's bytes. Of an array it knows whether the client has an
element, so that the first one follows the bracket and each other one a comma, whatever was taken out or put in.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from callfuse.wire import CRLF_EVENTS, JSON_ARRAY, Payload, placed
from callfuse.wire.jsontext import Edit, apply

_BLANK_LINES: Final = (b"\r\n\r\n", b"\n\n", b"\r\r")


def encoded(value: Any) -> bytes:
    """JSON without a character that any client takes for the end of a line (google-genai splits at U+2028)."""
    return json.dumps(value, separators=(",", ":")).encode()


class Channel(Protocol):
    """One client's stream."""

    def began(self) -> None:
        """The client has a chunk."""
        ...

    def chunk(self, payload: Payload) -> bytes:
        """A chunk of callfuse's own."""
        ...

    def edited(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """The chunk that goes out next, with these changes."""
        ...

    def spliced(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """A chunk of another answer, which may go out after chunks that still wait."""
        ...

    def bare(self, frame: bytes, *, ends: bool = True) -> bytes:
        """A frame without payload; nothing where it would end a stream that goes on."""
        ...

    def ended(self, frame: bytes) -> bytes:
        """A frame after which more comes: the last one of an answer may lack its end."""
        ...

    def is_end(self, frame: bytes) -> bool:
        """Whether a frame without payload ends the stream."""
        ...

    def is_blank(self, frame: bytes) -> bool:
        """Whether a frame without payload only parts a chunk from the next one."""
        ...

    def next_answer(self) -> None:
        """What is spliced from now on is another answer's."""
        ...

    def end(self) -> bytes:
        """The end of the stream."""
        ...


class EventChannel:
    """Server-sent events: they do not depend on each other, and the stream ends with the body."""

    def began(self) -> None:
        """Nothing follows from it."""

    def chunk(self, payload: Payload) -> bytes:
        """An event."""
        return b"data: " + encoded(payload) + b"\r\n\r\n"

    def edited(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """The event with other data."""
        return CRLF_EVENTS.with_text(frame, apply(CRLF_EVENTS.text(frame), edits)) if edits else frame

    def spliced(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """The same."""
        return self.edited(frame, edits)

    def bare(self, frame: bytes, *, ends: bool = True) -> bytes:
        """Comments and blank lines stay."""
        return frame

    def ended(self, frame: bytes) -> bytes:
        """With its blank line."""
        return frame if frame.endswith(_BLANK_LINES) else frame.rstrip(b"\r\n") + b"\r\n\r\n"

    def is_end(self, frame: bytes) -> bool:
        """No event does."""
        return False

    def is_blank(self, frame: bytes) -> bool:
        """An event has its blank line with it."""
        return False

    def next_answer(self) -> None:
        """Nothing follows from it."""

    def end(self) -> bytes:
        """There is none."""
        return b""


class ArrayChannel:
    """The elements of one array."""

    def __init__(self) -> None:
        self._has_element = False
        self._has_spliced = False

    def began(self) -> None:
        """The array is open."""
        self._has_element = True

    def chunk(self, payload: Payload) -> bytes:
        """An element behind its bracket or comma."""
        lead = b",\r\n" if self._has_element else b"["
        self._has_element = True
        return lead + encoded(payload)

    def edited(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """The element with another text, behind what its place wants."""
        first, self._has_element = not self._has_element, True
        return placed(_changed(frame, edits), first=first)

    def spliced(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """As `edited`; elements that wait count as well."""
        first, self._has_spliced = not (self._has_element or self._has_spliced), True
        return placed(_changed(frame, edits), first=first)

    def bare(self, frame: bytes, *, ends: bool = True) -> bytes:
        """White space stays; a closing bracket stays only where the stream ends."""
        if not self.is_end(frame):
            return frame
        return self.end() if ends else b""

    def ended(self, frame: bytes) -> bytes:
        """An element needs nothing behind it."""
        return frame

    def is_end(self, frame: bytes) -> bool:
        """The closing bracket does."""
        return b"]" in frame

    def is_blank(self, frame: bytes) -> bool:
        """Google puts a line end between an element and the next one's comma."""
        return not frame.strip()

    def next_answer(self) -> None:
        """Nothing of it has come yet."""
        self._has_spliced = False

    def end(self) -> bytes:
        """The closing bracket, and the opening one where there is no element."""
        return b"]" if self._has_element or self._has_spliced else b"[]"


def channel_of(*, is_array: bool) -> Channel:
    """A channel for a stream that begins."""
    return ArrayChannel() if is_array else EventChannel()


def _changed(frame: bytes, edits: Sequence[Edit]) -> bytes:
    return JSON_ARRAY.with_text(frame, apply(JSON_ARRAY.text(frame), edits)) if edits else frame
