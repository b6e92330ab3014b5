"""The feed: every event as it happens, as frames of an event stream, for readers that connect and disconnect.

    feed = Feed()                # a sink: bus.add(feed)
    reader = await feed.open(Choice(kinds=frozenset({"finding"})), after=read_id("1767225600123-0"))
    async for chunk in reader.chunks():
        ...                      # b'id: 1767225600140-0\\nevent: finding\\ndata: {...}\\n\\n'

An event is kept in a `Ring` as it is (`observe/kept.py`), and serialized once, when it is first read. A task gives new
events to all readers at once, at most ten times a second, so fifty readers cost little more than one. Each reader has a
bounded queue. If a slow reader's queue is full, the reader gets a last message that says so, and ends.

If processes share a store, events go through it (`Relay`), and each process reads the events of all from there. While
the store is down, each process feeds its own events, and its readers get a message about it.

The live page (`observe/activity.py`) is built from the same events when somebody opens it: without a store, from events
that wait here; with a store, by a `Follower`, which gets the events of all processes (`observe/view.py`).
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from math import inf
from threading import Lock
from typing import Final, Protocol

from callfuse.observe.background import Background
from callfuse.observe.events import Event
from callfuse.observe.kept import WEIGHT, EventKeeper, KeptEvent
from callfuse.observe.naming import CLASSES
from callfuse.observe.ring import MOST_EVENTS, Choice, EventId, FeedEvent, Ring, WrittenEvent, read_id, write

PAUSE_S: Final = 0.1
"""The pause between two deliveries. Events of this time go into one chunk."""
MOST_WAITING: Final = 1024 * 1024
"""The most bytes that wait for one reader. A thousand events have a third of that."""
MOST_SENT: Final = 64 * 1024
"""Bytes of old events in one chunk."""
BATCH: Final = 500
"""The most events that are exchanged with the store at a time."""
LINGER_S: Final = 30.0
"""How long a connection to the store is kept without events and readers."""
TURN: Final = 32 * 1024
"""Characters of arguments and results that are searched for secrets, and bytes that are sent to the store, before the
event loop gets control again: 10 ms at most. One answer of a model may have thousands of calls."""
LEAST: Final = 128
"""The least that an event counts there, so that a turn has at most 256 of them."""
MOST_UNSEEN: Final = 50_000
MOST_UNSEEN_BYTES: Final = 32 * 1024 * 1024
"""The most events, and approximate bytes, that wait until somebody opens the live page; the oldest are dropped."""
MOST_UNSENT: Final = 5000
"""Events that wait for the store; the oldest are dropped."""

MISSED: Final = (
    b'event: missed\ndata: {"callfuse.event":"missed","callfuse.cause":"events between are not kept any more"}\n\n'
)
DROPPED: Final = (
    b'event: dropped\ndata: {"callfuse.event":"dropped","callfuse.cause":"this reader is too slow; connect again"}\n\n'
)
ALONE: Final = (
    b'event: alone\ndata: {"callfuse.event":"alone","callfuse.cause":"the store is down; these are the events of one '
    b'process"}\n\n'
)
SHARED: Final = b'event: shared\ndata: {"callfuse.event":"shared","callfuse.cause":"the store is up again"}\n\n'
"""Messages about the feed itself. They have no id, so that a reader that reconnects continues after the last event."""


class FullError(Exception):
    """Raised if the feed has the most readers that it may have."""


class Relay(Protocol):
    """Shares the events of several processes."""

    async def exchange(
        self, data: Sequence[bytes], after: EventId | None, most: int
    ) -> Sequence[tuple[str, bytes]] | None:
        """Add events. Return at most `most` events after `after`, or the last ones if that is None, each with its id;
        None if the store is down."""
        ...

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        ...


class Follower(Protocol):
    """A consumer that gets events as objects, not as text."""

    @property
    def ended(self) -> bool:
        """Whether the follower wants no more events."""
        ...

    def begin(self, old: Sequence[FeedEvent], *, alone: bool) -> None:
        """Take the events that are known already. `alone`: the store is down, and only this process has them."""
        ...

    def hand(self, new: Sequence[FeedEvent], written: dict[Choice, bytes]) -> None:
        """Take new events. Must not wait. `written`: not used by followers."""
        ...

    def tell(self, *, alone: bool) -> None:
        """Handle the store going down, or coming up again."""
        ...

    def end(self) -> None:
        """Handle the end of events."""
        ...


class Reader:
    """A reader of the feed."""

    __slots__ = ("_chunks", "_ended", "_old", "_signal", "_size", "choice")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._old: Sequence[FeedEvent] = ()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._signal = asyncio.Event()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the reader gets no more events."""
        return self._ended

    def begin(self, old: Sequence[FeedEvent], missed: bool) -> None:
        """Give the reader the events that it has not read yet; `missed`: some before these are lost."""
        self._old = old
        if missed:
            self._chunks.appendleft(MISSED)

    def put(self, chunk: bytes) -> None:
        """Queue a chunk. If the queue is too long, it is dropped, and the reader ends with a message that says so."""
        if not chunk or self._ended:
            return
        self._size += len(chunk)
        if self._size > MOST_WAITING:
            self._chunks.clear()
            self._old, self._size = (), 0
            self.end(DROPPED)
        else:
            self._chunks.append(chunk)
        self._signal.set()

    def hand(self, new: Sequence[FeedEvent], written: dict[Choice, bytes]) -> None:
        """Queue the events that the reader wants. `written`: their text by choice, so that it is written once for all
        readers."""
        if self.choice not in written:
            written[self.choice] = write(new, self.choice)
        self.put(written[self.choice])

    def tell(self, *, alone: bool) -> None:
        """Tell the reader that the store is down, or up again."""
        self.put(ALONE if alone else SHARED)

    def end(self, farewell: bytes = b"") -> None:
        """Let the reader read what is queued, then end it."""
        self._ended = True
        if farewell:
            self._chunks.append(farewell)
        self._signal.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks until the reader is ended: a message if events are missing, old events, new events."""
        if self._chunks and self._chunks[0] is MISSED:
            yield self._chunks.popleft()
        while self._old:
            yield self._next_of_old()
        while self._chunks or not self._ended:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._size = max(0, self._size - len(chunk))
                yield chunk
            if not self._ended:
                self._signal.clear()
                await self._signal.wait()

    def _next_of_old(self) -> bytes:
        size = count = 0
        while count < len(self._old) and size < MOST_SENT:
            size += len(self._old[count].data)
            count += 1
        now, self._old = self._old[:count], self._old[count:]
        return write(now, self.choice)


async def _written_in_turns(events: Sequence[KeptEvent]) -> list[bytes]:
    """Serialize events, in steps between which other tasks run."""
    data: list[bytes] = []
    size = 0
    for kept in events:
        data.append(kept.data)
        size += len(data[-1])
        if size > TURN:
            size = 0
            await asyncio.sleep(0)
    return data


class Feed:
    """A sink of events (`observe/bus.py`) with readers, `most_readers` at a time.

    `content`: what is shown of calls (`observe/content.py`). `relay`: the connection to a store that processes share;
    None without one. `clock` returns seconds since the epoch.
    """

    kinds: Final = frozenset(CLASSES.values())

    def __init__(
        self,
        *,
        content: str = "short",
        most_readers: int = 100,
        relay: Relay | None = None,
        clock: Callable[[], float] = time.time,
        ring: Ring[FeedEvent] | None = None,
    ) -> None:
        self._keeper = EventKeeper(content, clock)
        self._most_readers = most_readers
        self._relay = relay
        self._read: EventId | None = None
        self._ring: Ring[FeedEvent] = Ring((int(1000 * clock()), 0)) if ring is None else ring
        self._lock = Lock()
        self._exchanging = asyncio.Lock()
        self._unseen: Ring[KeptEvent] | None = None
        self._readers: set[Reader | Follower] = set()
        self._new: deque[FeedEvent] = deque()
        self._unsent: deque[KeptEvent] = deque(maxlen=MOST_UNSENT)
        self._alone = self._over = False
        self._task = Background(self._work)

    @property
    def readers(self) -> int:
        """The number of readers, without followers."""
        return sum(isinstance(one, Reader) for one in self._readers)

    @property
    def is_shared(self) -> bool:
        """Whether the feed has the events of all processes that share a store."""
        return self._relay is not None

    def take_unseen(self) -> list[KeptEvent]:
        """Return the events of this process since the last call, oldest first; only the newest if there were too many.
        The first call starts keeping them."""
        with self._lock:
            unseen, self._unseen = self._unseen, Ring((0, 0), MOST_UNSEEN, MOST_UNSEEN_BYTES)
        return list(unseen or ())

    def take(self, event: Event) -> None:
        """Keep an event for present and future readers."""
        kept = self._keeper.keep(event)
        with self._lock:
            if self._relay is None:
                kept.id = self._ring.next_id(kept.time)
                self._keep(kept)
                if self._unseen is not None:
                    self._unseen.add(kept)
            else:
                self._unsent.append(kept)
        if self._readers or self._relay is not None:
            self._task.wake()

    async def open(self, choice: Choice, after: EventId | None = None) -> Reader:
        """Add a reader of new events, and of kept events after the id `after`. Raises FullError."""
        await self._prepare()
        if self.readers >= self._most_readers:
            raise FullError(f"there are {self._most_readers} readers already (admin.max_readers)")
        reader = Reader(choice)
        if self._alone:
            reader.put(ALONE)
        with self._lock:  # so that the reader gets no event twice
            if after is not None:
                reader.begin(*self._ring.after(after))
            self._readers.add(reader)
        self._task.wake()
        if self._over:
            reader.end()
        return reader

    def end(self) -> None:
        """End all readers, present and future ones, after they have read what is queued."""
        self._over = True
        for reader in self._readers:
            if isinstance(reader, Reader):
                reader.end()

    async def follow(self, follower: Follower) -> None:
        """Give a follower the known events and all new ones. Does nothing if the follower gets them already."""
        await self._prepare()
        with self._lock:
            if follower not in self._readers or follower.ended:
                old, _ = self._ring.after((0, 0))
                follower.begin(old if self._alone else [one for one in old if not one.is_own], alone=self._alone)
                self._readers.add(follower)
        self._task.wake()

    async def refresh(self) -> None:
        """Read the events of other processes now. For callers that know of new ones."""
        if self._relay is not None and self._readers:
            await self._share(self._relay)
            self._hand_out(self._take_new())

    def close(self, reader: Reader | Follower) -> None:
        """Forget a reader."""
        self._readers.discard(reader)
        reader.end()
        if not self._readers:
            self._take_new()
            self._read = None
            self._task.wake()

    async def _prepare(self) -> None:
        """Update the ring for a new reader."""
        if self._relay is not None and not self._readers:
            await self._catch_up(self._relay)
        self._hand_out(self._take_new())

    async def _work(self) -> None:
        """Give new events to the readers while there are any."""
        if self._relay is not None:
            await self._work_with(self._relay)
            return
        while self._readers:
            await self._hand_out_in_turns()
            await asyncio.sleep(PAUSE_S)
            if not self._new:
                await self._task.pause()

    async def _work_with(self, relay: Relay) -> None:
        """Send events to the store, and give new ones from there to the readers while there are any."""
        try:
            while self._readers or self._unsent or await self._task.pause(LINGER_S):
                more = await self._share(relay)
                await self._hand_out_in_turns()
                self._close_ended()
                if not more:
                    await asyncio.sleep(PAUSE_S)
        finally:
            await relay.aclose()

    async def _share(self, relay: Relay) -> bool:
        """Exchange events with the other processes; returns whether there are more."""
        if self._readers and self._read is None:
            await self._catch_up(relay)
        async with self._exchanging:
            with self._lock:
                unsent = [self._unsent.popleft() for _ in range(min(BATCH, len(self._unsent)))]
            data = await _written_in_turns(unsent)
            read = self._read if self._readers else None
            most = 0 if read is None else BATCH
            if not data and not most:
                return False
            found = await relay.exchange(data, read or (0, 0), most)
            self._tell(alone=found is None)
            if found is None:
                with self._lock:
                    for one in data:
                        self._keep(WrittenEvent(self._ring.next_id(self._keeper.now()), one, is_own=True))
                return False
            self._keep_read(found)
        return bool(self._unsent) or len(found) >= most > 0

    async def _catch_up(self, relay: Relay) -> None:
        """Read the last events of all processes into a ring that has not been updated."""
        async with self._exchanging:
            if self._readers and self._read is not None:  # another task has done it
                return
            found = await relay.exchange((), None, MOST_EVENTS)
            self._tell(alone=found is None)
            if found is None:
                return
            with self._lock:
                is_all = len(found) < MOST_EVENTS
                self._ring.clear((0, 0) if is_all else read_id(found[0][0]))
            self._read = (0, 0)
            self._keep_read(found, are_old=True)

    def _keep_read(self, found: Sequence[tuple[str, bytes]], *, are_old: bool = False) -> None:
        with self._lock:
            for id_, data in found:
                if entry := WrittenEvent.read(id_, data):
                    self._keep(entry, is_old=are_old)
            if found:
                self._read = read_id(found[-1][0])

    def _keep(self, entry: FeedEvent, *, is_old: bool = False) -> None:
        self._ring.add(entry)
        if self._readers and not is_old:
            self._new.append(entry)

    def _take_new(self, most: float = inf) -> list[FeedEvent]:
        """Return the new events, or the first of them, with about `most` characters of arguments and results."""
        new: list[FeedEvent] = []
        with self._lock:
            while self._new and most > 0:
                new.append(self._new.popleft())
                most -= max(LEAST, new[-1].size - WEIGHT)
        return new

    async def _hand_out_in_turns(self) -> None:
        """Give new events to all readers, in steps between which other tasks run."""
        while new := self._take_new(TURN):
            self._hand_out(new)
            if self._new:
                await asyncio.sleep(0)

    def _tell(self, *, alone: bool) -> None:
        """Tell the readers if the store went down, or is up again."""
        if alone != self._alone:
            self._alone = alone
            for reader in self._readers:
                reader.tell(alone=alone)

    def _hand_out(self, new: Sequence[FeedEvent]) -> None:
        """Give events to all readers. Readers with the same choice get the same bytes."""
        if not new:
            return
        written: dict[Choice, bytes] = {}
        for reader in self._readers:
            reader.hand(new, written)
        self._close_ended()

    def _close_ended(self) -> None:
        for reader in [one for one in self._readers if one.ended]:
            self.close(reader)
