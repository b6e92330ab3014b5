"""`ToolCallTracker`: one question a call, for agents that want a yes or a no."""

import time
from collections.abc import Callable

from callfuse.config import Source
from callfuse.inprocess.detector import LoopDetector
from callfuse.model import ToolCall


class ToolCallTracker:
    """Tells of each call of an agent run whether it is to run.

    `config` and `clock` are those of `LoopDetector`; `detector` is the one behind it, with `new_turn()`, `clear()` and
    `stats`. Results need not be recorded; without them, calls that bring something new each time look like any others.
    """

    def __init__(self, config: Source | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.detector = LoopDetector(config, clock=clock)

    def track_tool_call(self, name: str, arguments: object) -> tuple[bool, str | None, int]:
        """Whether this call must not run, what the model is to read (None: nothing), and how often it has come.

        `arguments` are JSON text or a mapping; TypeError for anything else. With a reason but not blocked, the call
        runs, and the reason goes behind its result; blocked, the reason goes in place of it. The count is of equal
        calls in a row with this one, or, where something is found, in the unit of what was found.
        """
        call = ToolCall("", name, arguments)
        count = self.detector.repeats(call)
        found = self.detector.check(call)
        if found is None:
            return False, None, count
        return found.withholds, found.message or None, found.count

    def record_result(self, result: object, *, is_error: bool | None = None) -> str | None:
        """Note what the last call has brought (see `LoopDetector.record`): a reason to go behind it, or None."""
        found = self.detector.record(result, is_error=is_error)
        return found.message or None if found else None
