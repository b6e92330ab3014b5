"""Connects to a Redis or Valkey: a connection for each event loop, behind one circuit breaker.

A server that fails or does not answer in time is left alone: what is asked is refused at once, without network, until
the server answers a background probe.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.conversations.ledger import StoreUnavailable
from callfuse.observe.bus import Bus
from callfuse.observe.events import StoreDown, StoreFailed, StoreSkipped, StoreUp, StoreWithoutLoop
from callfuse.stores.address import Address
from callfuse.stores.breaker import Breaker
from callfuse.stores.index import INDEX
from callfuse.stores.keys import PREFIX
from callfuse.stores.replies import Reader
from callfuse.stores.scripts import WRITE
from callfuse.stores.server import RedisServer, Script, is_refusal

PROBE_TIMEOUT_S: Final = 1.0
"""The least time limit of a probe: it needs a new connection, and delays no exchange."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Time limit for closing connections: TLS waits for the peer's close_notify, which may never come."""
MAX_SENDING: Final = 100
"""What may be on its way in the background at a time; further things are not sent."""

T = TypeVar("T")


class Connection:
    """Runs scripts on the server at `address`. Raises ConfigError if redis-py refuses its URL.

    A script has `timeout_s` seconds. `bus` gets each failure, and each operation that is skipped while the circuit is
    open. `clock` returns seconds. `is_behind`: whether a probe has something to catch up with, `catch_up` does that.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        bus: Bus,
        clock: Callable[[], float],
        is_behind: Callable[[], bool],
        catch_up: Callable[[RedisServer], Awaitable[None]],
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._bus = bus
        self._breaker = Breaker(clock)
        self._is_behind = is_behind
        self._catch_up = catch_up
        RedisServer(address)  # raises ConfigError
        self._servers: dict[asyncio.AbstractEventLoop, RedisServer] = {}
        self._probing: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[Any]] = set()

    async def ask(
        self,
        operation: str,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
        read: Reader[T],
    ) -> T | None:
        """Run a script and read its reply; None if the server fails, or if the circuit is open."""
        loop = self.running_loop()
        return None if loop is None else (await self._try(loop, operation, script, keys, arguments, read))[0]

    async def demand(
        self,
        operation: str,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
        read: Reader[T],
    ) -> T:
        """Run a script and read its reply. Raises StoreUnavailable."""
        loop = asyncio.get_running_loop()
        found, problem = await self._try(loop, operation, script, keys, arguments, read)
        if problem:
            raise StoreUnavailable(f"the store {self._address.label} cannot be used: {problem}")
        reply: T = found
        return reply

    async def _try(
        self,
        loop: asyncio.AbstractEventLoop,
        operation: str,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
        read: Reader[T],
    ) -> tuple[Any, str]:
        """Run a script. Returns what is read of its reply, or why there is none."""
        server = self._servers.get(loop) or self._open(loop)
        if self._is_behind() or not self._breaker.closed:
            self._probe_if_due(server)
        if not self._breaker.closed:
            self._bus.emit(StoreSkipped(self._address.label, operation))
            return None, "it is down; callfuse keeps trying"
        began = loop.time()
        with Boundary() as boundary:  # the client library may raise anything, and the exchange must go on
            async with asyncio.timeout(self._timeout_s):
                return read(await server.run(script, keys, arguments)), ""
        self._bus.emit(StoreFailed(self._address.label, operation))
        error = boundary.error or TimeoutError()
        # A timeout that fires late means that this process was busy, not that the server is down.
        was_busy = type(error) is TimeoutError and loop.time() - began > 2 * self._timeout_s
        # No exchange needs the index, for which a user of the server may have no rights.
        if not was_busy and not (operation == INDEX and is_refusal(error)):
            self._record_failure(error, server, loop)
        return None, self._describe(error)

    def start(self) -> None:
        """Look for the server in the background, so that one that cannot be reached is told before it is needed."""
        loop = self.running_loop()
        if loop is not None:
            server = self._servers.get(loop) or self._open(loop)
            self._probe_if_due(server)

    async def aclose(self) -> None:
        """Close the connections of this event loop. What is asked later opens new ones."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not asyncio: no connection was opened
            return
        if self._probing is not None and self._probing.get_loop() is loop:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        background = (*self._closing, *self._sending)
        await asyncio.gather(*(task for task in background if task.get_loop() is loop))
        if server := self._servers.pop(loop, None):
            await self._close(server)

    def send(self, send: Callable[[], Coroutine[Any, Any, object]], most: int = MAX_SENDING) -> None:
        """Send something in a task of its own, unless the server is down or too much is on its way."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another event loop's library, or a thread: the process alone knows it
            return
        self._sending = {task for task in self._sending if not task.get_loop().is_closed()}
        if self._breaker.closed and len(self._sending) < most:
            task = loop.create_task(send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of asyncio; None under another library, such as trio."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            self._bus.emit(StoreWithoutLoop(self._address.label))
            return None

    def _open(self, loop: asyncio.AbstractEventLoop) -> RedisServer:
        """Make a server for this loop, and drop those of closed loops; each thread may have a loop."""
        for other in list(self._servers):
            if other.is_closed():
                self._servers.pop(other, None)
        self._servers[loop] = server = RedisServer(self._address)
        return server

    def _record_failure(self, error: Exception, server: RedisServer, loop: asyncio.AbstractEventLoop) -> None:
        if server is self._servers.get(loop) and self._breaker.record_failure():
            self._bus.emit(StoreDown(self._address.label, self._describe(error)))
            del self._servers[loop]
            closing = asyncio.create_task(self._close(server))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _describe(self, error: Exception) -> str:
        if type(error) is TimeoutError:
            return f"no answer within {self._timeout_s:g} s"
        return f"{type(error).__name__}: {self._address.without_secrets(str(error))}"

    def _probe_if_due(self, server: RedisServer) -> None:
        """Start a probe unless one is running: at the end of a pause if the circuit is open, else at once."""
        before = self._probing
        if before is not None and not before.done() and not before.get_loop().is_closed():
            return
        if self._breaker.closed or self._breaker.is_due():
            self._probing = asyncio.create_task(self._probe(server))

    async def _probe(self, server: RedisServer) -> None:
        """Check that the server can write, let it catch up, and close the circuit."""
        with Boundary() as boundary:
            async with asyncio.timeout(max(PROBE_TIMEOUT_S, self._timeout_s)):
                await touch(server)
                await self._catch_up(server)
        if boundary.error is not None:
            self._bus.emit(StoreFailed(self._address.label, "probe"))
            self._record_failure(boundary.error, server, asyncio.get_running_loop())
            return
        if not self._breaker.closed:
            self._breaker.close()
            self._bus.emit(StoreUp(self._address.label))

    async def _close(self, server: RedisServer) -> None:
        with Boundary():  # the server is not used any more, so errors do not matter
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await server.aclose()


async def touch(server: RedisServer) -> None:
    """Check that a server can write, with a value that is gone at once. Raises what the client library raises."""
    await server.run(WRITE, [f"{PREFIX}{{probe}}"], [1, 0, 0, b""])
