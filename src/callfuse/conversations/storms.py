"""Keep rows of repeated events for the ledger: digests with their times, oldest first."""

from collections.abc import Sequence
from typing import Final

from callfuse.conversations.ledger import StormEntry
from callfuse.model import Finding
from callfuse.model.finding import NO_TOOL

MOST: Final = 250
"""The most entries of a row; the oldest are dropped. With a higher limit, nothing is found."""

Row = tuple[StormEntry, ...]


def recent(row: Sequence[StormEntry], now: float, within_s: float) -> list[StormEntry]:
    """Return the entries at most `within_s` seconds from `now`, either way: the clocks of hosts may differ."""
    return [one for one in row if abs(now - one.time) <= within_s]


def with_new(row: Sequence[StormEntry], digest: bytes, now: float, within_s: float) -> Row:
    """Return the entries within a time, and a new one unless its digest is among them."""
    kept = recent(row, now, within_s)
    is_known = digest in [one.digest for one in kept]
    return tuple(kept) if is_known else (*kept, StormEntry(digest, now))[-MOST:]


def storm(kind: str, digest: bytes, count: int, limit: int, within_s: float) -> Finding | None:
    """Return the finding of a kind if `count` reaches the limit. `digest`: of the repeated event."""
    if not 0 < limit <= count:
        return None
    return Finding(kind, NO_TOOL, digest, count, limit, within_s, hard=False)
