"""An event loop without waiting: where nothing is ready, the clock goes to the next timer.

So a hold of two minutes costs nothing, and an exchange that waits for what never comes is found at once. `longest_s` is
the longest time, in seconds of CPU, for which the loop was not free; `turns` how often it has turned.
"""

import asyncio
import selectors
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_TURNS = 200_000
"""Of the loop in one case: more is an endless loop."""
MOST_CPU_S = 20.0
"""In one turn of the loop."""
THREAD_S = 30.0
"""Real seconds that a thread may take."""


class Hang(BaseException):
    """The case does not come to its end. No `Exception`, so that callfuse cannot catch it."""


class _Selector(selectors.DefaultSelector):
    """Counts turns and their time, and moves the clock where it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.turns = 0
        self.threads = 0
        self.longest_s = 0.0
        self.begun_s = time.thread_time()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.longest_s = max(self.longest_s, time.thread_time() - self.begun_s)
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Hang("the loop turns for ever")
        found: list[tuple[selectors.SelectorKey, int]] = []
        if self.threads:
            found = super().select(0 if timeout == 0 else THREAD_S)
        elif timeout is None:
            raise Hang("nothing is left to wait for")
        else:
            self.now_s += max(timeout, 0.0)
        self.begun_s = time.thread_time()
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Threads are waited for, in real time."""

    def __init__(self) -> None:
        self._watch = _Selector()
        super().__init__(self._watch)

    def time(self) -> float:
        """Seconds, most of which have never passed."""
        return self._watch.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As ever; the clock stands still until the thread is done."""
        threads = self.waiting_for_thread()
        threads.__enter__()
        done: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        done.add_done_callback(lambda _done: threads.__exit__(None, None, None))
        return done

    @contextmanager
    def waiting_for_thread(self) -> Iterator[None]:
        """The clock stands still within: what is waited for comes from a thread."""
        self._watch.threads += 1
        try:
            yield
        finally:
            self._watch.threads -= 1

    @property
    def longest_s(self) -> float:
        """Of the last `run`."""
        return self._watch.longest_s

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end. Raises Hang where there is none."""
        self._watch.turns, self._watch.longest_s, self._watch.begun_s = 0, 0.0, time.thread_time()
        with cpu_limit():
            return self.run_until_complete(main)

    def drop(self) -> None:
        """Close the loop with whatever hangs in it."""
        self.set_exception_handler(lambda _loop, _context: None)
        self.close()


@contextmanager
def cpu_limit() -> Iterator[None]:
    """Raise Hang in the midst of code that never gives the loop back; not from within C."""

    def stop(_number: int, _frame: object) -> None:
        raise Hang(f"more than {MOST_CPU_S:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
