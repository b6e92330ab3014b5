"""What the dialects over server-sent events have in common."""

from callfuse.dialects.base import Payload
from callfuse.framing import Framer, SSEFramer, sse
from callfuse.jsontext import NotJSON, loads


class SSEFrames:
    """Frames are events, their payload is the JSON object of their data."""

    def framer(self) -> Framer:
        """A splitter into events."""
        return SSEFramer()

    def payload(self, frame: bytes) -> Payload | None:
        """The object of an event; None for comments and for data such as `[DONE]`. Raises NotJSON for broken data."""
        data = sse.data(frame)
        if not data or data.startswith(b"[DONE]"):
            return None
        value = loads(data)
        if not isinstance(value, dict):
            raise NotJSON("an event's data is no object")
        return value

    def is_comment(self, frame: bytes) -> bool:
        """Whether a frame holds only comments."""
        return sse.is_comment(frame)
