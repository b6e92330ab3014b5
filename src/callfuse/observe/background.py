"""Run the work of a sink in a task of its own, so that no exchange waits for it.

    task = Background(work)  # async def work() -> None, which returns when there is nothing left to do
    task.wake()              # there is something to do: starts it, or ends its `pause`; from any thread

The task lives in the event loop in which `wake` is first called, a lifespan's or an exchange's. It starts again after
it has ended, in another loop if its own is closed. Without an asyncio loop nothing runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context

from callfuse.boundary import Boundary


class Background:
    """One task, started when there is work."""

    __slots__ = ("_loop", "_news", "_task", "_work")

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Start the task, or end its pause."""
        running: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            if running is None:
                return
            self._loop, self._task, self._news = running, None, asyncio.Event()
        if running is self._loop:
            self._start()
        else:
            with suppress(RuntimeError):  # it has been closed meanwhile
                self._loop.call_soon_threadsafe(self._start)

    async def pause(self, seconds: float | None = None) -> bool:
        """Wait, in the task, for `wake`; at most `seconds`, if given. Returns whether it was called since the last
        pause."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        was_set = self._news.is_set()
        self._news.clear()
        return was_set

    def now(self) -> float:
        """Return the time of the loop, in seconds; 0 before there is one."""
        return self._loop.time() if self._loop is not None else 0.0

    async def stop(self, seconds: float = 0) -> None:
        """Wait for the task's end, then cancel it. Does nothing in a loop other than its own."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        if seconds:
            await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.wait([task])

    def _start(self) -> None:
        self._news.set()
        if self._loop is not None and (self._task is None or self._task.done()):
            # An empty context: the task would keep an exchange's context alive.
            self._task = self._loop.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        with Boundary():  # errors are reported where they happen; the next event tries again
            await self._work()
