"""Events of this process that wait until somebody looks at the live page, and what is counted meanwhile.

A process at which nobody looks only counts: the events wait as they are, the newest `MOST_BYTES` of them, and are made
into sessions and beads (`observe/activity.py`) when somebody comes (`observe/view.py`).
"""

from threading import Lock
from typing import Final

from callfuse.observe.events import Event
from callfuse.observe.kept import KeptEvent
from callfuse.observe.rates import Rates
from callfuse.observe.ring import Entry, Ring

MOST_WAITING: Final = 50_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Events that wait at most, and their bytes, about."""


class Backlog:
    """The newest events that nobody has looked at, and the rates of all. To be used from any thread."""

    def __init__(self) -> None:
        self.rates = Rates()
        self._waiting = _ring()
        self._lock = Lock()

    def take(self, event: Event, kept: KeptEvent, entry: Entry) -> None:
        """Count an event, and add it as it is `kept` in an `entry` of the feed."""
        self.rates.take(event, kept.time, kept.saved, kept.tokens)
        with self._lock:
            self._waiting.add(entry)

    def drain(self) -> list[Entry]:
        """Take the events that wait, oldest first."""
        with self._lock:
            waiting, self._waiting = self._waiting, _ring()
        return list(waiting)


def _ring() -> Ring:
    return Ring((0, 0), MOST_WAITING, MOST_BYTES)
