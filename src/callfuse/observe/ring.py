"""Keep the last events of a feed, for readers that reconnect.

An id is a time in milliseconds and a number, as in `1767225600123-0`: the format of Redis streams. So ids are ordered
across workers and restarts, too.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from callfuse.observe.fields import SESSION
from callfuse.observe.naming import is_chosen, texts_of
from callfuse.wire.jsontext import NotJSON, loads

MOST_EVENTS: Final = 5000
MOST_BYTES: Final = 8 * 1024 * 1024
"""The most events, and approximately the most bytes, that a new reader gets."""

EventId = tuple[int, int]
ID_HINT: Final = "use an id of this feed, as in 1767225600123-0"
_DATA: Final = re.compile(rb'\{"callfuse\.event":"[a-z_]{1,40}"[^\r\n]*\}')
_ID: Final = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)  # as Redis accepts: 64 bits


def read_id(text: str) -> EventId:
    """Parse an id. Raises ValueError, which describes the format."""
    found = _ID.fullmatch(text)
    if found is None:
        raise ValueError(ID_HINT)
    return int(found[1]), int(found[2])


def number_of(id_: EventId) -> int:
    """Return an id as one number, which JavaScript can represent exactly. Later events have greater numbers."""
    return (id_[0] << 12) + min(id_[1], 4095)


class FeedEvent(ABC):
    """An event of the feed. `size`: its bytes in a ring. `is_own`: other processes lack it despite a shared store."""

    __slots__ = ("_fields", "id", "is_own", "size")

    def __init__(self, id_: EventId, size: int, *, is_own: bool = False) -> None:
        self.id = id_
        self.size = size
        self.is_own = is_own
        self._fields: dict[str, Any] | None = None

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The fields as JSON in one line, the event's name first."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields; none if the data cannot be parsed."""
        if self._fields is None:
            self._fields = _read(self.data)
        return self._fields

    def frame(self) -> bytes:
        """Return the event as a frame of the stream."""
        name = self.data.partition(b':"')[2].partition(b'"')[0]
        return b"id: %d-%d\nevent: %b\ndata: %b\n\n" % (*self.id, name, self.data)


class WrittenEvent(FeedEvent):
    """An event that arrived as JSON."""

    __slots__ = ("_data",)

    def __init__(self, id_: EventId, data: bytes, *, is_own: bool = False) -> None:
        super().__init__(id_, len(data), is_own=is_own)
        self._data = data

    @property
    def data(self) -> bytes:
        """The data as they arrived."""
        return self._data

    @classmethod
    def read(cls, id_: str, data: bytes) -> "WrittenEvent | None":
        """Read an event that another process has written; None if it is invalid, because its data become part of a
        stream of lines."""
        return cls(read_id(id_), data) if _ID.fullmatch(id_) and _DATA.fullmatch(data) else None


E = TypeVar("E", bound=FeedEvent)


def _read(data: bytes) -> dict[str, Any]:
    try:
        found = loads(data)
    except NotJSON:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader wants: events of some sessions, by their names in logs, and of some kinds, by names of events or of
    kinds of findings. An empty choice means all."""

    sessions: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def takes(self, entry: FeedEvent) -> bool:
        """Whether the reader wants an event."""
        if not self.sessions and not self.kinds:
            return True
        fields = entry.fields
        if self.sessions and self.sessions.isdisjoint(texts_of(fields, SESSION)):
            return False
        return not self.kinds or is_chosen(fields, self.kinds)


def write(entries: Iterable[FeedEvent], choice: Choice) -> bytes:
    """Write the events that a reader wants, as frames of the stream."""
    return b"".join([entry.frame() for entry in entries if choice.takes(entry)])


class Ring(Generic[E]):
    """The last events, at most `most_events` with `most_bytes` of data. `floor`: up to here some may be missing."""

    __slots__ = ("_entries", "_last", "_most_bytes", "_most_events", "_size", "floor")

    def __init__(self, floor: EventId, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self.floor = self._last = floor
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._entries: deque[E] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[E]:
        """Return the events, oldest first."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """The bytes of their data."""
        return self._size

    def next_id(self, time: float) -> EventId:
        """Return the id of an event at `time` (seconds since the epoch), greater than all earlier ids."""
        now, (last, number) = int(1000 * time), self._last
        return (now, 0) if now > last else (last, number + 1)

    def add(self, entry: E) -> None:
        """Add an event, and drop the oldest while there are too many."""
        if entry.id > self._last:
            self._last = entry.id
        self._entries.append(entry)
        self._size += entry.size
        while len(self._entries) > self._most_events or self._size > self._most_bytes:
            oldest = self._entries.popleft()
            self._size -= oldest.size
            self.floor = max(self.floor, oldest.id)

    def clear(self, floor: EventId) -> None:
        """Forget all events."""
        self._entries.clear()
        self._size, self.floor = 0, floor

    def after(self, id_: EventId) -> tuple[list[E], bool]:
        """Return the events after an id, and whether some in between may be missing."""
        entries = list(self._entries)
        return entries[bisect_right(entries, id_, key=lambda entry: entry.id) :], id_ < self.floor
