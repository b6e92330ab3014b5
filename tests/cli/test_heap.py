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
