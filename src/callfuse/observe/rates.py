"""Counts events in buckets of time, for counters and sparklines: the newest buckets, and a total since the start."""

from collections import defaultdict, deque
from typing import Final

BUCKET_S: Final = 10
"""Seconds of a bucket."""
BUCKETS: Final = 90
"""Buckets that are kept: fifteen minutes."""


class Rates:
    """Amounts by name, in total and for each of the last `BUCKETS` buckets. `now` is in Unix seconds."""

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self._buckets: deque[tuple[int, defaultdict[str, float]]] = deque(maxlen=BUCKETS)

    def add(self, name: str, now: float, amount: float = 1) -> None:
        """Add an amount to a name."""
        self.totals[name] += amount
        at = int(now // BUCKET_S)
        if not self._buckets or self._buckets[-1][0] < at:
            self._buckets.append((at, defaultdict(float)))
        self._buckets[-1][1][name] += amount

    def series(self, now: float) -> dict[str, list[float]]:
        """The amounts of each name, the oldest bucket first, up to the one that holds `now`."""
        first = int(now // BUCKET_S) - BUCKETS + 1
        found = {name: [0.0] * BUCKETS for name in self.totals}
        for at, amounts in self._buckets:
            for name, amount in amounts.items() if 0 <= at - first < BUCKETS else ():
                found[name][at - first] = amount
        return found
