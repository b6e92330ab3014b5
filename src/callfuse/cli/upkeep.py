"""Runs the tasks of a `callfuse serve` process beside its requests, from its start to its end.

The signal to stop is told at once, while open streams end. Each second it writes those of its figures
that no event tells of to the folder that workers share, so that any of them can show the sum.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from callfuse.observe.prometheus import Metrics
from callfuse.proxy.asgi import Receive, Scope, Send

REFRESH_S: Final = 1.0
"""Seconds between two writes of the figures; Prometheus asks every 15 to 60."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Upkeep:
    """Wraps the app of a process, and works during its lifespan. `stop` is called, in the event loop, when the process
    is told to stop."""

    def __init__(self, app: App, metrics: Metrics, stop: Callable[[], None]) -> None:
        self._app = app
        self._metrics = metrics
        self._stop = stop

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        return (self._run_lifespan if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        refreshing = loop.create_task(self._refresh())
        try:
            with self._noting_signals(loop):
                await self._app(scope, receive, send)
        finally:
            refreshing.cancel()
            self._metrics.leave()

    async def _refresh(self) -> None:
        while True:
            self._metrics.refresh()
            await asyncio.sleep(REFRESH_S)

    @contextmanager
    def _noting_signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Note the signals to stop, before the server's own handlers, which are set by now, get them."""
        before: dict[int, Callable[[int, Any], Any]] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    before[number] = handler

        def note(number: int, frame: Any) -> None:
            loop.call_soon_threadsafe(self._stop)
            before[number](number, frame)

        for wrapped in before:
            signal.signal(wrapped, note)
        try:
            yield
        finally:
            for wrapped, own in before.items():
                signal.signal(wrapped, own)
