"""The settings of the `tool_call_loop` block, validated; defaults are the ones the recorded runs support.

`LoopSettings` is what holds for every tool; `for_tool` gives what holds for one, with its `per_tool` entries applied.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from callfuse.policy.fields import (
    MODES,
    PLACEHOLDERS,
    Bytes,
    Ladder,
    Repeats,
    Rung,
    Seconds,
    Strict,
    Template,
    Whole,
    limit,
)
from callfuse.policy.fields import ladder as to_ladder

__all__ = ["MODES", "PLACEHOLDERS", "ErrorMessages", "ForTool", "Ladder", "LoopSettings", "Rung", "Strict"]

POLLERS = (
    "*wait*",
    "*poll*",
    "*sleep*",
    "*_job_status",
    "get_task_status",
    "write_stdin",
    "bashoutput",
    "taskoutput",
    "monitor",
)
"""Tools that are called again and again by their nature. Not `*status*`, which names readers."""
TOOLS_KEPT = 1000
"""Tools whose settings are kept once they are worked out: names come from outside."""


class ErrorMessages(Strict):
    """Every text that callfuse writes into a conversation; None keeps the built-in one."""

    block: Template | None = None
    warning: Template | None = None
    guidance: Template | None = None


class Similarity(Strict):
    """How alike two sets of arguments are."""

    algorithm: Literal["levenshtein", "jaccard"] = "levenshtein"
    normalize_whitespace: bool = True
    ignore_case: bool = True


class Detectors(Strict):
    """Soft limits by kind; a finding is hard at twice that. `false` is off."""

    no_news: Annotated[int, limit("rounds", 4)] = 4
    """Rounds in a row that bring nothing but known calls with known outcomes."""
    cycle: Annotated[int, limit("laps", 2)] = 2
    """Laps of one sequence of 2 to 5 rounds."""
    same_error: Annotated[int, limit("rounds", 4)] = 4
    """Rounds of one tool that end in the same error, whatever the arguments. Warns at most."""
    unknown_tool: Annotated[int, limit("calls", 3)] = 3
    """Calls in a row of tools that the request does not declare."""
    stagnation: Annotated[int, limit("calls", 6)] = 0
    """Different calls in a row that bring the same outcome. Off by default."""


class ToolSettings(Strict):
    """What is different for the tools of a name; None leaves the value of the tier below."""

    mode: Annotated[Ladder, BeforeValidator(to_ladder)] | None = None
    max_repeats: Repeats | None = None
    max_repeats_changing: Repeats | None = None
    ttl_seconds: Seconds | None = None
    similarity_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    max_calls: Annotated[Whole, Field(ge=0)] | None = None
    """Calls of this tool in a timeline."""
    enabled: bool | None = None
    poller: bool | None = None
    """Whether it is called again and again by its nature: then every limit is `poll_factor` times as high."""
    changes_state: bool | None = None
    """Whether a successful call of it is progress, whatever it returns."""
    ignore: tuple[str, ...] | None = None
    """Names of arguments that do not tell calls apart: time stamps, request ids."""


class ForTool(NamedTuple):
    """What holds for one tool."""

    settings: "LoopSettings"
    poller: bool
    changes_state: bool
    ignore: frozenset[str]


class LoopSettings(Strict):
    """The `tool_call_loop` block. Times are seconds, sizes are bytes."""

    enabled: bool = True
    """Off means: not one byte is parsed."""
    mode: Annotated[Ladder, BeforeValidator(to_ladder)] = MODES["chance_then_block"]
    """The ladder: the n-th finding of a streak takes rung n, a hard finding the last."""
    max_repeats: Repeats = 3
    """Calls with the pending one, with equal outcomes, from which a repeat is a finding; hard at twice that."""
    max_repeats_changing: Repeats = 6
    """The same whatever the outcomes, never below `max_repeats`; hard at five thirds of that."""
    ttl_seconds: Seconds = 300
    """The longest pause between two rounds of a streak, not the length of a streak."""
    window: Annotated[Whole, Field(ge=2, le=100)] = 10
    """Rounds in which a call counts as known."""
    similarity_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """How alike (0 to 1) consecutive calls of a tool must be to count as one; None is off."""
    similarity: Similarity = Similarity()
    max_calls: Annotated[Whole, Field(ge=0)] = 0
    """Calls in a timeline, whatever they are; 0 is off."""
    max_calls_of_tool: Annotated[Whole, Field(ge=0)] = 0
    """Calls of any one tool in a timeline; 0 is off."""
    detectors: Detectors = Detectors()
    pollers: tuple[str, ...] = POLLERS
    """Globs over the names of tools, in any case, that wait for something outside."""
    poll_factor: Annotated[Whole, Field(ge=1)] = 5
    """Limits are this many times as high for a stretch with a poller in it."""
    state_changing: tuple[str, ...] = ()
    """Globs over the names of tools whose successful calls are progress: they end every streak but their own."""
    per_tool: dict[str, ToolSettings] = Field(default_factory=dict)
    """By globs over the names of tools; where several match, the longer ones decide."""
    error_messages: ErrorMessages = ErrorMessages()
    finish_reason: Literal["stop", "error"] = "stop"
    """What a block ends with: an ordinary stop, or `error` where a client asks for it."""
    usage: Literal["last", "sum"] = "last"
    """Input tokens of a steered answer: the last answer's, or the sum of both. Output is always the sum."""
    heartbeat_s: Seconds = 15
    max_hold_s: Seconds = 120
    steer_timeout_s: Seconds = 60
    callback_timeout_s: Seconds = 5
    max_held_bytes: Bytes = 4 * 1024 * 1024
    max_request_bytes: Bytes = 64 * 1024 * 1024
    max_response_bytes: Bytes = 64 * 1024 * 1024
    """The longest answer that is guarded, whole or streamed; a longer one is let go."""
    max_sessions: Annotated[Whole, Field(gt=0)] = 10_000
    """Lanes kept in memory; the one unused for longest goes first."""
    max_rounds: Annotated[Whole, Field(ge=10)] = 128
    """Rounds kept for a lane; the oldest goes first."""
    fail_closed: bool = False
    """A call that could not be judged is replaced by a block message instead of being let through."""

    _tools: dict[str, ForTool] = PrivateAttr(default_factory=dict)
    _wants_returns: bool | None = PrivateAttr(default=None)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; the copy works out anew what holds for a tool."""
        copy = super().model_copy(update=update, deep=deep)
        copy._tools = {}
        copy._wants_returns = None
        return copy

    @property
    def wants_returns(self) -> bool:
        """Whether nothing but an unknown tool can be found before a call of the newest round is one of those before."""
        if self._wants_returns is None:
            every: list[LoopSettings | ToolSettings] = [self, *self.per_tool.values()]
            twos = any(2 in (one.max_repeats, one.max_repeats_changing) for one in every)
            others = any(one.similarity_threshold or one.max_calls for one in every)
            self._wants_returns = not (twos or others or self.max_calls_of_tool or self.detectors.stagnation)
        return self._wants_returns

    def for_tool(self, name: str) -> ForTool:
        """What holds for the tool of this name (with its namespace before a dot, where it has one)."""
        known = self._tools.get(name)
        if known is None:
            if len(self._tools) >= TOOLS_KEPT:
                self._tools.clear()
            known = self._tools[name] = self._worked_out(name)
        return known

    def _worked_out(self, name: str) -> ForTool:
        own: dict[str, Any] = {}
        for pattern in sorted(self.per_tool, key=len):
            if _matches(name, (pattern,)):
                own |= {key: value for key, value in self.per_tool[pattern] if value is not None}
        poller = own.pop("poller", None)
        poller = _matches(name, self.pollers) if poller is None else poller
        changing = own.pop("changes_state", None)
        changing = _matches(name, self.state_changing) if changing is None else changing
        ignore = frozenset(own.pop("ignore", ()))
        if "max_calls" in own:
            own["max_calls_of_tool"] = own.pop("max_calls")
        return ForTool(self.model_copy(update=own) if own else self, poller, changing, ignore)

    @property
    def ladder(self) -> Ladder:
        """The rungs in order."""
        return self.mode


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a tool goes by one of these globs, in any case, with its namespace or without."""
    names = {name.lower(), name.lower().rpartition(".")[2]}
    return any(fnmatchcase(one, pattern.lower()) for pattern in patterns for one in names)
