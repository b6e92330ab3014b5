"""Process long bodies in threads, so that one body does not stop all other streams.

A thread releases the GIL every 5 ms (`sys.getswitchinterval`), but not within one call of C code. So such calls must be
bounded: a body is unpacked in pieces (`codings.py`), and not parsed if it has too many values (`wire/values.py`).
"""

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from callfuse.boundary import Boundary

T = TypeVar("T")

LONG_BYTES: Final = 64 * 1024
"""Longer bodies are processed in a thread. For an ordinary conversation of this size, this takes 1 to 3 ms."""
MANY_VALUES: Final = 4000
"""Shorter bodies with more values are processed in a thread, too: each may be a message that takes 3 to 5 us."""
HUGE_BYTES: Final = 4 * 1024 * 1024
"""Longer bodies are processed one at a time. Shorter ones need not wait for them."""

_SLOTS: Final = (4, 1)
"""Threads for long bodies, and for huge ones. Each further thread may delay the event loop by 5 ms."""
_limiters: RunVar[tuple[anyio.CapacityLimiter, ...]] = RunVar("callfuse_off_loop")


def weight_of(text: bytes, *, packed: bool = False) -> int:
    """Return the length of a body, for `run`, or more if it has many values or an unknown unpacked length."""
    size = len(text)
    # Each value but the first of a list or an object follows a comma. Counting commas takes 0.4 ns a byte.
    if packed or (LONG_BYTES >= size > 2 * MANY_VALUES and text.count(b",") >= MANY_VALUES):
        return max(size, LONG_BYTES + 1)
    return size


def weight_of_answer(size: int) -> int:
    """Return the weight of a whole answer of `size` bytes, for `run`. Judging takes 0.1 to 0.25 ms for each call."""
    return 4 * size


async def run(work: Callable[[], T], size: int) -> T:
    """Do work on a body of `size` bytes, in a thread if it is long. A thread costs about 0.1 ms."""
    if size <= LONG_BYTES:
        return work()
    results: list[T] = []
    error = await run_sync(_catch, work, results, limiter=_limiter(is_huge=size > HUGE_BYTES))
    try:
        if error is not None:
            raise error
    finally:
        del error  # breaks a cycle with its traceback
    return results[0]


def _catch(work: Callable[[], T], results: list[T]) -> Exception | None:
    """Do work in a thread, and return its error. A raised error would form a cycle with the thread's future, which
    would keep the body until the garbage collector runs."""
    with Boundary() as boundary:
        results.append(work())
    return boundary.error


def _limiter(*, is_huge: bool) -> anyio.CapacityLimiter:
    """Return the limiter of this event loop."""
    try:
        limiters = _limiters.get()
    except LookupError:
        limiters = tuple(map(anyio.CapacityLimiter, _SLOTS))
        _limiters.set(limiters)
    return limiters[is_huge]
