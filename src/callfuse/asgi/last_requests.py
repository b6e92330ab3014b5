"""Keep the last request of each conversation, parsed, so that only the new part of the next one must be read.

This changes only the cost of a request: `wire/resent.py` returns the same values as the parser. A last request is found
among those of the same sender by samples of its bytes, and then compared byte by byte. Their total size is bounded: the
least recently used one is dropped first, and each after `ttl_seconds`.
"""

from collections import OrderedDict
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, NamedTuple

from callfuse.asgi.off_loop import weight_of
from callfuse.commands import PrefixSearch
from callfuse.dialects.continued import ReadHistory
from callfuse.wire.resent import KnownText, Shared, compare

LEAST_BYTES: Final = 4096
"""Shorter bodies are not kept, because parsing one takes only 10 us."""
MOST_ALIKE: Final = 4
"""The most requests with the same samples, which differ only after the last sample. The oldest is dropped."""
LONGEST_LIGHT: Final = 1024 * 1024
"""Longer bodies are always read in threads, because the time to copy one grows with its length."""
BYTES_A_MESSAGE: Final = 64
"""The cost of a known message in new bytes: it takes 2 us to compare its round with the ledger's."""
_SAMPLE: Final = 16
_SAMPLED: Final = tuple([step << power for power in range(8, 26) for step in (2, 3)])
"""The positions of samples: two for each doubling of the length, for bodies of up to 100 MB."""


class Sender(NamedTuple):
    """Sender and target of requests. Only requests of one sender are compared. `session`: `SessionHeaders.as_sent`."""

    credential: bytes
    session: tuple[bytes, ...]
    dialect: str
    target: str


@dataclass(slots=True, eq=False)
class LastRequest:
    """A kept request: its bytes, its payload and its rounds. `quiet`: the search that found no command in it."""

    sender: Sender
    known: KnownText
    history: ReadHistory
    quiet: PrefixSearch | None
    key: int = 0
    time: float = 0.0


class Continued(NamedTuple):
    """A body with the same beginning and end as the `last` request.

    `is_proven`: only the `new` part needs to be parsed; if false, `new` is the whole body. `history`: the rounds of the
    messages in both requests, as far as they were read.
    """

    body: bytes
    last: LastRequest
    shared: Shared
    is_proven: bool
    new: bytes
    history: ReadHistory

    @property
    def weight(self) -> int:
        """The weight of the body for `off_loop.run`, if only its new part is read."""
        if not self.history or len(self.body) > LONGEST_LIGHT:
            return weight_of(self.body)
        return weight_of(self.new) + BYTES_A_MESSAGE * self.shared.known.counts[-1]


class LastRequests:
    """Keeps the last requests of one middleware: `size` bytes, at most `limit`; 0 keeps none. They are the spare data
    of its budget. `mark`: a text that no client knows, which `wire/resent.py` uses to prove positions."""

    def __init__(self) -> None:
        self.limit = 0
        self.size = 0
        self.mark = token_hex(16)
        self._alike: dict[int, list[LastRequest]] = {}
        self._by_use: OrderedDict[LastRequest, None] = OrderedDict()

    def find(self, sender: Sender, body: bytes) -> Continued | None:
        """Return the last request of the conversation of this body, if it is kept."""
        if not self._by_use:
            return None
        for key in reversed(_keys(sender, body)):
            for last in self._alike.get(key, ()):
                if last.sender == sender and (shared := compare(body, last.known)) is not None:
                    if not shared.is_proven:
                        return Continued(body, last, shared, False, body, ReadHistory())
                    history = last.history.up_to(last.known.counts[shared.place])
                    return Continued(body, last, shared, True, body[shared.begin : shared.end], history)
        return None

    def keep(self, new: LastRequest, before: LastRequest | None, room: float, now: float, ttl_s: float) -> None:
        """Keep a request in place of the one `before` it, if it fits into `room`, in bytes. Drops requests unused for
        `ttl_s` seconds."""
        if before is not None:
            self._drop(before)
        most = min(self.limit, room)
        while self._by_use:
            oldest = next(iter(self._by_use))
            if oldest.time > now - ttl_s and self.size + new.known.size <= most:
                break
            self._drop(oldest)
        if new.known.size > most:
            return
        new.time, new.key = now, _keys(new.sender, new.known.parts[0])[-1]
        self._by_use[new] = None
        self.size += new.known.size
        alike = self._alike.setdefault(new.key, [])
        alike.insert(0, new)
        if len(alike) > MOST_ALIKE:
            self._drop(alike[-1])

    def bound(self, limit: int) -> None:
        """Keep at most `limit` bytes from now on."""
        self.limit = limit
        if self.size > limit:
            self.clear()

    def clear(self) -> None:
        """Drop all requests."""
        self._alike.clear()
        self._by_use.clear()
        self.size = 0

    def _drop(self, old: LastRequest) -> None:
        if old not in self._by_use:
            return
        del self._by_use[old]
        self.size -= old.known.size
        alike = self._alike[old.key]
        alike.remove(old)
        if not alike:
            del self._alike[old.key]


def _keys(sender: Sender, body: bytes) -> list[int]:
    """Return the key of a sender, and one for each sample of a body, computed from all samples up to it."""
    size = len(body) - _SAMPLE
    keys = [hash(sender)]
    for at in _SAMPLED:
        if at > size:
            break
        keys.append(hash((keys[-1], body[at : at + _SAMPLE])))
    return keys
