"""Keep the events of findings: in a SQLite file, in a stream of the shared store, or in memory.

    keeper = keep_findings(middleware)       # a sink, added to the middleware's bus
    await keeper.ask(lambda table: table.listed(query))

| kept in | how |
|---|---|
| a file (`findings.path`) | a thread writes new events; other processes may write the same file |
| a stream of the store | a task sends new events; a query reads those of all processes into a table in memory |
| memory | new events wait for a query, or until there are many of them |

No exchange waits for this. Events that cannot be written wait, within bounds, and are tried again with the next
finding.
"""

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import finalize

from anyio import to_thread

from callfuse.asgi import CallFuseMiddleware
from callfuse.boundary import Boundary
from callfuse.errors import ConfigError
from callfuse.findings.table import MEMORY, MOST, MOST_IN_MEMORY, FindingsTable, WrongFileError
from callfuse.observe.background import Background
from callfuse.observe.events import ActionTaken, CourseMended, Event, FeedbackGiven, FindingSeen, LoopBegan
from callfuse.observe.feed import BATCH, Relay
from callfuse.observe.kept import EventKeeper, KeptEvent
from callfuse.observe.reading import read_fields
from callfuse.observe.ring import EventId, read_id
from callfuse.observe.settings import FindingsSettings
from callfuse.stores import open_relay
from callfuse.stores.keys import FINDINGS

MOST_WAITING: Final = 5000
"""The most events that wait to be written; the oldest are dropped."""
MANY: Final = 500
"""The most events that wait in memory for the first query."""
LINGER_S: Final = 30.0
"""How long a connection to the store is kept without new findings."""
PAUSE_S: Final = 0.2
"""The pause between two sends."""

logger: Final = logging.getLogger("callfuse")
T = TypeVar("T")


class FindingsUnavailable(Exception):
    """Raised if the file cannot be read or written at present. The message says why."""


