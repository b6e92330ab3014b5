"""Count events in buckets of time, for counters and sparklines: the newest buckets, and a total since the start."""

from collections import defaultdict, deque
from threading import Lock
from typing import Final

BUCKET_S: Final = 10
"""Seconds of a bucket."""
BUCKETS: Final = 90
"""Buckets that are kept: fifteen minutes."""


class Rates:
    """Amounts by name, in total and for each of the last `BUCKETS` buckets. `now` is in Unix seconds. May be used from
    any thread."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._buckets: deque[tuple[int, defaultdict[str, float]]] = deque(maxlen=BUCKETS)
        self._lock = Lock()

    def add(self, name: str, now: float, amount: float = 1) -> None:
        """Add an amount to a name."""
        at = int(now // BUCKET_S)
        with self._lock:
            self._totals[name] += amount
            if not self._buckets or self._buckets[-1][0] < at:
                self._buckets.append((at, defaultdict(float)))
            self._buckets[-1][1][name] += amount

    def totals(self) -> dict[str, float]:
        """Return the amount of each name since the start."""
        with self._lock:
            return dict(self._totals)

    def series(self, now: float) -> dict[str, list[float]]:
        """Return the amounts of each name, the oldest bucket first, up to the one that contains `now`."""
        first = int(now // BUCKET_S) - BUCKETS + 1
        with self._lock:
            found = {name: [0.0] * BUCKETS for name in self._totals}
            for at, amounts in self._buckets:
                for name, amount in amounts.items() if 0 <= at - first < BUCKETS else ():
                    found[name][at - first] = amount
        return found
