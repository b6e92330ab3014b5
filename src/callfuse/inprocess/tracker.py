"""`ToolCallTracker`: a minimal interface, one method that says whether a call may run."""

import time
from collections.abc import Callable

from callfuse.config import Source
from callfuse.inprocess.detector import LoopDetector
from callfuse.model import ToolCall


class ToolCallTracker:
    """Decides for each call of an agent run whether it may run.

    `config` and `clock` (seconds) are those of `LoopDetector`; `detector` is the detector in use, with `new_turn()`,
    `clear()` and `stats`. Recording results is optional; without it, a call whose results differ each time counts as a
    repeat.
    """

    def __init__(self, config: Source | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.detector = LoopDetector(config, clock=clock)

    def track_tool_call(self, name: str, arguments: object) -> tuple[bool, str | None, int]:
        """Check a call. Returns whether it is blocked, the text for the model (None: no text), and a count.

        `arguments` are JSON text or a mapping; raises TypeError for anything else. If the call is blocked, the text
        replaces its result; if not, the call runs, and the text follows its result. The count is the number of equal
        calls in a row, including this one, or the count of the finding, in its unit.
        """
        call = ToolCall("", name, arguments)
        count = self.detector.repeats(call)
        found = self.detector.check(call)
        if found is None:
            return False, None, count
        return found.withholds, found.message or None, found.count

    def record_result(self, result: object, *, is_error: bool | None = None) -> str | None:
        """Record the result of the last call (see `LoopDetector.record`). Returns a text to append to it, or None."""
        found = self.detector.record(result, is_error=is_error)
        return found.message or None if found else None
