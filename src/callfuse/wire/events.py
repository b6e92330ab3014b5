"""Server-sent events whose data are JSON objects, as a `Format`."""

from typing import Any, Final

import orjson

from callfuse.wire import sse
from callfuse.wire.format import Framer, Payload
from callfuse.wire.jsontext import NotJSON, loads


class Events:
    """Frames are events; their payload is the object of their data."""

    ordered: Final = False

    def __init__(self, frame_end: bytes | tuple[bytes, ...] = b"\n\n") -> None:
        self.frame_end = frame_end

    def framer(self) -> Framer:
        """A splitter into events."""
        return sse.SSEFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """The object of an event; None for comments and for data such as `[DONE]`. Raises NotJSON for broken data."""
        begins = frame[:7]
        found: Payload
        try:
            if begins == b"data: {":
                found = orjson.loads(frame[6:])
                return found
            if begins == b"event: " and (line := frame.find(b"\ndata: {")) >= 0:
                found = orjson.loads(frame[line + 6 :])
                return found
        except orjson.JSONDecodeError:
            pass  # more than one line of data, say
        value = _payload_of_any(frame)
        if isinstance(value, dict) or value is None:
            return value
        raise NotJSON("an event's data is no object")

    def text(self, frame: bytes) -> bytes:
        """The JSON text of the payload."""
        return sse.data(frame) or b"{}"

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """The same event with another payload."""
        return sse.with_data(frame, text)


def _payload_of_any(frame: bytes) -> Any:
    """The value of an event that is not one line of data, perhaps after one of `event`, or that orjson refuses."""
    data = sse.data(frame)
    return loads(data) if data and not data.startswith(b"[DONE]") else None


EVENTS: Final = Events()
CRLF_EVENTS: Final = Events((b"\r\n\r\n", b"\n\n"))
"""Events of vendors whose lines end in CRLF, as a rule."""
