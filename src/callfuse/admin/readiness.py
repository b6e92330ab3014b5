"""Whether this process should get requests: for the probes of load balancers and orchestrators.

What cannot be known without requests, and has failed, counts as failed for `FAILED_FOR_S` seconds: a process that gets
none would else never be ready again.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

from callfuse.config.serve import FAILED_FOR_S
from callfuse.observe.bus import Bus
from callfuse.observe.events import Event, StoreDown, StoreFailed, StoreUp

State = Literal["ok", "unknown", "failed"]
PARTS: Final = ("settings", "upstream", "store", "serving")
"""What has to be right: the settings are read; an upstream was reached at the last try; the store is used, or memory
is; the process does not stop."""


class Readiness:
    """The state of each part, and a sink of what happens to the store. Only `ok` and `unknown` are ready.

    `upstream`: whether one was reached at the last try, None if that is not known. `draining` is set once the process
    has been told to stop. `clock` returns seconds.
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
