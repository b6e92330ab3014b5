"""Collect the figures of one exchange while it runs, and report them once, when it is over for any reason.

    tally = Tally(bus, dialect)
    try:
        ...  # tally.where, tally.mode, tally.cause, tally.status, ... as they are known
        tally.returned = True
    finally:
        tally.end(gone=body.gone)

It adds no work to a text chunk: the reader of the answer notes its status.
"""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.types import Message, Send
from callfuse.config.serve import Route
from callfuse.dialects import Dialect
from callfuse.guard.step import Step
from callfuse.observe.bus import Bus
from callfuse.observe.events import (
    Decided,
    ExchangeEnded,
    HoldBegan,
    HoldEnded,
    NotGuarded,
    NotWatched,
    Where,
)
from callfuse.observe.exchanges import KeptExchanges

OWN_ERROR: Final = "error"
"""The cause of an exchange that passed because of an error of callfuse."""
DISABLED: Final = "disabled"
"""The cause of an exchange that the settings exempt."""


class ExchangeTimes:
    """The times of one exchange, in seconds from any start. `read`: the request's body was read; `called`: the app was
    called; `first_byte`: the first byte of the app's first answer, 0 before it. `held_s`: total seconds of ended holds;
    `asked_s`: the part of it after the model was asked again."""

    __slots__ = ("asked_s", "began", "called", "first_byte", "held_s", "read")

    def __init__(self, now: float) -> None:
        self.began = self.read = self.called = now
        self.first_byte = self.held_s = self.asked_s = 0.0


class InFlight:
    """Counts the running `exchanges` of a middleware. `kept`: exchanges whose answers are kept for the admin page."""

    __slots__ = ("exchanges", "kept")

    def __init__(self) -> None:
        self.exchanges = 0
        self.kept = KeptExchanges()


class Tally:
    """The account of one exchange. `route`: the route of its path, if any.

    `where`: the dialect only, until the session is known. `mode`, `cause`, `status`, `calls`, `action`, `route`: as in
    `ExchangeEnded`. `returned`: the app's call, or callfuse's own answer, is complete. `broke_off`: the client's answer
    is not. `withheld`, `failures`: the numbers of reported verdicts that withheld a call, and of reported causes of
    failing open.
    """

    __slots__ = (
        "_bus",
        "_hold",
        "action",
        "broke_off",
        "calls",
        "cause",
        "failures",
        "mode",
        "returned",
        "route",
        "status",
        "times",
        "where",
        "withheld",
    )

    def __init__(self, bus: Bus, dialect: Dialect, route: Route | None = None) -> None:
        self.times = ExchangeTimes(perf_counter())
        self.where = Where("-", "", "", "", (route and route.backend) or dialect.backend, dialect.name)
        self.route = "/" if route is None else route.path
        self.mode = "passed"
        self.cause = self.action = ""
        self.status = self.calls = self.withheld = self.failures = 0
        self.returned = self.broke_off = False
        self._bus = bus
        self._hold: HoldMeter | None = None

    def unguarded(self, cause: str) -> None:
        """Report that the exchange passes unguarded, with its cause."""
        self.cause = cause
        self._bus.emit(NotGuarded(cause, self.where))

    def unwatched(self, cause: str) -> None:
        """Report that the healthy answer is not read, with the cause."""
        self.cause = cause
        self._bus.emit(NotWatched(cause, self.where))

    def noting_status(self, send: Send) -> Send:
        """Wrap `send` to note the status of an answer that nothing else reads."""

        def noting(message: Message) -> Awaitable[None]:
            if not self.status and message["type"] == "http.response.start":
                self.status = message["status"]
            elif not self.times.first_byte and self.mode != "answered" and message.get("body"):
                self.times.first_byte = perf_counter()
            return send(message)

        return noting

    async def time_decision(self, decision: Awaitable[Step]) -> Step:
        """Await a decision about calls, and report its duration."""
        began = perf_counter()
        step = await decision
        self._bus.emit(Decided(self.where, perf_counter() - began))
        return step

    def measure_holds(self, guard: SafeGuard, tell: Callable[[], None]) -> "HoldMeter":
        """Measure the holds of a guard from now on. A hold still open at the end of the exchange ends then. `tell`:
        called to report a hold that ended by a failure."""
        self._hold = HoldMeter(self, self._bus, guard, tell)
        return self._hold

    def end(self, *, gone: bool) -> None:
        """Report the exchange, which is over. `gone`: the client has left before its end."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.cut()
        ending = "complete" if self.returned else "error"
        if gone:
            ending = "client gone"
        elif self.broke_off and self.returned:
            ending = "broke off"
        cause = self.cause or (OWN_ERROR if self.mode == "passed" else "")
        times, now = self.times, perf_counter()
        first_byte_s = times.first_byte and times.first_byte - times.began
        self._bus.emit(
            ExchangeEnded(
                *(self.where, self.mode, ending, cause, self.status, self.calls, self.action, now - times.began),
                *(times.held_s, times.asked_s, times.called - times.read, first_byte_s, self.route),
            )
        )


class HoldMeter:
    """Measures how long bytes of one client's answer wait, until they or the bytes of another answer are sent."""

    __slots__ = ("_asked_at", "_before", "_bus", "_guard", "_since", "_size", "_tally", "_tell")

    def __init__(self, tally: Tally, bus: Bus, guard: SafeGuard, tell: Callable[[], None]) -> None:
        self._tally = tally
        self._tell = tell
        self._bus = bus
        self._guard = guard
        self._since: float | None = None
        self._size = 0
        self._asked_at = 0.0
        self._before = (0, 0)

    def note(self) -> None:
        """Note whether bytes are held. Called whenever that may have changed."""
        state = self._guard.state
        if state.holding or state.pending:
            if self._since is None:
                self._begin()
            if state.pending and not self._asked_at:
                self._asked_at = perf_counter()
            if state.held_bytes > self._size:
                self._size = state.held_bytes
        elif self._since is not None:
            self._end(self._since)

    def cut(self) -> None:
        """End the hold, because the answer ends here. May be called again, with the same bytes still in the guard."""
        if self._since is not None:
            self.note()
        if self._since is not None:
            self._end(self._since, how="cut")

    def _begin(self) -> None:
        self._since, self._size, self._asked_at = perf_counter(), 0, 0.0
        self._guard.most_held = 0
        self._before = self._done()
        self._bus.emit(HoldBegan(self._tally.where))

    def _done(self) -> tuple[int, int]:
        """Return the numbers of verdicts that withheld calls and of causes of failing open, so far."""
        return self._tally.withheld, self._tally.failures + len(self._guard.record.fail_open)

    def _end(self, since: float, how: str = "") -> None:
        now = perf_counter()
        seconds = now - since
        self._since = None
        self._tally.times.held_s += seconds
        if self._asked_at:
            self._tally.times.asked_s += now - self._asked_at
        withheld, failures = self._done()
        if not how:
            how = "withheld" if self._asked_at or withheld > self._before[0] else "released"
            how = "failed" if failures > self._before[1] else how
        self._bus.emit(HoldEnded(self._tally.where, seconds, max(self._size, self._guard.most_held), how))
        if failures > self._before[1]:  # the answer may continue for minutes, or be cancelled
            self._tell()
