"""A circuit breaker: records failures, and decides whether the server may be used. It does no IO and never waits.

    closed --record_failure--> open, for a pause --is_due, once a pause--> (a probe) --close--> closed

While the circuit is open, the server gets only one probe at the end of each pause. Each pause is twice as long as the
previous one, up to `LONGEST_PAUSE_S`. A circuit that was closed for that long starts with `FIRST_PAUSE_S` again.
"""

import math
from collections.abc import Callable
from typing import Final

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


class Breaker:
    """One circuit, closed at first. `clock` returns seconds from any start, such as `time.monotonic`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pause_s = FIRST_PAUSE_S
        self._closed_at = -math.inf
        self._due_at = 0.0
        self.closed = True

    def record_failure(self) -> bool:
        """Record a failure of the server; returns True if that opens the circuit."""
        if not self.closed:
            return False
        now = self._clock()
        if now - self._closed_at >= LONGEST_PAUSE_S:
            self._pause_s = FIRST_PAUSE_S
        self.closed = False
        self._wait(now)
        return True

    def is_due(self) -> bool:
        """Whether a probe is due; True once at the end of each pause."""
        now = self._clock()
        if self.closed or now < self._due_at:
            return False
        self._wait(now)
        return True

    def close(self) -> None:
        """Close the circuit, after the server has answered a probe."""
        self._closed_at = self._clock()
        self.closed = True

    def _wait(self, now: float) -> None:
        self._due_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
