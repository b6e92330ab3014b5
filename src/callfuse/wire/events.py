"""The `Format` of server-sent events whose data are JSON objects."""

from typing import Any, Final

import orjson

from callfuse.wire import sse
from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, UnreadableJSON, dumps, loads
from callfuse.wire.values import MOST_VALUES, has_too_many_values


class Events:
    """Frames are events; the payload is the JSON object in the `data` lines. `frame_end`: the usual end of a frame."""

    ordered: Final = False

    def __init__(self, frame_end: bytes | tuple[bytes, ...] = b"\n\n") -> None:
        self.frame_end = frame_end

    def framer(self) -> Framer:
        """Make a splitter for one stream."""
        return sse.SSEFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """Parse the data of an event; return None for comments and for `[DONE]`. Raises NotJSON if the data are not a
        JSON object, or have too many values."""
        if len(frame) > MOST_VALUES and has_too_many_values(frame):
            raise NotJSON("too many values")
        begins = frame[:7]  # nearly every vendor sends one of these two shapes, which need no splitting into lines
        found: Payload
        try:
            if begins == b"data: {":
                found = orjson.loads(frame[6:])
                return found
            if begins == b"event: " and frame.startswith(b"\ndata: {", line := frame.find(b"\n")):
                found = orjson.loads(frame[line + 6 :])
                return found
        except orjson.JSONDecodeError:
            pass  # such as data in more than one line: the slow path reads it
        value = _payload_of_any(frame)
        if isinstance(value, dict) or value is None:
            return value
        raise NotJSON("an event's data is not an object")

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of the payload; `{}` for an event without data."""
        start = _start_of_text(frame)
        return frame[start:].rstrip(b"\r\n") if start else sse.data(frame) or b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the event with its payload replaced; its other lines stay."""
        start = _start_of_text(frame)
        if not start:
            return sse.with_data(frame, text)
        return frame[:start] + b" ".join(text.splitlines()) + frame[len(frame.rstrip(b"\r\n")) :]


def typed_event(payload: Payload) -> bytes:
    """Write a payload as an event that is named by the payload's `type`."""
    return sse.event(dumps(payload), str(payload["type"]))


def _start_of_text(frame: bytes) -> int:
    """Return where the JSON text begins in an event that `payload` reads without splitting into lines; else 0.

    The text is one line of data, possibly after the event's name; or it is JSON with line ends between its tokens. For
    a reader by the standard, these line ends split the event, so `with_text` replaces them with blanks.
    """
    start = frame.find(b"\n") + 1 if frame.startswith(b"event: ") else 0
    if not frame.startswith(b"data: {", start):
        return 0
    start += 6
    if frame.find(b"\n", start) == len(frame) - 2 and b"\r" not in frame:
        return start
    try:
        orjson.loads(frame[start:])
    except orjson.JSONDecodeError:
        return 0
    return start


def _payload_of_any(frame: bytes) -> Any:
    """Parse any event, more slowly: with several lines of data, any line ends, or JSON that orjson refuses."""
    data = sse.data(frame)
    if not data and frame.lstrip().startswith(b"{"):
        raise UnreadableJSON("a JSON text in place of an event")
    return loads(data) if data and not data.startswith(sse.DONE) else None


EVENTS: Final = Events()
CRLF_EVENTS: Final = Events((b"\r\n\r\n", b"\n\n"))
"""For vendors whose lines usually end in CRLF, such as Gemini."""
