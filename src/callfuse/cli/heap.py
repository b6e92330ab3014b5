"""Tune the memory of a serving process: short runs of the garbage collector, and free memory returned to the system.

glibc allocates large blocks as separate mappings, and raises the threshold for that, up to 32 MB, whenever such a block
is freed. From then on request bodies are in its heap, which cannot shrink while a small object is allocated after them:
after eight waves of 100 aborted uploads of 2 MB, a process of 69 MB had 262 MB, but only 100 MB with the threshold
fixed at its initial value.

Smaller blocks are in a heap, one for each thread that reads bodies, and free blocks between others stay there until
glibc is asked to trim. After 40 concurrent conversations of 1.4 MB, this was 31 MB of 149.
"""

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of <malloc.h>
LARGE_BYTES: Final = 128 * 1024  # glibc's initial threshold; setting it explicitly fixes it
TRIM_EACH_S: Final = 30.0
"""The interval of trimming. A check takes 0.07 ms, and returning 30 MB takes 2.5 ms, in which other threads run until
they need memory."""


def settle_heap() -> None:
    """Exclude the objects of the start from the cyclic garbage collector, so that its runs are short, and make glibc
    return large blocks to the system when they are freed.

    The frequency of the collector's runs is not changed: it counts objects, not bytes, and a few cycles of a library
    may contain large bodies.
    """
    gc.collect()
    gc.freeze()
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)


def trim_heap(each_s: float = TRIM_EACH_S) -> None:
    """Start a thread that returns free heap memory to the system, periodically until the process ends."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        threading.Thread(target=_trim, args=(malloc_trim, each_s), name="callfuse-heap", daemon=True).start()


def _trim(malloc_trim: Callable[[int], int], each_s: float) -> None:
    while True:
        time.sleep(each_s)
        malloc_trim(0)


def _of_glibc(name: str) -> Any:
    """Return a function of glibc's malloc; None elsewhere, such as under musl, which returns memory by itself."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
