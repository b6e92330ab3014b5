"""`AgentRuns`: the detectors of an agent's conversations, for adapters to frameworks that run calls themselves.

A framework reports an answer of the model (`AgentRun.begin`), asks before each of its calls (`withheld`), and reports
the result of each call that ran (`finish`). The adapter decides how a run ends, and how texts are added to results.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import RLock
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

from callfuse.config import Source, load_config
from callfuse.inprocess.detection import LoopDetection, joined_messages
from callfuse.inprocess.detector import LoopDetector, OnLoop
from callfuse.inprocess.tools import ToolLoopError
from callfuse.inprocess.values import append_text
from callfuse.model import ToolCall

OnBlock = Literal["end", "continue", "raise"]
"""What happens if a block leaves no call of an answer to run: `end`: the run ends with the text of the block;
`continue`: the text is the result of the call; `raise`: `ToolLoopError` is raised."""

_SAFE: Final = " !#$&'()*+,:;=?@[]|"
"""Characters that stay unquoted in a part of a name: all printable ones except `/` and `%`."""
MAX_RUNS: Final = 1000
"""The most conversations that are kept: each has at most `max_rounds` rounds and 32 results."""


class AgentRun:
    """One conversation of an agent: its detector, and the findings in the model's newest answer.

    Every method may be called from several threads.
    """

    def __init__(self, detector: LoopDetector, on_block: OnBlock = "end") -> None:
        self.detector = detector
        self.ended: LoopDetection | None = None
        """The block that ends the run, found in the newest answer; None if the run continues."""
        self._on_block = on_block
        self._lock = RLock()
        self._answer: Hashable = None
        self._turn: Hashable = None
        self._judged: dict[str, tuple[ToolCall, LoopDetection | None]] = {}

    def begin(self, calls: Sequence[ToolCall], answer: Hashable = None) -> None:
        """Judge all calls of an answer of the model, before any runs.

        `answer` identifies the answer: the one that was judged last is not judged again. None, the default: it is new.
        Raises ToolLoopError if no call is left to run and `on_block` is `raise`.
        """
        with self._lock:
            if answer is None or answer != self._answer:
                self._answer = answer
                found = self.detector.check_round(calls)
                self._judged = {call.id: (call, one) for call, one in zip(calls, found, strict=True)}
                self.ended = None if self._on_block == "continue" else _ending(found)
            if self.ended is not None and self._on_block == "raise":
                raise ToolLoopError(self.ended)

    def withheld(self, call_id: str) -> LoopDetection | None:
        """Return the finding that keeps a call of the newest answer from running; None if the call runs."""
        _, found = self._judged.get(call_id, (None, None))
        return found if found is not None and found.withholds else None

    def finish(self, call_id: str, result: object, *, is_error: bool | None = None) -> str:
        """Record the result of a call of the newest answer, or the exception that it raised. Returns the text to add
        for the model; empty if there is none."""
        call, found = self._judged.get(call_id, (None, None))
        if call is None or (found is not None and found.withholds):
            return ""
        return joined_messages(found, self.detector.record(result, call, is_error=is_error))

    def begin_turn(self, turn: Hashable) -> None:
        """Set the user message that the run is about. A new message resets streaks."""
        with self._lock:
            if turn != self._turn and self._turn is not None:
                self.detector.new_turn()
                self._answer, self._judged, self.ended = None, {}, None
            self._turn = turn


def name_of(*parts: str) -> str:
    """Make a name for a conversation from several parts. Different parts never give the same name."""
    return "/".join(quote(part, safe=_SAFE) for part in parts)


def _ending(found: Sequence[LoopDetection | None]) -> LoopDetection | None:
    """Return the block of an answer whose calls do not run; None if a call runs, or nothing is blocked."""
    withheld = [one for one in found if one is not None and one.action is not None and one.action.withholds]
    if len(withheld) < len(found):
        return None
    return next((one for one in withheld if one.action is not None and one.action.blocks), None)


def substitute(found: LoopDetection) -> Any:
    """Return the result of a withheld call for the model: the previous one, if kept, with callfuse's text."""
    return append_text(found.previous.content, found.message) if found.previous is not None else found.message


class AgentRuns:
    """The conversations of one agent by name, each with its own detector.

    `config`, `on_loop` and `enabled` are those of `LoopDetector`; settings are read once. `on_block` is `end` (the
    default), `continue` or `raise`; raises ValueError for anything else. The `max_runs` last used conversations are
    kept.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        on_block: OnBlock = "end",
        enabled: bool = True,
        max_runs: int = MAX_RUNS,
    ) -> None:
        if on_block not in get_args(OnBlock):
            raise ValueError(f"on_block = {on_block!r}: use {', '.join(get_args(OnBlock))}")
        self._config = load_config(config)
        self._on_loop = on_loop
        self._on_block: OnBlock = on_block
        self._enabled = enabled
        self._max_runs = max_runs
        self._lock = RLock()
        self._runs: OrderedDict[str, AgentRun] = OrderedDict()
        self.new("-")  # raises errors of `on_loop`

    def new(self, name: str) -> AgentRun:
        """Make a run that is not kept here. `name` is for log lines."""
        detector = LoopDetector(self._config, on_loop=self._on_loop, enabled=self._enabled, session=name)
        return AgentRun(detector, self._on_block)

    def get(self, name: str, turn: Hashable = None) -> AgentRun:
        """Return the run of this name, and create it if there is none. `turn` names the newest message of the user (see
        `AgentRun.begin_turn`); None if there is no new one."""
        with self._lock:
            if name not in self._runs:
                self._runs[name] = self.new(name)
            self._runs.move_to_end(name)
            if len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
            run = self._runs[name]
        if turn is not None:
            run.begin_turn(turn)
        return run
