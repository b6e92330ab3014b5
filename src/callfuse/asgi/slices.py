"""Cuts long chunks of streams into slices, between which other exchanges run: how a stream is cut changes nothing."""

from collections.abc import Iterator
from typing import Final

SLICE_BYTES: Final = 4096
"""About 10 ms of work at most, where every few bytes are a frame of their own; ordinary chunks are shorter."""
TEXT_BYTES: Final = 128 * 1024
"""A chunk of nothing but text is read at once up to this length: blank lines, the most frames, take 10 ms."""


def slices(chunk: bytes) -> Iterator[bytes]:
    """Yield the chunk in slices of up to `SLICE_BYTES` bytes. A slice ends at the end of a line where it has one:
    frames are cheaper in one piece."""
    begin = 0
    while begin < len(chunk):
        end = begin + SLICE_BYTES
        if end < len(chunk):
            end = chunk.rfind(b"\n", begin, end) + 1 or end
        yield chunk[begin:end]
        begin = end