class FindingsKeeper:
    """A sink that keeps findings, and later events about them. Raises ConfigError for an unusable file.

    `content`: what is kept of calls, by `admin.content`. `relay`: the stream of a shared store, if there is a store and
    no file. `clock`: Unix seconds. `dropped`: the number of events that could not be kept. `alone`: the store is down,
    so only the findings of this process are known.
    """

    kinds: Final = frozenset({FindingSeen, LoopBegan, ActionTaken, CourseMended, FeedbackGiven})

    def __init__(
        self,
        settings: FindingsSettings,
        content: str = "short",
        relay: Relay | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.dropped = 0
        self.alone = False
        self._settings = settings
        self._keeper = EventKeeper(content, clock)
        self._clock = clock
        self._relay = relay if settings.path is None else None
        self._read: EventId = (0, 0)
        self._waiting: deque[KeptEvent] = deque()
        self._unsent: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._lock = Lock()
        self._writing = _TableThread(self._open_table())
        self._sending = Background(self._send)

    @property
    def place(self) -> str:
        """Where findings are kept: `file`, `store` or `memory`."""
        return "file" if self._settings.path is not None else "memory" if self._relay is None else "store"

    @property
    def keep_days(self) -> float:
        """How many days findings are kept."""
        return self._settings.keep_days

    def _open_table(self) -> FindingsTable:
        check_path(self._settings.path)
        most = MOST_IN_MEMORY if self.place == "memory" else MOST
        return FindingsTable(self._settings.path or MEMORY, keep_days=self.keep_days, most=most)

    def take(self, event: Event) -> None:
        """Keep an event."""
        kept = self._keeper.keep(event)
        with self._lock:
            self._waiting.append(kept)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            is_due = self.place == "file" or len(self._waiting) >= MANY
        if self._relay is not None:
            self._sending.wake()
        elif is_due:
            self._writing.start(self._write)

    async def ask(self, work: Callable[[FindingsTable], T]) -> T:
        """Write all events to the table, then do work with it and return the result. Raises FindingsUnavailable."""
        if self._relay is not None:
            await self._receive(self._relay)
        try:
            return await to_thread.run_sync(self._writing.run, self._write_and, work)
        except sqlite3.Error as error:
            raise FindingsUnavailable(f"the findings cannot be read: {error}") from None

    def close(self) -> None:
        """Write the waiting events, and close the table."""
        self._writing.run(self._write)
        self._writing.close()

    # In the thread that writes.

    def _write_and(self, table: FindingsTable, work: Callable[[FindingsTable], T]) -> T:
        self._write(table)
        return work(table)

    def _write(self, table: FindingsTable) -> None:
        """Write the waiting events. If that fails, they continue to wait."""
        with self._lock:
            taken, self._waiting = self._waiting, deque()
        if not taken:
            return
        told = [read_fields(kept.data) for kept in taken]
        try:
            table.add(told, self._clock())
        except sqlite3.Error as error:
            with self._lock:
                self._waiting.extendleft(reversed(taken))
            self._writing.tell(f"findings.path: {self._settings.path} cannot be written, and is tried again: {error}")
        else:
            self._writing.tell("")

    # With a shared store.

    async def _send(self) -> None:
        """Send new events to the store. Runs in a task of its own."""
        relay = self._relay
        if relay is None:
            return
        try:
            while self._waiting or self._unsent or await self._sending.pause(LINGER_S):
                await to_thread.run_sync(self._writing.run, self._take_for_store)
                data = [*self._unsent][:BATCH]
                if data and await relay.exchange(data, (0, 0), 0) is None:
                    self.alone = True
                    await self._sending.pause(LINGER_S)
                    continue
                for _ in data:
                    self._unsent.popleft()
                await self._sending.pause(PAUSE_S)
        finally:
            await relay.aclose()

    def _take_for_store(self, table: FindingsTable) -> None:
        """Write the waiting events to the table, too. They change nothing when they come back from the store."""
        with self._lock:
            taken = [*self._waiting]
        self._write(table)
        self._unsent.extend(kept.data for kept in taken)

    async def _receive(self, relay: Relay) -> None:
        """Read the events that all processes have sent since the last query. The task closes the connection later."""
        self._sending.wake()
        while True:
            found = await relay.exchange((), self._read, BATCH)
            self.alone = found is None
            if not found:
                return
            told = [read_fields(data) for _, data in found]
            await to_thread.run_sync(self._writing.run, _adding(told, self._clock()))
            self._read = read_id(found[-1][0])
            if len(found) < BATCH:
                return


def _adding(told: Iterable[Mapping[str, Any]], now: float) -> Callable[[FindingsTable], None]:
    return lambda table: table.add(told, now)


class _TableThread:
    """A thread that works with a table. It starts with the first work, and ends with the interpreter, after the last
    work."""

    def __init__(self, table: FindingsTable) -> None:
        self._table = table
        self._threads = ThreadPoolExecutor(1, "callfuse-findings")
        self._is_due = False
        self._told = ""
        self.close = finalize(self, _close, self._threads, table)

    def run(self, work: Callable[..., T], *given: Any) -> T:
        """Do work with the table in the thread, wait for it, and return its result."""
        return self._threads.submit(work, self._table, *given).result()

    def start(self, work: Callable[[FindingsTable], None]) -> None:
        """Queue work for the thread, unless such work waits already."""
        if not self._is_due:
            self._is_due = True
            self._threads.submit(self._do, work)

    def _do(self, work: Callable[[FindingsTable], None]) -> None:
        self._is_due = False
        with Boundary():  # errors of the file are reported where they happen
            work(self._table)

    def tell(self, problem: str) -> None:
        """Log a problem once. An empty text means that it is solved; then the next problem is logged again."""
        if problem and not self._told:
            logger.error("%s", problem)
        self._told = problem


def check_path(path: str | None) -> None:
    """Check that the file of `findings.path` can be used; None if no file is set. Raises ConfigError."""
    try:
        FindingsTable(path or MEMORY).close()
    except WrongFileError as wrong:
        raise ConfigError(f"findings.path = {path!r}: {wrong}") from None


def _close(threads: ThreadPoolExecutor, table: FindingsTable) -> None:
    threads.shutdown()
    table.close()


def keep_findings(middleware: CallFuseMiddleware) -> FindingsKeeper:
    """Keep the findings of a middleware from now on, by its settings. Raises ConfigError."""
    config = middleware.resolved.config
    relay = None
    if middleware.owns_store and config.findings.path is None:
        keep_s = config.findings.keep_days * 86_400
        relay = open_relay(
            config.store,
            timeout_s=config.store_timeout_s,
            bus=middleware.bus,
            stream=FINDINGS._replace(most=MOST, kept_s=round(keep_s)),
        )
    keeper = FindingsKeeper(config.findings, config.admin.content, relay)
    middleware.bus.add(keeper)
    return keeper
