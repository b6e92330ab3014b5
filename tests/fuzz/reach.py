"""Which branches of callfuse are taken, so that a search knows a case that has reached something new.

An edge is a branch and where it went (Python 3.12 and later, `sys.monitoring`), or two lines of one function that have
run one after another (3.11, `sys.settrace`, which takes several times as long). Edges are numbers of this process: they
are compared, never kept.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import callfuse

Edge = tuple[int, int, int]
PACKAGE: Final = str(Path(callfuse.__file__).parent)
TOOL: Final = 4
"""A number that no known tool of `sys.monitoring` has."""


class Reach:
    """Records the edges in files whose paths begin with `prefix`, from `start` to `stop`."""

    def __init__(self, prefix: str = PACKAGE) -> None:
        self._prefix = prefix
        self._found: set[Edge] = set()
        self._before: Any = None

    def take(self) -> set[Edge]:
        """The edges since the last time."""
        found, self._found = self._found, set()
        return found

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing meanwhile: it would take longer."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    if sys.version_info >= (3, 12):

        def start(self) -> None:
            """Begin to record."""
            monitoring = sys.monitoring
            monitoring.use_tool_id(TOOL, "callfuse fuzz")
            monitoring.register_callback(TOOL, monitoring.events.BRANCH, self._branch)
            monitoring.register_callback(TOOL, monitoring.events.PY_START, self._begin)
            monitoring.set_events(TOOL, monitoring.events.BRANCH | monitoring.events.PY_START)

        def stop(self) -> None:
            """Record no more."""
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.free_tool_id(TOOL)

        def _branch(self, code: CodeType, offset: int, to: int) -> Any:
            if not code.co_filename.startswith(self._prefix):
                return sys.monitoring.DISABLE
            self._found.add((id(code), offset, to))
            return None

        def _begin(self, code: CodeType, offset: int) -> Any:
            return self._branch(code, offset, -1)

    else:

        def start(self) -> None:
            """Begin to record."""
            self._before = sys.gettrace()
            sys.settrace(self._call)

        def stop(self) -> None:
            """Record no more."""
            sys.settrace(self._before)

        def _call(self, frame: FrameType, _event: str, _value: object) -> Any:
            code = frame.f_code
            if not code.co_filename.startswith(self._prefix):
                return None
            number, last, found = id(code), 0, self._found

            def line(frame: FrameType, event: str, _value: object) -> Any:
                nonlocal last
                if event == "line":
                    found.add((number, last, frame.f_lineno))
                    last = frame.f_lineno
                return line

            return line
