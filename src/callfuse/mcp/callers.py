"""Keep the callers that one middleware knows, bounded in number, bytes and time. The least recently used one is dropped
first."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from callfuse.config import Config
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import TIMES_KEPT
from callfuse.conversations.memory import Shelf
from callfuse.mcp.caller import Caller
from callfuse.mcp.identity import SESSION
from callfuse.observe.bus import Bus
from callfuse.observe.events import LedgerDropped, Where
from callfuse.observe.labels import MCP


@dataclass(frozen=True, slots=True)
class KnownCaller:
    """A caller with its lock, which must be held to work on its calls, because threads may do the work."""

    lane: Lane
    caller: Caller
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock for a few steps that must complete even if the client leaves and the task is cancelled."""
        try:
            self.lock.acquire_nowait()  # in most cases, without waiting
        except anyio.WouldBlock:
            with anyio.CancelScope(shield=True):
                await self.lock.acquire()
        try:
            yield
        finally:
            self.lock.release()

    @property
    def is_session(self) -> bool:
        """Whether the caller is known only by its transport session, so it cannot outlast that."""
        return self.lane.source == SESSION.decode()


class Callers:
    """The callers by lane, within `max_sessions`, `max_ledger_bytes` and ten times `ttl_seconds`. `clock` returns
    seconds."""

    def __init__(self, config: Config, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        settings = config.tool_call_loop
        self._config = config
        self._bus = bus
        self._clock = clock
        self._ttl_s = TIMES_KEPT * settings.ttl_seconds
        self._shelf: Shelf[Lane, KnownCaller] = Shelf(
            settings.max_sessions,
            settings.max_ledger_bytes,
            self._ttl_s,
            lambda limit: bus.emit(LedgerDropped(limit)),
        )

    def __len__(self) -> int:
        return len(self._shelf.entries)

    @property
    def size(self) -> int:
        """The approximate bytes that the callers take."""
        return self._shelf.size

    def find(self, lane: Lane) -> KnownCaller | None:
        """Return the caller of a lane; None if it is unknown or forgotten."""
        used, known, _ = self._shelf.entries.get(lane, (0.0, None, 0))
        return known if known is not None and self._clock() - used <= self._ttl_s else None

    def of(self, lane: Lane) -> KnownCaller:
        """Return the caller of a lane, and create it if it is unknown."""
        known = self.find(lane)
        if known is None:
            where = Where(lane.session, lane.source, lane.tag, "", MCP, MCP)
            known = KnownCaller(lane, Caller(self._config, where, self._bus, self._clock))
            self.keep(known)
        return known

    def keep(self, known: KnownCaller) -> None:
        """Store a caller with its current calls."""
        self._shelf.keep(known.lane, known, known.caller.size, self._clock())

    def forget(self, lane: Lane) -> None:
        """Forget a caller."""
        self._shelf.drop(lane)
