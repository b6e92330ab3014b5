"""A ledger that processes share in a Redis or Valkey: one round trip to read and one to write an exchange. Findings go
there in the background, so that feedback on one may come to any process.

When a lane was last used is kept for a hundred times as long as the lane, in a small key of its own: no round that its
client still shows is younger.

A local `MemoryLedger` keeps a copy of what this process last read or wrote. If the server fails or does not answer in
time, a circuit breaker opens: exchanges use the histories in their requests and the local copy, without network, until
the server answers a background probe. The probe then sends what sessions have set meanwhile, and the server's values
count again. Values that it lacks, as after a flush, are read from the local copy.

People find sessions by their names through an index (`stores/index.py`), which is written in the background, too.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from callfuse.boundary import Boundary
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import (
    KeptSession,
    LaneState,
    Read,
    SessionKey,
    SessionState,
    StoreUnavailable,
    has_moved,
)
from callfuse.conversations.memory import BoundedLane, MemoryLedger
from callfuse.observe.bus import Bus
from callfuse.observe.events import StoreDown, StoreFailed, StoreSkipped, StoreUp, StoreWithoutLoop
from callfuse.stores import values
from callfuse.stores.address import Address
from callfuse.stores.breaker import Breaker
from callfuse.stores.index import INDEX, MOST, SessionIndex
from callfuse.stores.keys import PREFIX, finding_key, lane_key, last_use_key, session_key
from callfuse.stores.replies import Reader, Value, moved_of, read_value, values_of
from callfuse.stores.scripts import GET, READ, SWAP, WRITE
from callfuse.stores.server import RedisServer, Script, is_refusal

PROBE_TIMEOUT_S: Final = 1.0
"""The least time limit of a probe: it needs a new connection, and delays no exchange."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Time limit for closing connections: TLS waits for the peer's close_notify, which may never come."""
MAX_UNSENT: Final = 1000
"""Sessions whose settings are kept to be sent when the server is back; beyond that, the oldest are dropped."""

LONG_BYTES: Final = 64 * 1024
"""Longer values are encoded and decoded in a thread: 64 KB take 2 ms, the longest lane some hundred."""
FINDING_TTL_MS: Final = 24 * 3600 * 1000
"""How long findings are shared."""
MAX_SENDING: Final = 100
"""Findings that are on their way to the server at a time; further ones stay with their process."""
MAX_NOTING: Final = 50
"""How much may be on its way for a session to be noted, too; further ones are noted by a later exchange."""

Kept = TypeVar("Kept", LaneState, SessionState)
T = TypeVar("T")
Arguments = tuple[list[str], list[str | bytes | int]]
"""The keys of a script, and its other arguments."""


