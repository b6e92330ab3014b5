"""Share a ledger in a Redis or Valkey: one round trip to read and one to write an exchange. Findings are sent there in
the background, so that any process can take feedback on them.

A local `MemoryLedger` keeps a copy of the values that this process last read or wrote. If the server fails or does not
answer in time, a circuit breaker opens: exchanges use the histories in their requests and the local copy, without
network, until the server answers a background probe. The probe then sends settings that sessions changed meanwhile, and
the server's values are used again. Values that it lacks, for example after a flush, are read from the local copy.

The time of a lane's last use is kept in a small key of its own, a hundred times as long as the lane: rounds that the
client still shows cannot be newer.

People find sessions by their names through an index (`stores/index.py`), which is written in the background, too.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Final, NamedTuple, TypeVar

from callfuse.conversations.identity import Lane
from callfuse.conversations.joining import joined_lane, joined_session
from callfuse.conversations.ledger import (
    KeptSession,
    LaneState,
    Read,
    SessionKey,
    SessionState,
    StoreUnavailable,
    has_moved,
    next_revision,
)
from callfuse.conversations.memory import BoundedLane, MemoryLedger
from callfuse.observe.bus import Bus
from callfuse.observe.events import StoreFailed
from callfuse.stores import values
from callfuse.stores.address import Address
from callfuse.stores.ahead import LanesAhead
from callfuse.stores.connection import Connection
from callfuse.stores.index import MOST, SessionIndex
from callfuse.stores.keys import finding_key, lane_key, last_use_key, session_key
from callfuse.stores.replies import Value, moved_of, read_value, values_of
from callfuse.stores.scripts import GET, READ, SWAP, WRITE
from callfuse.stores.server import RedisServer

MAX_UNSENT: Final = 1000
"""The most sessions whose settings wait to be sent when the server is back; the oldest are dropped."""

LONG_BYTES: Final = 64 * 1024
"""Longer values are encoded and decoded in a thread: 64 KB take 2 ms, the longest lane a few hundred."""
FINDING_TTL_MS: Final = 24 * 3600 * 1000
"""How long findings are shared."""
MOST_TRIES: Final = 8
"""How often a probe tries to send a session's settings, if other processes write first."""
MAX_NOTING: Final = 50
"""The most background sends with which a session is still noted. With more, a later exchange notes it."""

Kept = TypeVar("Kept", LaneState, SessionState)
T = TypeVar("T")
Arguments = tuple[list[str], list[str | bytes | int]]
"""The keys of a script, and its other arguments."""


class Unsent(NamedTuple):
    """Settings of a session that the server lacks, and when they were set. `before`: the server's state."""

    before: SessionState
    state: SessionState
    now: float


