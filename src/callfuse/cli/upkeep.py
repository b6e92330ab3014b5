"""Run the background tasks of a `callfuse serve` process, from its start to its end.

Each second it writes the gauges that no event reports to the folder that workers share, so that each of them can show
the sum.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from callfuse.observe.prometheus import Metrics
from callfuse.proxy.asgi import Receive, Scope, Send

REFRESH_S: Final = 1.0
"""Seconds between two writes of the gauges. Prometheus scrapes every 15 to 60."""

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Upkeep:
    """Wraps the app of a process, and works during its lifespan."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        return (self._run_lifespan if scope["type"] == "lifespan" else self._app)(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        refreshing = asyncio.get_running_loop().create_task(self._refresh())
        try:
            await self._app(scope, receive, send)
        finally:
            refreshing.cancel()
            self._metrics.leave()

    async def _refresh(self) -> None:
        while True:
            self._metrics.refresh()
            await asyncio.sleep(REFRESH_S)