class RedisLedger:
    """A `Ledger` at `address`, with `local` while that is down. Raises ConfigError if redis-py refuses the URL.

    Lanes and sessions are kept for `ttl_s` seconds after their last use; an exchange waits `timeout_s` seconds for the
    server. `bus` gets each failure, and each operation that is skipped while the circuit is open.
    `clock` returns seconds.
    """

    def __init__(
        self,
        address: Address,
        *,
        local: MemoryLedger,
        ttl_s: float,
        timeout_s: float,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._local = local
        self._ttl_ms = max(1, round(1000 * ttl_s))
        self._timeout_s = timeout_s
        self._bus = bus
        self._breaker = Breaker(clock)
        RedisServer(address)  # raises ConfigError
        self._servers: dict[asyncio.AbstractEventLoop, RedisServer] = {}
        self._probing: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._unsent: dict[SessionKey, SessionState] = {}
        self._sending: set[asyncio.Task[Any]] = set()
        self._index = SessionIndex(self._demand, partial(self._decode, values.decode_session), ttl_s=ttl_s, clock=clock)

    def __len__(self) -> int:
        """The lanes of the local copy."""
        return len(self._local)

    def __bool__(self) -> bool:
        """It is a store, whether it holds anything or not."""
        return True

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """Read a lane and its session; from the local copy what the server lacks."""
        keys = lane_key(lane), session_key((lane.credential, lane.owner)), last_use_key(lane)
        found = await self._ask("read", READ, keys, (lane.owner, self._ttl_ms), values_of(3))
        if found is None:
            return await self._local.read(lane, now)
        there = await self._decode_lane(found[0])
        if there is not None:
            await self._local.write({lane: there}, now)
        here, known = await self._local.read(lane, now)
        state = here if there is None else there
        if there is None and here == LaneState(last_used=here.last_used):
            known_times = [time for time in (here.last_used, values.decode_time(found[2])) if time is not None]
            state = LaneState(last_used=max(known_times, default=None))
        if there is None and here.rounds:
            self._index.forget((lane.credential, here.session or lane.owner))
        if there is None and state.session:  # the script did not read the session that the local copy names
            return state, known
        session = lane.credential, state.session or lane.owner
        return state, await self._take_session(session, known, found[1], now)

    async def _take_session(
        self, session: SessionKey, known: SessionState, raw: bytes | None, now: float
    ) -> SessionState:
        """Take a session from the server's value; the `known` one of the local copy where that has none."""
        kept = self._decode(values.decode_session, raw)
        if kept is not None:
            await self._local.write_session(session, kept, now)
            if kept.overrides:
                self._note(session, now, has_set=True)
            return kept
        if raw is None and (known.overrides or known.by_code or known.ran):
            self._keep_unsent(session, known)
            self._index.forget(session)
        return known

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """Write lanes, to the local copy too."""
        for lane, state in lanes.items():
            self._note((lane.credential, state.session or lane.owner), now)
        bounded = self._local.bounded(lanes)
        moved = await self._write_there(bounded, now, read)
        if moved is None:
            return self._local.write_bounded(bounded, now, read)
        if moved and read is not None:
            return Read(
                read.lane,
                self._or_known(await self._decode_lane(moved[0]), moved[0], read.state),
                self._or_known(self._decode(values.decode_session, moved[1]), moved[1], read.session),
            )
        self._local.write_bounded(bounded, now)
        return None

    async def _write_there(
        self, lanes: Mapping[Lane, BoundedLane], now: float, read: Read | None
    ) -> list[Value] | None:
        """Write lanes to the server. Returns what it holds in place of what was read, empty if they are written; None
        if it fails."""
        checks: dict[str, LaneState | SessionState] = {}
        if read is not None:
            checks = {lane_key(read.lane): read.state, session_key(read.session_key): read.session}
        loop = self._running_loop()
        if loop is None:
            return None
        encode = partial(self._encode_lanes, lanes)
        found = await self._work(encode, sum(one.size for one in lanes.values()))
        last_uses = {last_use_key(lane): values.encode_time(now) for lane in lanes}
        return await self._ask("write", WRITE, *self._arguments(found, checks, last_uses), moved_of(len(checks)))

    async def write_session(
        self, session: SessionKey, state: SessionState, now: float, read: SessionState | None = None
    ) -> SessionState | None:
        """Write what a session has set, to the local copy too; kept for the probe if the server fails."""
        key = session_key(session)
        arguments = self._arguments({key: values.encode_session(state)}, {} if read is None else {key: read})
        moved = await self._ask("write", WRITE, *arguments, moved_of(read is not None))
        if moved and read is not None:
            return self._or_known(self._decode(values.decode_session, moved[0]), moved[0], read)
        there = await self._local.write_session(session, state, now, read if moved is None else None)
        if there is not None:
            return there
        self._unsent.pop(session, None)
        if moved is None:
            self._keep_unsent(session, state)
        self._note(session, now, has_set=bool(state.overrides))
        return None

    def index_sessions(self) -> None:
        """Note the sessions of this process from now on, so that any process finds them by their names."""
        self._index.is_kept = True

    async def sessions(self, now: float) -> list[KeptSession]:
        """List the last `MOST` sessions that have set something, the last used one first. Raises StoreUnavailable."""
        here = await self._local.sessions(now)
        if self._running_loop() is None:
            return here
        found = await self._index.read(_joined(here, await self._index.changed(now)), now)
        return sorted((one for one in found if one.state.overrides), key=lambda one: one.used, reverse=True)

    async def find_sessions(self, name: str, now: float) -> list[KeptSession]:
        """Find the last `MOST` sessions of this name. Raises StoreUnavailable."""
        here = await self._local.find_sessions(name, now)
        if self._running_loop() is None:
            return here
        return await self._index.read(_joined(here, await self._index.of_name(name, now)), now)

    async def write_sessions(
        self,
        states: Mapping[SessionKey, SessionState],
        now: float,
        read: Mapping[SessionKey, SessionState] | None = None,
    ) -> Mapping[SessionKey, SessionState]:
        """Write what sessions of one credential have set, in one script. Raises StoreUnavailable."""
        known = read or {}
        if self._running_loop() is not None:
            found = {session_key(session): values.encode_session(state) for session, state in states.items()}
            arguments = self._arguments(found, {session_key(session): one for session, one in known.items()})
            moved = await self._demand("write", WRITE, *arguments, moved_of(len(known)))
            pairs = zip(known.items(), moved, strict=False)
            there = {
                session: self._or_known(self._decode(values.decode_session, raw), raw, one)
                for (session, one), raw in pairs
            }
            if there:
                return {session: one for session, one in there.items() if has_moved(one, known[session])}
        for session, state in states.items():
            self._unsent.pop(session, None)
            await self._local.write_session(session, state, now)
            self._note(session, now, has_set=bool(state.overrides))
        return {}

    def share_finding(self, finding_id: str, value: bytes) -> None:
        """Send a finding to the server, in a task of its own: no exchange waits for that."""
        arguments: list[str | bytes | int] = [FINDING_TTL_MS, 0, 0, value]
        self._send(partial(self._ask, "finding", WRITE, [finding_key(finding_id)], arguments, moved_of(0)))

    async def shared_finding(self, finding_id: str) -> bytes | None:
        """What a process has sent of a finding; None if the server does not know it. Raises StoreUnavailable."""
        if self._running_loop() is None:
            return None
        return await self._demand("finding", GET, [finding_key(finding_id)], (), read_value)

    async def swap_feedback(self, finding_id: str, said: str) -> str:
        """Keep what is said of a finding; returns what was said before."""
        key = f"{finding_key(finding_id)}:said"
        before = await self._ask("finding", SWAP, [key], [FINDING_TTL_MS, said], read_value)
        return before.decode("utf-8", "replace") if before is not None else ""

    def start(self) -> None:
        """Look for the server in the background, so that one that cannot be reached is told before it is needed."""
        loop = self._running_loop()
        if loop is not None:
            server = self._servers.get(loop) or self._open(loop)
            self._probe_if_due(server)

    async def aclose(self) -> None:
        """Close the connections of this event loop. A later read or write opens new ones."""
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

    def _note(self, session: SessionKey, now: float, *, has_set: bool = False) -> None:
        """Note a session in the index, in the background."""
        if self._index.is_due(session, now, has_set=has_set):
            self._send(partial(self._index.note, session, now, has_set=has_set), MAX_NOTING)

    def _send(self, send: Callable[[], Coroutine[Any, Any, object]], most: int = MAX_SENDING) -> None:
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

    def _keep_unsent(self, session: SessionKey, state: SessionState) -> None:
        self._unsent[session] = state
        while len(self._unsent) > MAX_UNSENT:
            del self._unsent[next(iter(self._unsent))]

    def _arguments(
        self,
        found: Mapping[str, bytes],
        checks: Mapping[str, LaneState | SessionState] | None = None,
        lasting: Mapping[str, bytes] | None = None,
    ) -> Arguments:
        """The arguments of `WRITE`: values by key, what was read under the keys that are to be checked, and values that
        stay longer."""
        checks, lasting = checks or {}, lasting or {}
        revisions = [one.revision for one in checks.values()]
        values_set = [*found.values(), *lasting.values()]
        return [*checks, *found, *lasting], [self._ttl_ms, len(checks), len(lasting), *revisions, *values_set]

    @staticmethod
    def _encode_lanes(lanes: Mapping[Lane, BoundedLane]) -> dict[str, bytes]:
        return {lane_key(lane): values.encode_lane(one.state) for lane, one in lanes.items()}

    async def _decode_lane(self, value: Value) -> LaneState | None:
        """Decode the value of a lane as `_decode` does: in a thread, if it is long."""
        return await self._work(partial(self._decode, values.decode_lane, value), len(value or b""))

    @staticmethod
    async def _work(work: Callable[[], T], size: int) -> T:
        """Do work on a value of so many bytes, in a thread if it is long."""
        return work() if size <= LONG_BYTES else await asyncio.to_thread(work)

    def _decode(self, read: Callable[[bytes], Kept], value: Value) -> Kept | None:
        """Decode a value; None if it is missing, or unreadable, which is counted."""
        if value is None:
            return None
        try:
            return read(value)
        except values.UnreadableError:
            self._bus.emit(StoreFailed(self._address.label, "value"))
            return None

    @staticmethod
    def _or_known(there: Kept | None, value: Value, known: Kept) -> Kept:
        """What is there; where that is nothing or unreadable, what is known, as if it were that."""
        return there or (known if value is None else replace(known, revision=values.revision_of(value)))

    async def _ask(
        self,
        operation: str,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
        read: Reader[T],
    ) -> T | None:
        """Run a script and read its reply; None if the server fails, or if the circuit is open."""
        loop = self._running_loop()
        return None if loop is None else (await self._try(loop, operation, script, keys, arguments, read))[0]

    async def _demand(
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
            raise StoreUnavailable(f"the store {self._address.label} does not answer as it should: {problem}")
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
        """Run a script; what is read of its reply, and why there is none."""
        server = self._servers.get(loop) or self._open(loop)
        if self._unsent or not self._breaker.closed:
            self._probe_if_due(server)
        if not self._breaker.closed:
            self._bus.emit(StoreSkipped(self._address.label, operation))
            return None, "it is down, and is tried again now and then"
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

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
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
        """Check that the server can write, send it the unsent sessions, and close the circuit."""
        with Boundary() as boundary:
            async with asyncio.timeout(max(PROBE_TIMEOUT_S, self._timeout_s)):
                await touch(server)
                while self._unsent:
                    session, state = next(iter(self._unsent.items()))
                    await server.run(WRITE, *self._arguments({session_key(session): values.encode_session(state)}))
                    if self._unsent.get(session) is state:
                        del self._unsent[session]
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


def _joined(here: Iterable[KeptSession], there: Mapping[SessionKey, float]) -> list[KeptSession]:
    """The last used `MOST` sessions of which this process or the index knows."""
    known = {session: KeptSession(session, SessionState(), used) for session, used in there.items()}
    for one in here:
        known[one.key] = one._replace(used=max(one.used, there.get(one.key, one.used)))
    return sorted(known.values(), key=lambda one: one.used, reverse=True)[:MOST]


async def touch(server: RedisServer) -> None:
    """Check that a server can write, with a value that is gone at once. Raises what the client library raises."""
    await server.run(WRITE, [f"{PREFIX}{{probe}}"], [1, 0, 0, b""])
