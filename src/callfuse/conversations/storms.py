"""Rows of what comes again and again, as the ledger keeps them: digests with their times, oldest first."""

from collections.abc import Sequence
from typing import Final

from callfuse.conversations.ledger import StormEntry
from callfuse.model import Finding
from callfuse.model.finding import NO_TOOL

MOST: Final = 250
"""Entries that a row keeps, the newest ones. A higher limit finds nothing."""

Row = tuple[StormEntry, ...]


def recent(row: Sequence[StormEntry], now: float, within_s: float) -> list[StormEntry]:
    """The entries within a time; the clocks of several hosts may differ."""
    return [one for one in row if abs(now - one.time) <= within_s]


def with_new(row: Sequence[StormEntry], digest: bytes, now: float, within_s: float) -> Row:
    """The entries within a time, and one more, unless its digest is among them."""
    kept = recent(row, now, within_s)
    is_known = digest in [one.digest for one in kept]
    return tuple(kept) if is_known else (*kept, StormEntry(digest, now))[-MOST:]


def storm(kind: str, digest: bytes, count: int, limit: int, within_s: float) -> Finding | None:
    """The finding of a kind where so many are too many. `digest`: of what comes again."""
    if not 0 < limit <= count:
        return None
    return Finding(kind, NO_TOOL, digest, count, limit, within_s, hard=False)
