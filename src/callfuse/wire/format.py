"""The interfaces between bytes and frames: a `Framer` splits a stream, a `Format` reads and changes its frames."""

from typing import Any, Protocol

Payload = dict[str, Any]
"""The JSON object of one frame, or of one whole body."""


class Framer(Protocol):
    """Splits one stream into frames. No byte is lost or added, and a frame is returned as soon as it is complete."""

    empty: bool
    """Whether no bytes are buffered, so that a chunk which is one whole frame can be passed on without `feed`."""

    waiting: int
    """The number of buffered bytes: those of a frame that is not complete."""

    @property
    def broken(self) -> bool:
        """Whether the framing has been lost: the last frame returned, and all bytes after it, are not real frames."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the frames that it completes."""

    def flush(self) -> bytes:
        """Return the buffered bytes and clear the buffer."""


class Format(Protocol):
    """A way to stream JSON objects, such as server-sent events. It has no state: the framer of a stream has."""

    @property
    def frame_end(self) -> bytes | tuple[bytes, ...]:
        """The usual ends of a frame, for fast paths. Frames with another end are read as well, but more slowly."""

    @property
    def ordered(self) -> bool:
        """Whether frames must keep their order, even those of different choices."""

    def framer(self) -> Framer:
        """Make a splitter for one stream."""

    def payload(self, frame: bytes) -> Payload | None:
        """Parse the JSON object of a frame; return None if the frame (such as a comment) has none. Raises NotJSON if
        the object is broken, and NotFramed (a subclass) if no later frame can be found."""

    def text(self, frame: bytes) -> bytes:
        """Return the JSON text of a frame's payload; `{}` if the frame has no payload."""

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """Return the frame with its payload replaced; all other bytes stay."""
