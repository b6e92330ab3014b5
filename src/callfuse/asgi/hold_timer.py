"""Send heartbeats while bytes are held, and end a hold after `max_hold_s` seconds."""

import math
from collections.abc import Callable

import anyio

from callfuse.asgi.fail_open import Stage
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.tally import HoldMeter
from callfuse.observe import log
from callfuse.policy.settings import LoopSettings

_SHORTEST_S = 0.001
"""The shortest sleep, in seconds, because the clock may be coarser than the time left."""


class HoldTimer:
    """Times the holds of one client's answer. `held_since`: when the current hold began, in seconds of the event loop;
    None if nothing is held. `is_running`: its task runs."""

    __slots__ = ("_client", "_guard", "_heartbeat", "_meter", "_scope", "_settings", "held_since", "is_running")

    def __init__(
        self, guard: SafeGuard, client: ClientStream, settings: LoopSettings, heartbeat: bytes, meter: HoldMeter
    ) -> None:
        self.held_since: float | None = None
        self._guard = guard
        self._client = client
        self._settings = settings
        self._heartbeat = heartbeat
        self._meter = meter
        self.is_running = False
        self._scope: anyio.CancelScope | None = None

    def update(self) -> bool:
        """Note whether a hold has begun or ended. Returns True if `run` must be started."""
        self._meter.note()
        if not self._guard.state.held_bytes:
            self.held_since = None
        elif self.held_since is None:
            self.held_since = anyio.current_time()
        if self.is_running or not self._guard.state.holding:
            return False
        self.is_running = self._client.shared = True
        self._client.last_sent = anyio.current_time()
        return True

    def stop(self) -> None:
        """Stop `run`, and end any hold."""
        self._meter.cut()
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, cancel_call: Callable[[], None]) -> None:
        """Send heartbeats during a hold, and end a hold that takes too long. If another answer of the model is pending,
        call `cancel_call` instead."""
        with Stage(log.heartbeat_failure):  # the client has left; the app's own `send` reports that
            with anyio.CancelScope() as self._scope:
                while self._guard.state.holding and not self._client.closed:
                    await self._step(cancel_call)
        self.is_running, self._scope = False, None

    async def _step(self, cancel_call: Callable[[], None]) -> None:
        """Do what is due now, and sleep until the next event."""
        now = anyio.current_time()
        deadline = math.inf
        if self.held_since is not None and not self._guard.state.needs_verdict:
            deadline = self.held_since + self._settings.max_hold_s
        if now >= deadline:
            self.held_since = None
            if self._guard.state.pending:
                cancel_call()
            else:
                out = self._guard.fail("max_hold_s")
                self._meter.note()  # first, because a write may never return
                await self._client.write(out)
            return
        if now >= self._client.last_sent + self._settings.heartbeat_s:
            self._client.last_sent = now
            await self._client.write(self._heartbeat)
        wake = min(deadline, self._client.last_sent + self._settings.heartbeat_s)
        await anyio.sleep(max(_SHORTEST_S, wake - now))
