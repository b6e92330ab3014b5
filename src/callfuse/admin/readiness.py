"""Tell load balancers and orchestrators whether this process should get requests.

Some failures can only be cleared by requests. They count for `FAILED_FOR_S` seconds, because a process without requests
would otherwise never be ready again.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

from callfuse.config.serve import FAILED_FOR_S
from callfuse.observe.bus import Bus
from callfuse.observe.events import Event, StoreDown, StoreFailed, StoreUp

State = Literal["ok", "unknown", "failed"]
PARTS: Final = ("settings", "upstream", "store", "serving")
"""The parts that must work: the settings are valid; an upstream was reached at its last try; the store, or memory, is
in use; the process does not stop."""


class Readiness:
    """The state of each part, and a sink of the store's events. Only `ok` and `unknown` are ready.

    `upstream`: returns whether one was reached at its last try, None if unknown. `draining`: set once the process must
    stop. `clock` returns seconds.
    """

    kinds: Final = frozenset({StoreDown, StoreFailed, StoreUp})

    def __init__(
        self, upstream: Callable[[], bool | None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.draining = False
        self._upstream = upstream
        self._clock = clock
        self._down = set[str]()
        self._store_failed_at = 0.0

    def watch(self, bus: Bus) -> None:
        """Take the events of the store from now on."""
        bus.add(self)

    def take(self, event: Event) -> None:
        """Take an event of the store."""
        if isinstance(event, StoreUp):
            self._down.discard(event.store)
            return
        if isinstance(event, StoreDown):
            self._down.add(event.store)
        if self._down:
            self._store_failed_at = self._clock()

    def states(self) -> dict[str, State]:
        """Return the state of each part, by its name in `PARTS`."""
        reached = self._upstream()
        upstream: State = "unknown" if reached is None else "ok" if reached else "failed"
        store: State = "ok"
        if self._down:
            store = "failed" if self._clock() - self._store_failed_at < FAILED_FOR_S else "unknown"
        return {"settings": "ok", "upstream": upstream, "store": store, "serving": "failed" if self.draining else "ok"}
