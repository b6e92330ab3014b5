"""What a serving process does with memory: short runs of the collector, and large blocks given back.

glibc raises the size from which a block is a mapping of its own, up to 32 MB, whenever such a block is freed. From then
on request bodies lie in its heap, which cannot shrink below whatever small object came to lie behind them: eight waves
of 100 uploads of 2 MB that were aborted left 262 MB of 69, and 100 MB with the size fixed at what it is at first.
"""

import ctypes
import gc
import sys
from typing import Final

MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of <malloc.h>
LARGE_BYTES: Final = 128 * 1024  # glibc's size at the start; to set it keeps it there


def settle_heap() -> None:
    """Exclude the objects of the start from the cyclic garbage collector, whose runs are then short, and have large
    blocks returned to the system when they are freed.

    How often the collector runs stays Python's own choice: it counts objects, not bytes, and a few cycles of a library
    may hold large bodies.
    """
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and returns such blocks by itself
        if mallopt is not None:
            mallopt(MMAP_THRESHOLD, LARGE_BYTES)
