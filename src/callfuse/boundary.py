"""The boundary that no error of callfuse's own passes: every broad catch of the project is made here.

    with Boundary() as boundary:
        out = risky()
    if boundary.error is not None:
        out = what_was_held

Only `Exception` is caught: cancellation and the end of the process go on. The error is kept without its traceback,
whose frames would keep alive everything that they refer to (bodies, buffers) as long as somebody holds the error;
`Boundary(keep_traceback=True)` keeps it, for errors that are shown to people or raised again.
"""

from types import TracebackType
from typing import Self


class Boundary:
    """Catches what its block raises; afterwards `error` is that exception, or None. Works around `await`, too."""

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
        """The error in one line, for logs and counts: its type and message; empty where there was none."""
        return f"{type(self.error).__name__}: {self.error}" if self.error is not None else ""
