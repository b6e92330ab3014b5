"""What the dialects over server-sent events have in common."""

from typing import Any, Final

import orjson

from callfuse.dialects.base import Payload
from callfuse.framing import Framer, SSEFramer, sse
from callfuse.jsontext import NotJSON, loads


class SSEFrames:
    """Frames are events, their payload is the JSON object of their data."""

    frame_end: Final = b"\n\n"

    def framer(self) -> Framer:
        """A splitter into events."""
        return SSEFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """The object of an event; None for comments and for data such as `[DONE]`. Raises NotJSON for broken data."""
        begin = 0
        if frame.startswith(b"data: "):
            begin = 6
        elif frame.startswith(b"event: "):
            begin = frame.find(b"\ndata: ") + 7
        try:
            value = orjson.loads(frame[begin:])
        except orjson.JSONDecodeError:
            value = self._payload_of_any(frame)
        if value is not None and not isinstance(value, dict):
            raise NotJSON("an event's data is no object")
        return value

    def _payload_of_any(self, frame: bytes) -> Any:
        """The value of an event that is not one line of data, perhaps after one of `event`, or that orjson refuses."""
        data = sse.data(frame)
        return loads(data) if data and not data.startswith(b"[DONE]") else None

    def is_comment(self, frame: bytes) -> bool:
        """Whether a frame holds only comments."""
        return sse.is_comment(frame)
