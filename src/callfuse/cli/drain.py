"""Drain a process of `callfuse serve` behind a load balancer: first it is not ready, then it stops.

Without a pause in between, requests in transit when the signal comes would find a closed port.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from callfuse.proxy.asgi import Message, Receive, Scope, Send

logger = logging.getLogger("callfuse.serve")

App = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[[int, FrameType | None], Any]

CLOSE = (b"connection", b"close")


class Drain:
    """Wraps the app of a process, and delays SIGTERM during its lifespan.

    On a signal to stop, `on_stop` is called at once, in the event loop. The server's own handler gets SIGTERM `seconds`
    later. Meanwhile requests are served, and their answers tell the client to open a new connection for the next
    request. Ctrl+C, and a second SIGTERM, end the wait.
    """

    def __init__(self, app: App, seconds: float, on_stop: Callable[[], None]) -> None:
        self._app = app
        self._seconds = seconds
        self._on_stop = on_stop
        self._is_draining = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            return self._run_lifespan(scope, receive, send)
        if self._is_draining and scope.get("http_version", "1.1") == "1.1":  # HTTP/2 has no `connection` header
            send = _closing(send)
        return self._app(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._delaying_signals(asyncio.get_running_loop()):
            await self._app(scope, receive, send)

    @contextmanager
    def _delaying_signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Handle the stop signals before the server's own handlers, which are already set."""
        before: dict[int, Handler] = {}
        if threading.current_thread() is threading.main_thread():
            for stopping in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(stopping)
                if callable(handler):
                    before[stopping] = handler

        def take(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._on_stop)
            if number == signal.SIGTERM and self._seconds and not self._is_draining:
                self._is_draining = True
                loop.call_soon_threadsafe(self._start, loop, before[number])
            else:
                before[number](number, frame)

        for wrapped in before:
            signal.signal(wrapped, take)
        try:
            yield
        finally:
            for wrapped, own in before.items():
                signal.signal(wrapped, own)

    def _start(self, loop: asyncio.AbstractEventLoop, end: Handler) -> None:
        logger.info("draining: ready answers 503, and requests are served for another %g s", self._seconds)
        loop.call_later(self._seconds, end, signal.SIGTERM, None)


def _closing(send: Send) -> Send:
    """Return a `send` that adds the header that makes the client close the connection after this answer."""

    def closing(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), CLOSE]}
        return send(message)

    return closing
