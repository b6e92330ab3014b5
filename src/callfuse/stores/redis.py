"""The ledger of several processes, in a Redis or Valkey: one round trip to read and one to write an exchange.

This process's own memory keeps whatever was last read or written here. When the server fails, or does not answer in
time, a circuit opens: exchanges go on from the requests' histories and that memory, and none of them touches the
network, until the server has answered a probe in the background. It then first gets what sessions have set meanwhile,
and its values count again. Values that it does not have, as after a flush, are taken from memory.

Keys begin with `callfuse:{CREDENTIAL}:`, the hash of the client's credential: in a Cluster all that an exchange reads
and writes is on one node, and clients are spread over the nodes.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.conversations.identity import DIGEST_SIZE, Lane
from callfuse.conversations.ledger import LaneState, MemoryLedger, SessionKey, SessionState
from callfuse.observe import log
from callfuse.observe.counts import Counts
from callfuse.stores import values
from callfuse.stores.address import Address
from callfuse.stores.breaker import Breaker
from callfuse.stores.server import Script, Server

PREFIX: Final = "callfuse:"
PROBE_S: Final = 1.0
"""How long a probe may take at least; it waits for a new connection, and nobody waits for it."""
FAREWELL_S: Final = 1.0
"""How long connections may take to close: those of TLS wait for the other side's word, which may never come."""
MOST_UNSENT: Final = 1000
"""Sessions whose commands are kept for a server that does not have them."""

READ: Final = Script("""
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and string.find(value.err, '^WRONGTYPE') then return '' end
  return value
end
local lane, key = get(KEYS[1]), KEYS[2]
if type(lane) == 'table' then return lane end
local name = lane and string.match(lane, '^([^\\n]+)\\n')
if name then key = string.sub(key, 1, #key - #ARGV[1]) .. name end
local session = get(key)
if type(session) == 'table' then return session end
if session then redis.call('PEXPIRE', key, ARGV[2]) end
return {lane, session}
""")
"""The value of a lane and that of its session, which then lives longer. KEYS: the lane's, and that of the session that
the lane names (ARGV[1]); the lane's value may begin with another name, whose key has the same tag."""
WRITE: Final = Script("""
for at, key in ipairs(KEYS) do redis.call('SET', key, ARGV[at + 1], 'PX', ARGV[1]) end
return #KEYS
""")
"""Set all keys, for so many milliseconds (ARGV[1])."""


Kept = TypeVar("Kept")


