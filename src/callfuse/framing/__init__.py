"""Bytes in any chunking become frames that keep their raw bytes: joined again they are the bytes that came in."""

from typing import Protocol

from callfuse.framing import sse
from callfuse.framing.sse import SSEFramer

__all__ = ["Framer", "SSEFramer", "sse"]


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
