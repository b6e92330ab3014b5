"""A door in front of a server, which counts who comes, and can be shut."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress


class Gate:
    """Connections are forwarded to `port` while it is `open`; shut, they are taken, and nobody ever answers. With `tls`
    it is the end of their encryption."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._to = port
        self._tls = tls
        self.port = 0
        self.open = True
        self.piece: Callable[[int], int] | None = None
        """How many of so many bytes go on at once; the others follow a little later."""
        self.came = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The store that is behind it."""
        return f"redis://me:s3cret@127.0.0.1:{self.port}"

    def shut(self) -> None:
        """What is said from now on is heard by nobody, on open connections too."""
        self.open = False

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        there, server = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += (writer, server)
        for one, other in ((reader, server), (there, writer)):
            task = asyncio.create_task(self._pass(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                while self.open and data:
                    size = self.piece(len(data)) if self.piece else len(data)
                    writer.write(data[:size])
                    data = data[size:]
                    await asyncio.sleep(0.001 * len(data[:1]))
        writer.close()

    @asynccontextmanager
    async def standing(self) -> AsyncIterator["Gate"]:
        """For the length of a block."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            await asyncio.gather(*self._tasks)
            await server.wait_closed()
