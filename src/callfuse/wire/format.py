"""The seam between bytes and frames: how a stream is split, and what a frame carries."""

from typing import Any, Protocol

Payload = dict[str, Any]
"""The JSON object of one frame, or of one whole body."""


class Framer(Protocol):
    """One stream's splitter. No byte is lost, none is added, none leaves later than it must."""

    empty: bool
    """Whether no part of a frame is waiting for its end."""

    @property
    def waiting(self) -> int:
        """Bytes that wait for the end of their frame."""
        ...

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that this chunk completes."""
        ...

    def rest(self) -> bytes:
        """What waits for its end, and forget it."""
        ...


class Format(Protocol):
    """One way to stream JSON objects."""

    @property
    def frame_end(self) -> bytes | tuple[bytes, ...]:
        """How frames end on the wire, as a rule: what ends otherwise is only read more slowly."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether frames must keep their order, whatever choice they are of."""
        ...

    def framer(self) -> Framer:
        """A splitter for one stream."""
        ...

    def payload(self, frame: bytes) -> Payload | None:
        """The JSON object of a frame, None where it has none; raises NotJSON where it should have."""
        ...

    def text(self, frame: bytes) -> bytes:
        """The JSON text of a frame's payload."""
        ...

    def with_text(self, frame: bytes, text: bytes) -> bytes:
        """The same frame with another payload; all else in it stays."""
        ...
