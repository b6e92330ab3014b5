"""End waits for silent clients, with one timer of the event loop for all of them.

    async with Waiting(30) as waiting:
        while more:
            waiting.renew()
            message = await receive()
    if waiting.is_over: ...

A timer for each request would nearly always be set and cancelled without need.
"""

import asyncio
import math
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

import anyio


class Waiting:
    """Leaves its block, without an exception, `pause_s` seconds after the last `renew`, and at the latest `total_s`
    seconds after the block began. Then `is_over` is set. Uses asyncio, or a scope of anyio under other event loops."""

    __slots__ = ("_last", "_loop", "_pause_s", "_total_s", "_waits", "_with", "is_over")

    def __init__(self, pause_s: float, total_s: float = math.inf) -> None:
        self.is_over = False
        self._last = math.inf
        self._total_s = total_s
        self._pause_s = pause_s
        self._loop = _running_loop()  # read once: Python 3.11 makes a system call for it
        self._waits = None if self._loop is None else _waits_of(self._loop)
        self._with: asyncio.Timeout | anyio.CancelScope | None = None

    async def __aenter__(self) -> Self:
        if self._waits is None:
            scope = anyio.CancelScope()
            scope.__enter__()
            self._with = scope
        else:
            self._with = await asyncio.timeout(None).__aenter__()
        self.renew()
        return self

    def renew(self) -> None:
        """Restart the pause, because the client has sent something."""
        now = anyio.current_time() if self._loop is None else self._loop.time()
        self._last = min(self._last, now + self._total_s)
        end = min(now + self._pause_s, self._last)
        if isinstance(self._with, asyncio.Timeout) and self._loop is not None and self._waits is not None:
            self._waits.put(self._with, end, self._loop)
        elif isinstance(self._with, anyio.CancelScope):
            self._with.deadline = end

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        ended, self._with = self._with, None
        if isinstance(ended, anyio.CancelScope):
            left = bool(ended.__exit__(kind, error, traceback))
            self.is_over = ended.cancelled_caught
            return left
        if isinstance(ended, asyncio.Timeout) and self._waits is not None:
            self._waits.drop(ended)
            try:
                await ended.__aexit__(kind, error, traceback)
            except TimeoutError:  # raised only for its own cancellation
                self.is_over = True
        return self.is_over


class _Waits:
    """The waits of one event loop, each with its end time. Has no reference to the loop."""

    __slots__ = ("_ends", "_next_check")

    def __init__(self) -> None:
        self._ends: dict[asyncio.Timeout, float] = {}
        self._next_check = math.inf

    def put(self, wait: asyncio.Timeout, end: float, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a wait until this time of the loop, or renew it."""
        self._ends[wait] = end
        if end < self._next_check:
            self._check_at(end, loop)

    def drop(self, wait: asyncio.Timeout) -> None:
        """Forget a wait that has ended. The timer stays, because the next request needs it, too."""
        self._ends.pop(wait, None)

    def _check_at(self, time: float, loop: asyncio.AbstractEventLoop) -> None:
        self._next_check = time
        if time < math.inf:
            loop.call_at(time, self._check, time)

    def _check(self, time: float) -> None:
        """End the waits that are over, and schedule a check for the next one."""
        if time != self._next_check:  # an earlier check was set meanwhile, which schedules the next one
            return
        loop = asyncio.get_running_loop()
        for wait in [wait for wait, end in self._ends.items() if end <= time]:
            self.drop(wait)
            wait.reschedule(time)
        self._check_at(min(self._ends.values(), default=math.inf), loop)


_WAITS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waits] = WeakKeyDictionary()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop; None if it is not asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _waits_of(loop: asyncio.AbstractEventLoop) -> _Waits:
    waits = _WAITS.get(loop)
    if waits is None:
        waits = _WAITS[loop] = _Waits()
    return waits
