"""The bytes of one answer that have come and are not processed yet."""

from collections import deque

from callfuse.wire import Framer


class Unread:
    """The unprocessed bytes of one answer, in order: the frame at work, complete frames, an incomplete one, and a chunk
    that is still to be split.

    `at_work`: the frame that is being processed, as the client would get it; None between frames. `is_new`: a chunk has
    come and is still being processed.
    """

    __slots__ = ("at_work", "chunk", "framer", "frames", "is_new")

    def __init__(self, framer: Framer) -> None:
        self.framer = framer
        self.frames = deque[bytes]()
        self.chunk = b""
        self.at_work: bytes | None = None
        self.is_new = False

    @property
    def size(self) -> int:
        """The number of bytes, between two chunks, of complete frames and an incomplete one."""
        return self.framer.waiting + sum(map(len, self.frames))

    def take(self) -> bytes:
        """Take everything except the frame at work, unchanged."""
        unread = b"".join(self.frames) + self.framer.flush() + self.chunk
        self.frames.clear()
        self.chunk = b""
        return unread
