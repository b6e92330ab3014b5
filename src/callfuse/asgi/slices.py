"""Cut long chunks of streams into slices, so that other exchanges can run in between. Results do not change."""

from collections.abc import Iterator
from typing import Final

SLICE_BYTES: Final = 4096
"""At most about 10 ms of work, if every few bytes are a frame. Ordinary chunks are shorter."""
TEXT_BYTES: Final = 128 * 1024
"""A chunk with only text is read at once up to this length. The worst case, blank lines, takes 10 ms."""


def slices(chunk: bytes) -> Iterator[bytes]:
    """Yield the chunk in slices of up to `SLICE_BYTES` bytes. A slice ends at the end of a line if it contains one,
    because frames are cheaper in one piece."""
    begin = 0
    while begin < len(chunk):
        end = begin + SLICE_BYTES
        if end < len(chunk):
            end = chunk.rfind(b"\n", begin, end) + 1 or end
        yield chunk[begin:end]
        begin = end
