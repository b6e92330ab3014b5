"""What a serving process does with memory."""

import ctypes
import gc
import sys

import pytest

from callfuse.cli.heap import LARGE_BYTES, settle_heap


def mappings() -> int:
    """How many blocks of malloc are mappings of their own; skips the test where malloc is not glibc's."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("malloc is not that of glibc 2.33 or later")

    class Counts(ctypes.Structure):
        _fields_ = [(f"number_{at}", ctypes.c_size_t) for at in range(10)]

    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Counts
    found: int = mallinfo().number_3
    return found


@pytest.mark.usefixtures("frozen_heap")
def test_the_collector_runs_as_often_as_python_wants() -> None:
    """A high threshold would let cycles of libraries keep bodies: it counts objects, not bytes."""
    before = gc.get_threshold()
    settle_heap()
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("frozen_heap")
def test_large_blocks_go_back_to_the_system() -> None:
    """Each is a mapping of its own, also after larger ones have been freed."""
    settle_heap()
    for size in (30_000_000, 3_000_000):
        assert len(bytearray(size)) == size  # freed at once
    before = mappings()
    blocks = [bytearray(2 * LARGE_BYTES) for _ in range(10)]
    assert mappings() == before + len(blocks)
