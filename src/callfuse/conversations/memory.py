"""A ledger in the memory of this process, bounded in entries, bytes and time."""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptSession, LaneState, Read, SessionKey, SessionState, has_moved
from callfuse.conversations.size import bounded_lane, size_of_session

K = TypeVar("K")
V = TypeVar("V")

MAX_BYTES: Final = 256 * 1024 * 1024
"""The default limit, in bytes, for all lanes; an eighth of it is the limit for all sessions."""
SHARE_OF_SESSIONS: Final = 8
SHARE_OF_PERIODS: Final = 8
FORGOTTEN_PER_LANE: Final = 4
"""For each lane that may be kept, so many dropped lanes keep the time of their last use, in about 150 bytes each."""
_FINGERPRINT_END: Final = re.compile(r"\.[0-9a-f]{32}")
_NOTHING_KEPT: Final = LaneState()
_NOTHING_SET: Final = SessionState()


class BoundedLane(NamedTuple):
    """The state of a lane within the limit, its size in bytes, and the `whole` state before it was shortened."""

    state: LaneState
    size: int
    whole: LaneState


class MemoryLedger:
    """A `Ledger` in the memory of this process, which drops the least recently used entries first.

    At most `max_lanes` lanes and as many sessions are kept, for `ttl_s` seconds after their last use; lanes take at
    most `max_bytes` bytes (an estimate), and sessions an eighth of it. `on_drop` is called, with the name of the limit,
    for each lane or session that is dropped before it expires, and for each lane that is too long and loses rounds.

    Amounts spent in a period are kept until the period ends, up to an eighth of the bytes.

    For the last 4 * `max_lanes` dropped lanes, the time of their last use is kept: a client may still send their
    rounds, and nothing else distinguishes these from rounds of a conversation that is new here.
    """

    def __init__(
        self,
        *,
        max_lanes: int,
        ttl_s: float,
        max_bytes: int = MAX_BYTES,
        on_drop: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._ttl_s = ttl_s
        self._on_drop = on_drop
        self._lanes: Shelf[Lane, LaneState] = Shelf(max_lanes, max_bytes, ttl_s, on_drop, self._forget)
        self._lasting: Shelf[Lane, LaneState] = Shelf(max_lanes, max_bytes // SHARE_OF_PERIODS, 0, on_drop)
        self._forgotten: OrderedDict[int, float] = OrderedDict()
        self._max_forgotten = FORGOTTEN_PER_LANE * max_lanes
        self._sessions: Shelf[SessionKey, SessionState] = Shelf(
            max_lanes, max_bytes // SHARE_OF_SESSIONS, ttl_s, on_drop
        )

    def __len__(self) -> int:
        return len(self._lanes.entries)

    @property
    def size(self) -> int:
        """The approximate number of bytes that the lanes and sessions take."""
        return self._lanes.size + self._lasting.size + self._sessions.size

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """Read the state of a lane and of its session; empty if older than `ttl_s`."""
        state = self._lanes.find(lane, now)
        if state is None and self._lasting.entries:
            state = self._lasting.find(lane, now)
        if state is None:
            gone = self._last_use_of(lane)
            state = _NOTHING_KEPT if gone is None else LaneState(last_used=gone)
        if not self._sessions.entries:  # most processes never see a command
            return state, _NOTHING_SET
        return state, self._session((lane.credential, state.session or lane.owner), now)

    def _session(self, key: SessionKey, now: float) -> SessionState:
        entries = self._sessions.entries
        used, state, size = entries.get(key, (now, _NOTHING_SET, 0))
        if state is _NOTHING_SET or now - used > self._ttl_s:
            return _NOTHING_SET
        entries[key] = now, state, size
        entries.move_to_end(key)
        return state

    def _last_use_of(self, lane: Lane) -> float | None:
        """Return when a dropped lane was last used; None if that is unknown."""
        entry = self._lanes.entries.get(lane)
        return self._forgotten.get(hash(lane)) if entry is None else entry[0]

    def _forget(self, lane: Lane, used: float) -> None:
        """Keep the time when a dropped lane was last used."""
        self._forgotten[hash(lane)] = used
        self._forgotten.move_to_end(hash(lane))
        if len(self._forgotten) > self._max_forgotten:
            self._forgotten.popitem(last=False)

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """Write lanes. Expired ones, and the least recently used beyond a limit, are dropped."""
        return self.write_bounded(self.bounded(lanes), now, read)

    def bounded(self, lanes: Mapping[Lane, LaneState]) -> dict[Lane, BoundedLane]:
        """Return the lanes within their limits."""
        return {lane: BoundedLane(*bounded_lane(lane, state), state) for lane, state in lanes.items()}

    def write_bounded(self, lanes: Mapping[Lane, BoundedLane], now: float, read: Read | None = None) -> Read | None:
        """Write lanes that are bounded already."""
        if read is not None and (there := self._moved(read, now)) is not None:
            return there
        for lane, (kept, size, whole) in lanes.items():
            if kept is not whole:
                self._on_drop("lane")
            until = kept.spent.until
            shelf, other = (self._lasting, self._lanes) if until else (self._lanes, self._lasting)
            shelf.keep(lane, kept, size, now, until)
            if lane in other.entries:
                other.drop(lane)
        return None

    def _moved(self, read: Read, now: float) -> Read | None:
        """Return the current state if it has moved since it was `read`. A dropped state has not moved."""
        lasting = self._lasting.find(read.lane, now) if self._lasting.entries else None
        there = Read(
            read.lane,
            self._lanes.find(read.lane, now) or lasting or read.state,
            self._sessions.find(read.session_key, now) or read.session,
        )
        return there if has_moved(there.state, read.state) or has_moved(there.session, read.session) else None

    async def write_session(
        self, session: SessionKey, state: SessionState, now: float, read: SessionState | None = None
    ) -> SessionState | None:
        """Write a session. Sessions are dropped as lanes are."""
        there = self._sessions.find(session, now)
        if read is not None and there is not None and has_moved(there, read):
            return there
        self._sessions.keep(session, state, size_of_session(state), now)
        return None

    async def sessions(self, now: float) -> list[KeptSession]:
        """List the sessions with settings of their own, the last used one first."""
        kept = reversed(self._sessions.entries.items())
        return [
            KeptSession(key, state, used)
            for key, (used, state, _) in kept
            if (state.overrides or state.by_code) and now - used <= self._ttl_s
        ]

    async def find_sessions(self, name: str, now: float) -> list[KeptSession]:
        """Find the sessions of this name. Reads every lane, so it is for people, not for requests."""
        used_at: dict[SessionKey, float] = {}
        for lane, (used, lane_state, _) in self._lanes.entries.items():
            key = lane.credential, lane_state.session or lane.owner
            used_at[key] = max(used, used_at.get(key, used))
        set_ = self._sessions.entries
        for key, (used, _, _) in set_.items():
            used_at[key] = max(used, used_at.get(key, used))
        found = [key for key, used in used_at.items() if is_of_name(key[1], name) and now - used <= self._ttl_s]
        return [KeptSession(key, set_.get(key, (0.0, _NOTHING_SET, 0))[1], used_at[key]) for key in found]


class Shelf(Generic[K, V]):
    """Entries by key with the time of their last use and their size in bytes, the least recently used one first.

    `on_gone` is called for each entry that expires or exceeds a limit, with its key and the time of its last use.
    """

    def __init__(
        self,
        max_entries: int,
        max_bytes: int,
        ttl_s: float,
        on_drop: Callable[[str], object],
        on_gone: Callable[[K, float], object] = lambda _key, _used: None,
    ) -> None:
        self.entries: OrderedDict[K, tuple[float, V, int]] = OrderedDict()
        self.size = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._on_drop = on_drop
        self._on_gone = on_gone

    def keep(self, key: K, value: V, size: int, now: float, until: float = 0.0) -> None:
        """Put an entry at the end, and drop entries that are too old or too many. `until`: the time from which the
        entry's age counts, if later than `now`."""
        before = self.entries.get(key)
        self.size += size - (before[2] if before else 0)
        self.entries[key] = max(now, until), value, size
        self.entries.move_to_end(key)
        while self.entries and now - next(iter(self.entries.values()))[0] > self._ttl_s:
            self._drop_first()
        while len(self.entries) > self._max_entries:
            self._drop_first()
            self._on_drop("max_sessions")
        while self.size > self._max_bytes:
            self._drop_first()
            self._on_drop("max_ledger_bytes")

    def find(self, key: K, now: float) -> V | None:
        """Return the value of an entry; None if there is none, or if it is too old."""
        used, value, _ = self.entries.get(key, (now, None, 0))
        return None if now - used > self._ttl_s else value

    def drop(self, key: K) -> None:
        """Drop an entry, if it is there."""
        _, _, size = self.entries.pop(key, (0.0, None, 0))
        self.size -= size

    def _drop_first(self) -> None:
        key, (used, _, size) = self.entries.popitem(last=False)
        self.size -= size
        self._on_gone(key, used)


def is_of_name(session: str, name: str) -> bool:
    """Whether a session has this name, alone or followed by a fingerprint, as in sessions with a cache key."""
    return session == name or (session.startswith(name) and bool(_FINGERPRINT_END.fullmatch(session, len(name))))
