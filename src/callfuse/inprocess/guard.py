"""What is done around a tool, however it is called: asked before it runs, told what it brought."""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from callfuse.inprocess.detection import LoopDetection
from callfuse.inprocess.detector import LoopDetector
from callfuse.inprocess.results import ToolLoopError
from callfuse.model import ToolCall
from callfuse.policy.settings import Rung


class Guard:
    """One detector around the tools of one agent."""

    def __init__(self, detector: LoopDetector, attach: Callable[[Any, str], Any], *, raise_on_block: bool) -> None:
        self.detector = detector
        self._attach = attach
        self._raise_on_block = raise_on_block
        self._running: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def check(self, calls: Sequence[ToolCall]) -> list[LoopDetection | None]:
        """What is found in the calls of one answer; may raise ToolLoopError."""
        found = self.detector.check_round(calls)
        blocks = [one for one in found if one is not None and one.action is Rung.BLOCK]
        if self._raise_on_block and blocks and all(one is not None and one.withholds for one in found):
            raise ToolLoopError(blocks[0])
        return found

    def given_back(self, found: LoopDetection) -> Any:
        """What the model gets in place of a call that does not run."""
        if found.previous is None:
            return found.message
        return self._attach(found.previous.content, found.message)

    def ran(
        self, call: ToolCall, found: LoopDetection | None, result: object, *, is_error: bool | None = None
    ) -> tuple[str, LoopDetection | None]:
        """A call has run: the text that goes to the model with its result, and what is found of it by now."""
        late = self.detector.record(result, call, is_error=is_error)
        return "\n\n".join(one.message for one in (found, late) if one is not None and one.message), late or found

    def with_text(self, result: Any, text: str) -> Any:
        """A result with the text behind it, if there is one."""
        return self._attach(result, text) if text else result

    def starts(self, call: ToolCall) -> bool:
        """A call begins; whether no equal one is running. Calls of one time came together, and equal ones are one."""
        with self._lock:
            self._running[call.name, call.text] += 1
            return self._running[call.name, call.text] == 1

    def ends(self, call: ToolCall) -> None:
        """A call has run, or does not."""
        with self._lock:
            self._running[call.name, call.text] -= 1
            self._running += Counter()  # only what is running stays
