"""The only broad catches in callfuse: errors inside a `Boundary` block never reach the host.

    with Boundary() as boundary:
        out = risky()
    if boundary.error is not None:
        out = what_was_held

Only `Exception` is caught; cancellation, KeyboardInterrupt and SystemExit pass. The traceback is dropped, because its
frames would keep bodies and buffers alive as long as the error; `Boundary(keep_traceback=True)` keeps it, for errors
that are logged with it or raised again. `TaskBoundary` catches more, and is for callbacks.
"""

from types import TracebackType
from typing import Final, Self

FOR_THE_HOST: Final = (KeyboardInterrupt, SystemExit)
"""Exceptions that always pass, because they end the host process."""


class Boundary:
    """Catches any `Exception` of its block; `error` is then that exception, else None. The block may hold `await`."""

    __slots__ = ("_keep_traceback", "error")

    def __init__(self, *, keep_traceback: bool = False) -> None:
        self.error: Exception | None = None
        self._keep_traceback = keep_traceback

    def __enter__(self) -> Self:
        self.error = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error if self._keep_traceback else error.with_traceback(None)
        return True

    @property
    def cause(self) -> str:
        """Type and message of the error, for logs and counts; empty if there is none."""
        if self.error is None:
            return ""
        message = "(it cannot be printed)"
        with Boundary():  # a value in the message may be nested too deep to be printed
            message = str(self.error)
        return f"{type(self.error).__name__}: {message}"


class TaskBoundary:
    """Catches what a callback in its own task raises, even if it is no `Exception`: a test framework's `fail`, a
    time-out of gevent, GeneratorExit, an exception group. `error` is then the caught exception, with its traceback.

    A cancellation of the task passes (`cancelled`: the event loop's exception class), and so does `FOR_THE_HOST`.
    """

    __slots__ = ("_passes", "error")

    def __init__(self, cancelled: type[BaseException]) -> None:
        self.error: BaseException | None = None
        self._passes = (*FOR_THE_HOST, cancelled)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, self._passes):
            return False
        if isinstance(error, BaseExceptionGroup) and error.subgroup(self._passes) is not None:
            return False
        self.error = error
        return True