class RedisLedger:
    """A `Ledger` at `address`, with `local` as fallback while the server is down. Raises ConfigError if redis-py
    refuses the URL.

    Lanes and sessions are kept for `ttl_s` seconds after their last use, and budget use to the end of its period. An
    exchange waits `timeout_s` seconds for the server. `bus` gets each failure, and each operation that is skipped while
    the circuit is open. `clock` returns seconds.
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
        self._bus = bus
        self._unsent: dict[SessionKey, Unsent] = {}
        self._ahead = LanesAhead()
        self._connection = Connection(
            address,
            timeout_s=timeout_s,
            bus=bus,
            clock=clock,
            is_behind=self._is_behind,
            catch_up=self._send_unsent,
        )
        self._index = SessionIndex(
            self._connection.demand, partial(self._decode, values.decode_session), ttl_s=ttl_s, clock=clock
        )

    def __len__(self) -> int:
        """Return the number of lanes in the local copy."""
        return len(self._local)

    def __bool__(self) -> bool:
        """Return True: an empty ledger is a ledger, too."""
        return True

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """Read a lane and its session. The local copy is used for values that the server lacks, or that this process
        wrote meanwhile."""
        keys = lane_key(lane), session_key((lane.credential, lane.owner)), last_use_key(lane)
        before = Read(lane, *await self._local.read(lane, now))
        found = await self._connection.ask("read", READ, keys, (lane.owner, self._ttl_ms), values_of(3))
        if found is None:
            return await self._local.read(lane, now)
        there = await self._take_lane(before, found[0], now)
        here, known = await self._local.read(lane, now)
        state = here if there is None else there
        if there is None and here == LaneState(last_used=here.last_used):
            known_times = [time for time in (here.last_used, values.decode_time(found[2])) if time is not None]
            state = LaneState(last_used=max(known_times, default=None))
        if there is None and here.rounds:
            self._index.forget((lane.credential, here.session or lane.owner))
        if there is None and state.session:  # only the local copy names a session, so the script did not read it
            return state, known
        session = lane.credential, state.session or lane.owner
        if session == before.session_key and has_moved(known, before.session):
            return state, known
        return state, await self._take_session(session, known, found[1], now)

    async def _take_lane(self, before: Read, value: Value, now: float) -> LaneState | None:
        """Take a lane from the server's value, or from the local copy if that differs from `before`. None if the server
        has none."""
        there = await self._decode_lane(value)
        if there is None:
            return None
        here, _ = await self._local.read(before.lane, now)
        if has_moved(here, before.state):
            return here
        if values.is_foreign(value, readable=True):
            return replace(joined_lane(there, here, None), revision=here.revision)
        state = self._ahead.join(before.lane, there, here)
        await self._local.write({before.lane: state}, now)
        return state

    async def _take_session(
        self, session: SessionKey, known: SessionState, raw: bytes | None, now: float
    ) -> SessionState:
        """Take a session from the server's value, or the `known` one of the local copy if the server has none."""
        kept = self._decode(values.decode_session, raw)
        if kept is not None and values.is_foreign(raw, readable=True):
            return replace(joined_session(kept, known, SessionState()), revision=known.revision)
        if kept is not None:
            unsent = self._unsent.get(session)
            if unsent is not None:
                kept = joined_session(kept, unsent.state, unsent.before)
            await self._local.write_session(session, kept, now)
            if kept.overrides:
                self._note(session, now, has_set=True)
            return kept
        if raw is None and (known.overrides or known.by_code or known.ran):
            self._keep_unsent(session, Unsent(SessionState(), known, now))
            self._index.forget(session)
        return known

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """Write lanes, also to the local copy."""
        for lane, state in lanes.items():
            self._note((lane.credential, state.session or lane.owner), now)
        bounded = self._local.bounded(lanes)
        moved = await self._write_there(bounded, now, read)
        if moved is None:
            return self._write_here(bounded, now, read)
        if moved and read is not None:
            found = await self._decode_lane(moved[0])
            if values.is_foreign(moved[0], readable=found is not None):
                return self._write_here(bounded, now, read)
            there = self._or_known(found, moved[0], read.state)
            if read.lane in self._ahead:
                there = self._ahead.join(read.lane, there, (await self._local.read(read.lane, now))[0])
            session = self._or_known(self._decode(values.decode_session, moved[1]), moved[1], read.session)
            return Read(read.lane, there, session)
        self._local.write_bounded(bounded, now)
        for lane in bounded:
            self._ahead.settle(lane)
        return None

    def _write_here(self, lanes: Mapping[Lane, BoundedLane], now: float, read: Read | None) -> Read | None:
        """Write lanes only to the local copy, which is then ahead of the server."""
        there = self._local.write_bounded(lanes, now, read)
        for lane in lanes if there is None else ():
            self._ahead.note(lane, read.state if read is not None and read.lane == lane else None)
        return there

    async def _write_there(
        self, lanes: Mapping[Lane, BoundedLane], now: float, read: Read | None
    ) -> list[Value] | None:
        """Write lanes to the server. Returns the server's values if they changed since they were read, an empty list if
        the lanes are written, and None if the server fails."""
        checks: dict[str, LaneState | SessionState] = {}
        if read is not None:
            checks = {lane_key(read.lane): read.state, session_key(read.session_key): read.session}
        loop = self._connection.running_loop()
        if loop is None:
            return None
        encode = partial(self._encode_lanes, lanes)
        found = await self._work(encode, sum(one.size for one in lanes.values()))
        until = max([one.state.spent.until for one in lanes.values()], default=0.0)
        last_uses = {} if until else {last_use_key(lane): values.encode_time(now) for lane in lanes}
        ttl_ms = max(self._ttl_ms, round(1000 * (until - now)))
        arguments = self._arguments(found, checks, last_uses, ttl_ms)
        return await self._connection.ask("write", WRITE, *arguments, moved_of(len(checks)))

    async def write_session(
        self, session: SessionKey, state: SessionState, now: float, read: SessionState | None = None
    ) -> SessionState | None:
        """Write a session's settings, also to the local copy. If the server fails, the probe sends them later."""
        key = session_key(session)
        arguments = self._arguments({key: values.encode_session(state)}, {} if read is None else {key: read})
        moved = await self._connection.ask("write", WRITE, *arguments, moved_of(read is not None))
        found = self._decode(values.decode_session, moved[0]) if moved else None
        is_foreign = values.is_foreign(moved[0] if moved else None, readable=found is not None)
        if moved and read is not None and not is_foreign:
            return self._or_known(found, moved[0], read)
        there = await self._local.write_session(session, state, now, read if moved is None else None)
        if there is not None:
            return there
        if is_foreign:
            return None
        if moved is None:
            self._keep_unsent(session, Unsent(SessionState() if read is None else read, state, now))
        else:
            self._unsent.pop(session, None)
        self._note(session, now, has_set=bool(state.overrides))
        return None

    def index_sessions(self) -> None:
        """Note the sessions of this process from now on, so that any process can find them by name."""
        self._index.is_kept = True

    async def sessions(self, now: float) -> list[KeptSession]:
        """List the last `MOST` sessions with changed settings, the last used one first. Raises StoreUnavailable."""
        here = await self._local.sessions(now)
        if self._connection.running_loop() is None:
            return here
        found = await self._index.read(_joined(here, await self._index.changed(now)), now)
        return sorted((one for one in found if one.state.overrides), key=lambda one: one.used, reverse=True)

    async def find_sessions(self, name: str, now: float) -> list[KeptSession]:
        """Find the last `MOST` sessions of this name. Raises StoreUnavailable."""
        here = await self._local.find_sessions(name, now)
        if self._connection.running_loop() is None:
            return here
        return await self._index.read(_joined(here, await self._index.of_name(name, now)), now)

    async def write_sessions(
        self,
        states: Mapping[SessionKey, SessionState],
        now: float,
        read: Mapping[SessionKey, SessionState] | None = None,
    ) -> Mapping[SessionKey, SessionState]:
        """Write the settings of sessions of one credential, in one script. Raises StoreUnavailable."""
        known = read or {}
        if self._connection.running_loop() is not None:
            found = {session_key(session): values.encode_session(state) for session, state in states.items()}
            arguments = self._arguments(found, {session_key(session): one for session, one in known.items()})
            moved = await self._connection.demand("write", WRITE, *arguments, moved_of(len(known)))
            pairs = zip(known.items(), moved, strict=False)
            there = {}
            for (session, one), raw in pairs:
                state = self._decode(values.decode_session, raw)
                if values.is_foreign(raw, readable=state is not None):
                    raise StoreUnavailable(f"the session {session[1]} was set by a newer version of callfuse")
                there[session] = self._or_known(state, raw, one)
            if there:
                return {session: one for session, one in there.items() if has_moved(one, known[session])}
        for session, state in states.items():
            self._unsent.pop(session, None)
            await self._local.write_session(session, state, now)
            self._note(session, now, has_set=bool(state.overrides))
        return {}

    def share_finding(self, finding_id: str, value: bytes) -> None:
        """Send a finding to the server, in a task of its own, so that no exchange waits for it."""
        arguments: list[str | bytes | int] = [FINDING_TTL_MS, 0, 0, value]
        key = finding_key(finding_id)
        self._connection.send(partial(self._connection.ask, "finding", WRITE, [key], arguments, moved_of(0)), key)

    async def shared_finding(self, finding_id: str) -> bytes | None:
        """Return a finding as a process sent it; None if the server does not have it. Raises StoreUnavailable."""
        if self._connection.running_loop() is None:
            return None
        return await self._connection.demand("finding", GET, [finding_key(finding_id)], (), read_value)

    async def swap_feedback(self, finding_id: str, said: str) -> str:
        """Keep a rating of a finding. Returns the previous rating."""
        key = f"{finding_key(finding_id)}:said"
        before = await self._connection.ask("finding", SWAP, [key], [FINDING_TTL_MS, said], read_value)
        return before.decode("utf-8", "replace") if before is not None else ""

    def start(self) -> None:
        """Probe the server in the background, so that a failure is reported before the first exchange."""
        self._connection.start()

    async def aclose(self) -> None:
        """Close the connections of this event loop. A later read or write opens new ones."""
        await self._connection.aclose()

    def _note(self, session: SessionKey, now: float, *, has_set: bool = False) -> None:
        """Note a session in the index, in the background."""
        if self._index.is_due(session, now, has_set=has_set):
            send = partial(self._index.note, session, now, has_set=has_set)
            self._connection.send(send, session_key(session), MAX_NOTING)

    def _keep_unsent(self, session: SessionKey, unsent: Unsent) -> None:
        earlier = self._unsent.pop(session, unsent)
        self._unsent[session] = unsent._replace(before=earlier.before)
        while len(self._unsent) > MAX_UNSENT:
            del self._unsent[next(iter(self._unsent))]

    def _is_behind(self, server: RedisServer, place: str) -> bool:
        """Whether settings of sessions wait to be sent to a place."""
        return any(server.place_of(session_key(session)) == place for session in self._unsent)

    async def _send_unsent(self, server: RedisServer, place: str) -> None:
        """Send a place the settings that its sessions changed while it was down."""
        for session, unsent in list(self._unsent.items()):
            if server.place_of(session_key(session)) == place:
                await self._send_session(server, session, unsent)
                if self._unsent.get(session) is unsent:
                    del self._unsent[session]

    async def _send_session(self, server: RedisServer, session: SessionKey, unsent: Unsent) -> None:
        """Send the server a session's settings, joined with those of other processes."""
        key, known, state = session_key(session), unsent.before, unsent.state
        for _ in range(MOST_TRIES):
            arguments = self._arguments({key: values.encode_session(state)}, {key: known})
            moved = moved_of(1)(await server.run(WRITE, *arguments))
            if not moved:
                break
            found = self._decode(values.decode_session, moved[0])
            if values.is_foreign(moved[0], readable=found is not None):
                break
            known = self._or_known(found, moved[0], known)
            revision = next_revision(known.revision, token_hex(8))
            state = replace(joined_session(known, unsent.state, unsent.before), revision=revision)
            await self._local.write_session(session, state, unsent.now)

    def _arguments(
        self,
        found: Mapping[str, bytes],
        checks: Mapping[str, LaneState | SessionState] | None = None,
        lasting: Mapping[str, bytes] | None = None,
        ttl_ms: int | None = None,
    ) -> Arguments:
        """Return the arguments of `WRITE`. `found`: values by key; `checks`: states as read, for keys to check;
        `lasting`: values that are kept longer; `ttl_ms`: the lifetime of the others."""
        checks, lasting = checks or {}, lasting or {}
        revisions = [one.revision for one in checks.values()]
        values_set = [*found.values(), *lasting.values()]
        return [*checks, *found, *lasting], [ttl_ms or self._ttl_ms, len(checks), len(lasting), *revisions, *values_set]

    @staticmethod
    def _encode_lanes(lanes: Mapping[Lane, BoundedLane]) -> dict[str, bytes]:
        return {lane_key(lane): values.encode_lane(one.state) for lane, one in lanes.items()}

    async def _decode_lane(self, value: Value) -> LaneState | None:
        """Decode the value of a lane as `_decode` does: in a thread, if it is long."""
        return await self._work(partial(self._decode, values.decode_lane, value), len(value or b""))

    @staticmethod
    async def _work(work: Callable[[], T], size: int) -> T:
        """Do work on a value of `size` bytes, in a thread if it is long."""
        return work() if size <= LONG_BYTES else await asyncio.to_thread(work)

    def _decode(self, read: Callable[[bytes], Kept], value: Value) -> Kept | None:
        """Decode a value; None if it is missing or unreadable. Unreadable values are counted, those of newer versions
        separately."""
        if value is None:
            return None
        found: Kept | None = None
        with suppress(values.UnreadableError):
            found = read(value)
        if values.is_foreign(value, readable=found is not None):
            self._bus.emit(StoreFailed(self._address.label, StoreFailed.NEWER))
        elif found is None:
            self._bus.emit(StoreFailed(self._address.label, "value"))
        return found

    @staticmethod
    def _or_known(there: Kept | None, value: Value, known: Kept) -> Kept:
        """Return the server's state, or the `known` one, with the revision of an unreadable value."""
        return there or (known if value is None else replace(known, revision=values.revision_of(value)))


def _joined(here: Iterable[KeptSession], there: Mapping[SessionKey, float]) -> list[KeptSession]:
    """Return the last `MOST` sessions that this process or the index knows."""
    known = {session: KeptSession(session, SessionState(), used) for session, used in there.items()}
    for one in here:
        known[one.key] = one._replace(used=max(one.used, there.get(one.key, one.used)))
    return sorted(known.values(), key=lambda one: one.used, reverse=True)[:MOST]
