"""Keeps the answers of exchanges with a finding in memory: what the vendor sent, and what the client got.

    exchange = exchanges.open()
    answer = exchange.vendor.begin()
    answer.add(chunk)
    exchange.note(finding_id)
    exchange.close()

Off unless `admin.keep_exchanges` is set and there is an admin page. No request is kept, and of an answer's headers only
those needed to read its body. An exchange without a finding is dropped at its end.

References to the chunks that pass anyway are kept, not copies. Each side of an exchange (all answers of the vendor, or
the one that the client got) keeps its first and its last bytes, and counts the bytes that are left out between them.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol

CHUNK_COST: Final = 120
"""Bytes counted for each chunk in addition to its data: its object, its tuple and its place in a list."""
EXCHANGE_COST: Final = 2048
"""Bytes counted for each exchange in addition to its chunks."""
RUNNING_PART: Final = 2
"""Running exchanges without a finding together get at most this part of the limit: most will be dropped."""


class ExchangeLimits(Protocol):
    """The settings of the admin page that limit the kept exchanges."""

    keep_exchanges: bool
    keep_exchanges_s: float
    max_exchange_bytes: int
    max_exchanges_bytes: int


class KeptAnswer:
    """One answer: status, form and first bytes of its body. Its last bytes are in its `side`.

    `size`: all bytes of its body; `left_out`: those that are not kept. `ended`: the body is complete.
    """

    __slots__ = ("coding", "ended", "first", "left_out", "media_type", "side", "size", "status")

    def __init__(self, side: "KeptSide") -> None:
        self.side = side
        self.status = self.size = self.left_out = 0
        self.media_type = self.coding = ""
        self.ended = False
        self.first: list[bytes] = []

    @property
    def last(self) -> list[bytes]:
        """The last chunks of the body, after the bytes that are left out."""
        return [chunk for answer, chunk in tuple(self.side.last) if answer is self]

    def add(self, chunk: bytes) -> None:
        """Keep a chunk of the body, or leave it out if there is no room."""
        self.size += len(chunk)
        self.side.add(self, chunk)


class KeptSide:
    """One side of an exchange: its `answers`, and their `last` chunks, each with its answer.

    `limit`: the bytes that it may keep, half of them at each end. `grow` asks for room for more bytes.
    """

    __slots__ = ("_first_size", "_grow", "_is_full", "_last_size", "_limit", "answers", "last")

    def __init__(self, limit: int, grow: Callable[[int], bool]) -> None:
        self._limit = limit // 2
        self._grow = grow
        self._first_size = self._last_size = 0
        self._is_full = False
        self.answers: list[KeptAnswer] = []
        self.last: deque[tuple[KeptAnswer, bytes]] = deque()

    def begin(self) -> KeptAnswer:
        """Begin the next answer."""
        answer = KeptAnswer(self)
        self.answers.append(answer)
        return answer

    def add(self, answer: KeptAnswer, chunk: bytes) -> None:
        """Keep a chunk with the first ones if there is room, else with the last ones, whose oldest are dropped."""
        first = b"" if self._is_full else self._fitting(chunk)
        if first and self._grow(len(first) + CHUNK_COST):
            self._first_size += len(first) + CHUNK_COST
            answer.first.append(first)
        else:
            first = b""
        if len(first) < len(chunk):
            self._is_full = True
            self._add_last(answer, chunk, len(first))

    def _fitting(self, chunk: bytes) -> bytes:
        """Return the part of a chunk that fits among the first bytes. A chunk is cut only if it does not fit among the
        last bytes either."""
        room = max(0, self._limit - self._first_size - CHUNK_COST)
        if len(chunk) <= room:
            return chunk
        return chunk[:room] if len(chunk) + CHUNK_COST > self._limit else b""

    def _add_last(self, answer: KeptAnswer, chunk: bytes, begin: int) -> None:
        """Keep a chunk, from byte `begin` on, with the last ones."""
        start = max(begin, len(chunk) - self._limit + CHUNK_COST)
        answer.left_out += start - begin
        kept = chunk[start:] if start else chunk
        cost = len(kept) + CHUNK_COST
        while self.last and self._last_size + cost > self._limit:
            self._drop_oldest()
        while not self._grow(cost):
            if not self.last:
                answer.left_out += len(kept)
                return
            self._drop_oldest()
        self._last_size += cost
        self.last.append((answer, kept))

    def _drop_oldest(self) -> None:
        answer, chunk = self.last.popleft()
        answer.left_out += len(chunk)
        self._last_size -= len(chunk) + CHUNK_COST
        self._grow(-len(chunk) - CHUNK_COST)

    def clear(self) -> None:
        """Drop all answers. Later chunks are not kept."""
        self._is_full = True
        self.last.clear()
        self.answers.clear()


class KeptExchange:
    """One exchange: its two sides, and the ids of its `findings`.

    `began`, `noted`: when it began, and when its first finding was noted, in seconds since the epoch. `is_over`: it has
    ended; `is_dropped`: no more of it is kept. `size`: the bytes counted for it.
    """

    __slots__ = ("_exchanges", "began", "client", "findings", "is_dropped", "is_over", "noted", "size", "vendor")

    def __init__(self, exchanges: "KeptExchanges", limit: int, now: float) -> None:
        self._exchanges = exchanges
        self.began = self.noted = now
        self.findings: list[str] = []
        self.is_over = self.is_dropped = False
        self.size = 0
        self.vendor = KeptSide(limit // 2, self.grow)
        self.client = KeptSide(limit // 2, self.grow)

    def grow(self, size: int) -> bool:
        """Count `size` more bytes, or fewer if it is negative. Returns False if there is no room for them."""
        return self._exchanges.grow(self, size)

    def note(self, finding_id: str) -> None:
        """Keep this exchange, and make it available by the id of its finding."""
        self._exchanges.note(self, finding_id)

    def close(self) -> None:
        """End the exchange. It is dropped if nothing was found in it."""
        self._exchanges.close(self)


class KeptExchanges:
    """The exchanges of one middleware that are kept, by the ids of their findings. May be used from any thread.

    `is_on`: whether exchanges are kept. `clock` returns seconds since the epoch.
    """

    __slots__ = ("_by_finding", "_clock", "_has_reader", "_limits", "_lock", "_running", "_size", "is_on")

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = Lock()
        self._limits: ExchangeLimits | None = None
        self._has_reader = self.is_on = False
        self._by_finding: dict[str, KeptExchange] = {}  # the most recently noted one is last
        self._size = self._running = 0

    @property
    def size(self) -> int:
        """The bytes counted for all exchanges, including those in progress."""
        return self._size

    def bound(self, limits: ExchangeLimits) -> None:
        """Apply the settings. If they turn this off, everything is dropped."""
        with self._lock:
            self._limits = limits
            self._switch()

    def attach_reader(self) -> None:
        """Note that an admin page exists, which shows the kept exchanges."""
        with self._lock:
            self._has_reader = True
            self._switch()

    def _switch(self) -> None:
        self.is_on = self._limits is not None and self._limits.keep_exchanges and self._has_reader
        if not self.is_on:
            for exchange in [*self._by_finding.values()]:
                self._drop(exchange)

    def open(self) -> KeptExchange | None:
        """Begin an exchange; None if this is off."""
        if self._limits is None or not self.is_on:
            return None
        self._drop_old()
        return KeptExchange(self, self._limits.max_exchange_bytes - EXCHANGE_COST, self._clock())

    def find(self, finding_id: str) -> KeptExchange | None:
        """Return the exchange of a finding; None if it is not kept."""
        self._drop_old()
        return self._by_finding.get(finding_id)

    def grow(self, exchange: KeptExchange, size: int) -> bool:
        """Count `size` more bytes for an exchange, or fewer if it is negative. The oldest others are dropped to make
        room. Returns False if that is not enough."""
        with self._lock:
            if exchange.is_dropped or not self._has_room(exchange, size):
                return False
            self._count(exchange, size)
            return True

    def _has_room(self, exchange: KeptExchange, size: int) -> bool:
        limit = 0 if self._limits is None or not self.is_on else self._limits.max_exchanges_bytes
        if size > 0 and not exchange.findings and self._running + size > limit // RUNNING_PART:
            return False
        while size > 0 and self._size + size > limit:
            oldest = next((one for one in self._by_finding.values() if one is not exchange), None)
            if oldest is None:
                return False
            self._drop(oldest)
        return True

    def note(self, exchange: KeptExchange, finding_id: str) -> None:
        """Keep an exchange for a finding."""
        with self._lock:
            if exchange.is_dropped or finding_id in exchange.findings:
                return
            exchange.findings.append(finding_id)
            if len(exchange.findings) == 1:
                self._running -= exchange.size
                exchange.noted = self._clock()
                if not self._has_room(exchange, EXCHANGE_COST):
                    self._drop(exchange)
                    return
                self._count(exchange, EXCHANGE_COST)
            self._by_finding[finding_id] = exchange

    def close(self, exchange: KeptExchange) -> None:
        """End an exchange. It is dropped if nothing was found in it."""
        with self._lock:
            exchange.is_over = True
            if not exchange.findings:
                self._drop(exchange)

    def _drop_old(self) -> None:
        """Drop the exchanges that are too old."""
        with self._lock:
            since = self._clock() - (self._limits.keep_exchanges_s if self._limits is not None else 0)
            while self._by_finding:
                oldest = next(iter(self._by_finding.values()))
                if oldest.noted >= since:
                    return
                self._drop(oldest)

    def _drop(self, exchange: KeptExchange) -> None:
        """Drop an exchange. If it still runs, nothing more of it is kept."""
        for finding_id in exchange.findings:
            self._by_finding.pop(finding_id, None)
        self._count(exchange, -exchange.size)
        exchange.is_dropped = True
        exchange.vendor.clear()
        exchange.client.clear()

    def _count(self, exchange: KeptExchange, size: int) -> None:
        exchange.size += size
        self._size += size
        if not exchange.findings:
            self._running += size
