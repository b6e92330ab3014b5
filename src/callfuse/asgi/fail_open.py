"""Catch callfuse's own errors, so that no step of an exchange raises into the host or the app.

    stage = fail_open.stage("while keeping")
    with stage:
        await keep(record)
    if stage.failed:
        ...

Every step that could fail runs inside a stage: preparing a request, adding texts, watching or guarding an answer,
asking again, repairing, the callback, reporting and keeping. No stage surrounds calls of the app, or of the server's
`receive` and `send`: their errors are not callfuse's.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType

from callfuse.boundary import Boundary
from callfuse.observe.bus import Bus
from callfuse.observe.events import FailedOpen


class Stage(Boundary):
    """Surrounds one step of an exchange. An error is reported and suppressed, and sets `failed`.

    May be entered any number of times; `failed` stays set.
    """

    __slots__ = ("_report", "failed")

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self.error = None  # as in the base class, without another call
        self._keep_traceback = self.failed = False
        self._report = report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:  # checked first: this runs for every chunk
            return False
        if not super().__exit__(kind, error, traceback) or self.error is None:
            return False
        self.failed = True
        raised, self.error = self.error, None  # its traceback would keep bodies alive
        with Boundary():  # a log handler may raise, as may the error's `__str__`
            self._report(raised)
        return True


class FailOpen:
    """Reports why calls passed unjudged. Causes are counted, and each is logged once, at ERROR."""

    __slots__ = ("_bus", "_session")

    def __init__(self, bus: Bus, session: str = "-") -> None:
        self._bus = bus
        self._session = session

    def stage(self, what: str) -> Stage:
        """Return a stage whose errors are reported as `KeyError while keeping: ...`; `what` follows the type."""
        return Stage(partial(self._report_error, what))

    def report(self, cause: str) -> None:
        """Report a cause. The part before the first colon is its kind."""
        self._bus.emit(FailedOpen(cause, self._session))

    def _report_error(self, what: str, error: Exception) -> None:
        text = ""
        with Boundary():
            text = str(error)
        self.report(f"{type(error).__name__} {what}: {text}")