class RedisLedger:
    """Keeps lanes and sessions at `address` for `ttl_s` seconds after their last use; in `local` while that is down.

    `timeout_s` is how long an exchange waits for the server; `counts` has `store_errors` by operation, and
    `store_skipped`, the operations that were not tried because the circuit was open. `clock` gives seconds.
    """

    def __init__(
        self,
        address: Address,
        *,
        local: MemoryLedger,
        ttl_s: float,
        timeout_s: float,
        counts: Counts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._local = local
        self._ttl_ms = max(1, round(1000 * ttl_s))
        self._timeout_s = timeout_s
        self._counts = counts
        self._breaker = Breaker(clock)
        Server(address)  # raises ConfigError
        self._servers: dict[asyncio.AbstractEventLoop, Server] = {}
        self._probing: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._unsent: dict[SessionKey, SessionState] = {}

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """The state of a lane and what its session has set, from this process's memory where the server has nothing."""
        keys = lane_key(lane), session_key((lane.credential, lane.session))
        found = await self._ask("read", READ, keys, (lane.session, self._ttl_ms))
        if found is None:
            return await self._local.read(lane, now)
        there = self._decode(values.lane_state, found[0])
        if there is not None:
            await self._local.write({lane: there}, now)
        here, known = await self._local.read(lane, now)
        state = here if there is None else there
        if there is None and state.session:  # the server was not asked for this one
            return state, known
        session = lane.credential, state.session or lane.session
        kept = self._decode(values.session_state, found[1])
        if kept is not None:
            await self._local.write_session(session, kept, now)
            return state, kept
        if found[1] is None and (known.overrides or known.ran):
            self._keep_unsent(session, known)
        return state, known

    async def write(self, lanes: Mapping[Lane, LaneState], now: float) -> None:
        """Keep the states of lanes."""
        await self._local.write(lanes, now)
        found = {lane_key(lane): values.lane_value(state) for lane, state in lanes.items()}
        await self._ask("write", WRITE, *self._arguments(found))

    async def write_session(self, session: SessionKey, state: SessionState, now: float) -> None:
        """Keep what a session has set."""
        await self._local.write_session(session, state, now)
        found = await self._ask("write", WRITE, *self._of_session(session, state))
        self._unsent.pop(session, None)
        if found is None:
            self._keep_unsent(session, state)

    async def aclose(self) -> None:
        """Close the connections. Whoever asks again opens new ones."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # under another library nothing has been opened
            return
        if self._probing is not None and self._probing.get_loop() is loop:
            self._probing.cancel()
            await asyncio.wait([self._probing])
        await asyncio.gather(*(closing for closing in self._closing if closing.get_loop() is loop))
        if server := self._servers.pop(loop, None):
            await self._close(server)

    def _keep_unsent(self, session: SessionKey, state: SessionState) -> None:
        self._unsent[session] = state
        while len(self._unsent) > MOST_UNSENT:
            del self._unsent[next(iter(self._unsent))]

    def _of_session(self, session: SessionKey, state: SessionState) -> tuple[list[str], list[bytes | int]]:
        return self._arguments({session_key(session): values.session_value(state)})

    def _arguments(self, found: Mapping[str, bytes]) -> tuple[list[str], list[bytes | int]]:
        return [*found], [self._ttl_ms, *found.values()]

    def _decode(self, read: Callable[[bytes], Kept], value: bytes | None) -> Kept | None:
        """Decode a value; None if there is none, or if it cannot be read."""
        if value is None:
            return None
        try:
            return read(value)
        except values.UnreadableError:
            self._counts.add("store_errors", "value")
            return None

    async def _ask(
        self, operation: str, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int]
    ) -> Any:
        """Run a script; None if the server does not answer, or is not asked because the circuit is open."""
        loop = self._running_loop()
        if loop is None:
            return None
        server = self._servers.get(loop) or self._open(loop)
        if self._unsent or not self._breaker.closed:
            self._probe_if_due(server)
        if not self._breaker.closed:
            self._counts.add("store_skipped", operation)
            return None
        began = loop.time()
        with Boundary() as boundary:  # whatever the client library raises, the exchange goes on
            async with asyncio.timeout(self._timeout_s):
                return await server.run(script, keys, arguments)
        self._counts.add("store_errors", operation)
        # A timeout that comes late says that this process was busy, and nothing of the server.
        error = boundary.error
        if error and not (type(error) is TimeoutError and loop.time() - began > 2 * self._timeout_s):
            self._take_failure(error, server, loop)
        return None

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        """asyncio's; None under another library."""
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            if self._counts.add("store_errors", "loop") == 1:
                log.store_without_asyncio(self._address.shown)
            return None

    def _open(self, loop: asyncio.AbstractEventLoop) -> Server:
        """Make a server for this loop, and forget those of closed loops: threads may have a loop each."""
        for other in list(self._servers):
            if other.is_closed():
                self._servers.pop(other, None)
        self._servers[loop] = server = Server(self._address)
        return server

    def _take_failure(self, error: Exception, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        if server is self._servers.get(loop) and self._breaker.record_failure():
            log.store_down(self._address.shown, self._why(error))
            del self._servers[loop]
            closing = asyncio.create_task(self._close(server))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _why(self, error: Exception) -> str:
        if type(error) is TimeoutError:
            return f"no answer within {self._timeout_s:g} s"
        return f"{type(error).__name__}: {self._address.without_secrets(str(error))}"

    def _probe_if_due(self, server: Server) -> None:
        """Start a probe unless one is running: at the end of a pause if the circuit is open, else at once."""
        before = self._probing
        if before is not None and not before.done() and not before.get_loop().is_closed():
            return
        if self._breaker.closed or self._breaker.is_due():
            self._probing = asyncio.create_task(self._probe(server))

    async def _probe(self, server: Server) -> None:
        """Check that the server can write, send it what sessions have set meanwhile, and close the circuit."""
        with Boundary() as boundary:
            async with asyncio.timeout(max(PROBE_S, self._timeout_s)):
                await server.run(WRITE, [f"{PREFIX}{{probe}}"], [1, b""])
                while self._unsent:
                    session, state = next(iter(self._unsent.items()))
                    await server.run(WRITE, *self._of_session(session, state))
                    if self._unsent.get(session) is state:
                        del self._unsent[session]
        if boundary.error is not None:
            self._counts.add("store_errors", "probe")
            self._take_failure(boundary.error, server, asyncio.get_running_loop())
            return
        if not self._breaker.closed:
            self._breaker.close()
            log.store_up(self._address.shown)

    async def _close(self, server: Server) -> None:
        with Boundary():  # it is gone all the same
            async with asyncio.timeout(FAREWELL_S):
                await server.aclose()


def lane_key(lane: Lane) -> str:
    """The key of a lane."""
    names = (lane.session, lane.source, lane.agent, lane.fingerprint.hex())
    digest = blake2b("\n".join(names).encode(), digest_size=DIGEST_SIZE).hexdigest()
    return f"{PREFIX}{{{lane.credential.hex()}}}:lane:{digest}"


def session_key(session: SessionKey) -> str:
    """The key of what a session has set. Its name is plain text (`conversations/identity.py`)."""
    credential, name = session
    return f"{PREFIX}{{{credential.hex()}}}:session:{name}"
