"""What a serving process does with memory."""

import ctypes
import gc
import subprocess
import sys

import pytest

from callfuse.cli.heap import settle_heap

LARGE_BLOCKS = """
import ctypes
from callfuse.cli.heap import LARGE_BYTES, settle_heap

class Counts(ctypes.Structure):
    _fields_ = [(f"number_{at}", ctypes.c_size_t) for at in range(10)]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Counts
settle_heap()
for size in (30_000_000, 3_000_000):
    bytearray(size)  # freed at once
before = mallinfo().number_3
blocks = [bytearray(2 * LARGE_BYTES) for _ in range(10)]
print(mallinfo().number_3 - before)
"""
"""Prints how many of ten large blocks are mappings of their own. In a process of its own: glibc looks into its heap
first, and that of the tests has room."""


SMALL_BLOCKS = """
import time
from pathlib import Path
from callfuse.cli.heap import settle_heap, trim_heap

def resident_kb():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

settle_heap()
blocks = [bytes(10_000) for _ in range(4_000)]
full = resident_kb()
del blocks[:-1]
trim_heap(0.05)
ends_s = time.monotonic() + 20
while resident_kb() > full - 30_000 and time.monotonic() < ends_s:
    time.sleep(0.01)
print(full - resident_kb())
"""
"""Prints by how many KB it shrinks once 40 MB in small blocks are free, of which the last one is not."""


@pytest.mark.usefixtures("frozen_heap")
def test_the_collector_runs_as_often_as_python_wants() -> None:
    """A high threshold would let cycles of libraries keep bodies: it counts objects, not bytes."""
    before = gc.get_threshold()
    settle_heap()
    assert gc.get_threshold() == before


def test_large_blocks_go_back_to_the_system() -> None:
    """Each is a mapping of its own, also after larger ones have been freed."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("malloc is not that of glibc 2.33 or later")
    done = subprocess.run([sys.executable, "-c", LARGE_BLOCKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "10\n"


def test_what_is_free_between_small_blocks_goes_back_to_the_system() -> None:
    """glibc by itself only gives back what is free at the end of its heap."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("malloc is not that of glibc")
    done = subprocess.run([sys.executable, "-c", SMALL_BLOCKS], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) > 30_000
