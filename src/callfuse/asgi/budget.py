"""Bound the bytes that all exchanges of one middleware keep together: request bodies, held frames, buffered answers.

    share = budget.open()
    if not share.add(len(part)):  # over the limit: this exchange keeps no more, and passes unguarded
        ...
    share.close()

Bytes that pass at once are not counted. An exchange that would exceed the limit must release its own bytes; others keep
theirs. Before that, data for later exchanges (`spare`) is dropped.
"""

import math
from typing import Final, Protocol

GRAIN: Final = 4096
"""Bytes of an answer that may be kept uncounted, because counting at every chunk takes 0.1 us."""


class Spare(Protocol):
    """Data that is kept for later exchanges, with its size in bytes."""

    size: int

    def clear(self) -> None:
        """Drop all of the data."""
        ...


class ByteBudget:
    """The bytes that exchanges keep at present (`used`) and their limit (`limit`), which may change at any time.
    `spare`: further data, which is dropped if both do not fit."""

    __slots__ = ("limit", "spare", "used")

    def __init__(self, limit: float = math.inf, spare: Spare | None = None) -> None:
        self.limit = limit
        self.spare = spare
        self.used = 0

    def open(self) -> "Share":
        """Open the share of a new exchange, with no bytes yet."""
        return Share(self)

    def fits(self) -> bool:
        """Whether the exchanges' bytes are within the limit. Drops the spare if both together are not."""
        if self.spare is not None and self.used + self.spare.size > self.limit:
            self.spare.clear()
        return self.used <= self.limit


class Share:
    """The bytes that one exchange keeps of its request and of its answer (`answer`: as last counted)."""

    __slots__ = ("_budget", "_request", "answer")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._request = 0
        self.answer = 0

    def add(self, size: int) -> bool:
        """Count bytes of the request until `drop_request`. Returns False if the limit is exceeded."""
        self._request += size
        self._budget.used += size
        return self._budget.fits()

    def hold(self, size: int) -> bool:
        """Set how many bytes of the answer are kept. Returns False if they are too many and must be released."""
        self._budget.used += size - self.answer
        self.answer = size
        return self._budget.fits()

    def drop_request(self) -> None:
        """Stop counting the request, because it is not kept any more."""
        self._budget.used -= self._request
        self._request = 0

    def close(self) -> None:
        """Stop counting everything, because nothing is kept. May be called again."""
        self._budget.used -= self._request + self.answer
        self._request = self.answer = 0
