"""Connect to a Redis or Valkey: connections for each event loop, behind a circuit breaker for each node.

If a node fails or does not answer in time, its circuit opens: operations on it fail at once, without network, until the
node that then has the same keys answers a background probe. Other nodes of a Cluster stay in use. Operations on them,
too, start the probe when it is due, because the failed node may have no clients left.
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
from callfuse.stores.keys import PREFIX, PROBE
from callfuse.stores.node import Script
from callfuse.stores.places import hash_tag
from callfuse.stores.replies import Reader
from callfuse.stores.scripts import WRITE
from callfuse.stores.server import ANY, RedisServer, check, is_passing, is_refusal

PROBE_TIMEOUT_S: Final = 1.0
"""The least time limit of a probe: it needs a new connection, and delays no exchange."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Time limit for closing connections: TLS waits for the peer's close_notify, which may never come."""
MAX_SENDING: Final = 100
"""The most background sends at a time; further ones are skipped."""

MOST_CIRCUITS: Final = 1000
"""The most circuits: a Cluster may have as many nodes."""

T = TypeVar("T")


class Connection:
    """Runs scripts on the server at `address`. Raises ConfigError if redis-py refuses its URL.

    A script may take `timeout_s` seconds. `bus` gets each failure, and each operation that is skipped while the circuit
    is open. `clock` returns seconds. `is_behind`: whether a place lacks data of this process; `catch_up` sends these
    after a probe.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        bus: Bus,
        clock: Callable[[], float],
        is_behind: Callable[[RedisServer, str], bool],
        catch_up: Callable[[RedisServer, str], Awaitable[None]],
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._bus = bus
        self._clock = clock
        self._circuits: dict[str, Breaker] = {}
        self._down: dict[str, str] = {}
        """The places whose circuit is open, each with the key whose operation failed."""
        self._is_behind = is_behind
        self._catch_up = catch_up
        check(address)  # raises ConfigError
        self._servers: dict[asyncio.AbstractEventLoop, RedisServer] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[Any]] = set()

    @property
    def closed(self) -> bool:
        """Whether no circuit is open."""
        return not self._down

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
        """Run a script. Returns the value read from its reply, and why there is none."""
        server = self._servers.get(loop) or self._open(loop)
        key = keys[0]
        place = server.place_of(key)
        is_closed = self._is_closed(place)
        if is_closed and self._is_behind(server, place):
            self._probe_if_due(server, place, key)
        for down, failed in [*self._down.items()]:
            self._probe_if_due(server, down, failed)
        if not is_closed:
            self._bus.emit(StoreSkipped(self._address.label, operation))
            return None, "it is down; callfuse keeps trying"
        began = loop.time()
        with Boundary() as boundary:  # the client library may raise anything, and the exchange must continue
            async with asyncio.timeout(self._timeout_s):
                return read(await server.run(script, keys, arguments)), ""
        self._bus.emit(StoreFailed(self._address.label, operation))
        error = boundary.error or TimeoutError()
        # A late timeout means that this process was busy, not that the server is down.
        was_busy = type(error) is TimeoutError and loop.time() - began > 2 * self._timeout_s
        # The server's user may lack rights for the index, which no exchange needs.
        if not (was_busy or is_passing(error) or (operation == INDEX and is_refusal(error))):
            self._record_failure(error, server, key)
        return None, self._describe(error)

    def start(self) -> None:
        """Probe the server in the background, so that a failure is reported before the first exchange."""
        loop = self.running_loop()
        if loop is not None:
            server = self._servers.get(loop) or self._open(loop)
            self._probe_if_due(server, server.place_of(PROBE), PROBE)

    async def aclose(self) -> None:
        """Close the connections of this event loop. Later operations open new ones."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not asyncio: no connection was opened
            return
        probing = [task for task in self._probing.values() if task.get_loop() is loop]
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)
        background = (*self._closing, *self._sending)
        await asyncio.gather(*(task for task in background if task.get_loop() is loop))
        if server := self._servers.pop(loop, None):
            await self._within_limit(server.aclose())

    def send(self, send: Callable[[], Coroutine[Any, Any, object]], key: str, most: int = MAX_SENDING) -> None:
        """Run `send` in a task of its own, unless the node of its `key` is down or `most` sends are running."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not asyncio, or a thread: the value stays in this process
            return
        self._sending = {task for task in self._sending if not task.get_loop().is_closed()}
        server = self._servers.get(loop)
        place = ANY if server is None else server.place_of(key)
        if self._is_closed(place) and len(self._sending) < most:
            task = loop.create_task(send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop of asyncio; None under another library, such as trio."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            self._bus.emit(StoreWithoutLoop(self._address.label))
            return None

    def _open(self, loop: asyncio.AbstractEventLoop) -> RedisServer:
        """Make a server for this loop, and drop servers of closed loops. Each thread may have a loop."""
        for other in list(self._servers):
            if other.is_closed():
                self._servers.pop(other, None)
        self._servers[loop] = server = RedisServer(self._address)
        return server

    def _is_closed(self, place: str) -> bool:
        return place not in self._down

    def _record_failure(self, error: Exception, server: RedisServer, key: str) -> None:
        """Open the circuit of the place of a key, if it is not open already."""
        place = server.place_of(key)
        circuit = self._circuits.get(place)
        if circuit is None:
            if len(self._circuits) >= MOST_CIRCUITS:
                oldest = next(iter(self._circuits))
                self._close_circuit(oldest)
                self._circuits.pop(oldest, None)
            circuit = self._circuits[place] = Breaker(self._clock)
        if circuit.record_failure():
            self._down[place] = key
            self._bus.emit(StoreDown(self._name_of(place), self._describe(error)))
            closing = asyncio.create_task(self._within_limit(server.leave(place)))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _close_circuit(self, place: str) -> None:
        if self._down.pop(place, None) is not None:
            if circuit := self._circuits.get(place):
                circuit.close()
            self._bus.emit(StoreUp(self._name_of(place)))

    def _name_of(self, place: str) -> str:
        """Return the name of a place in logs."""
        return f"{self._address.label} (node {place})" if place else self._address.label

    def _describe(self, error: Exception) -> str:
        if type(error) is TimeoutError:
            return f"no answer within {self._timeout_s:g} s"
        return f"{type(error).__name__}: {self._address.without_secrets(str(error))}"

    def _probe_if_due(self, server: RedisServer, place: str, key: str) -> None:
        """Start a probe of a place unless one is running: at the end of a pause if the circuit is open, else at once.
        `key`: one that the place has, or had."""
        before = self._probing.get(place)
        if before is not None and not before.done() and not before.get_loop().is_closed():
            return
        circuit = self._circuits.get(place)
        if circuit is None or circuit.closed or circuit.is_due():
            self._probing = {place: task for place, task in self._probing.items() if not task.done()}
            self._probing[place] = asyncio.create_task(self._probe(server, place, probe_key(key)))

    async def _probe(self, server: RedisServer, place: str, key: str) -> None:
        """Check that the node that now has this key can write, send it missing data, and close the circuit."""
        with Boundary() as boundary:
            async with asyncio.timeout(max(PROBE_TIMEOUT_S, self._timeout_s)):
                if not self._is_closed(place):
                    await server.learn()
                await touch(server, key)
                await self._catch_up(server, server.place_of(key))
        there = server.place_of(key)
        if boundary.error is not None:
            self._bus.emit(StoreFailed(self._address.label, "probe"))
            self._record_failure(boundary.error, server, key)
        for one in {place, there}:
            if boundary.error is None or one != there:  # the key has moved to another place
                self._close_circuit(one)

    async def _within_limit(self, closing: Awaitable[None]) -> None:
        """Wait for unused connections to close, up to a time limit, whatever errors they raise."""
        with Boundary():
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await closing


def probe_key(key: str) -> str:
    """Return a key in the slot of another one, for the short-lived values of probes."""
    return f"{PREFIX}{{{hash_tag(key)}}}:probe"


async def touch(server: RedisServer, key: str = PROBE) -> None:
    """Check that a server can write, with a short-lived value. Raises what the client library raises."""
    await server.run(WRITE, [key], [1, 0, 0, b""])
