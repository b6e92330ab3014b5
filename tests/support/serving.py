"""Real servers for tests.

In: an ASGI app. Out: the base URL at which uvicorn serves it, on a free loopback port, in the running event loop:

    async with serve(app) as base_url:
        ...  # http://127.0.0.1:49152

At the end of the block the server stops as on a signal: no new connections, open exchanges may finish, the lifespan
ends, and the port is free again. No signal handler, thread or logging setting is touched, and nothing is left behind.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn

from tests.support.asgi import App


class _Server(uvicorn.Server):
    """A uvicorn server that tells when it listens, leaves the process's signals alone, and stops without a pause.

    uvicorn's own loops look every 0.1 s whether they are to end: 0.3 s a server, in hundreds of tests.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in [*self.server_state.connections]:
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
        for task in self.server_state.tasks:
            task.cancel()
        for server in self.servers:
            await server.wait_closed()
        await self.lifespan.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # it would end the test run
            self.listening.set_exception(RuntimeError("the app refused to start; see the log"))
            self.should_exit = True
        else:
            self.listening.set_result(None)


@asynccontextmanager
async def serve(app: App, *, at_port: int = 0, **settings: Any) -> AsyncIterator[str]:
    """Serve the app for the length of the block, on a free port if none is given. `settings` are uvicorn's, such as
    `http="h11"`."""
    config = uvicorn.Config(
        app, **{"log_config": None, "access_log": False, "ws": "none", "timeout_graceful_shutdown": 10, **settings}
    )
    server = _Server(config)
    with socket.create_server(("127.0.0.1", at_port)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no chunk waits for an ACK
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await server.listening
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stopped.set()
            await running
