"""The settings of the `tool_call_loop` block, validated; defaults are the ones the recorded runs support.

`LoopSettings` is what holds for every tool; `for_exchange` gives what holds for a model and a session, and `for_tool`
what then holds for one tool.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from callfuse.policy.fields import MODES, PLACEHOLDERS, Bytes, Ladder, Repeats, Rung, Seconds, Strict, Whole
from callfuse.policy.fields import ladder as to_ladder
from callfuse.policy.sections import (
    Calls,
    Detectors,
    ErrorMessages,
    ModelSettings,
    Similarity,
    Threshold,
    ToolSettings,
)
from callfuse.policy.tiers import Overrides, Tier, matches, matching, merged

__all__ = [
    "MODES",
    "PLACEHOLDERS",
    "ErrorMessages",
    "ForTool",
    "Ladder",
    "LoopSettings",
    "Rung",
    "Similarity",
    "Strict",
]

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
NAMES_KEPT = 1000
"""Tools, and models, whose settings are kept once they are worked out: names come from outside."""
NO_OVERRIDES: Final = Overrides()


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
    similarity_threshold: Threshold | None = None
    """How alike (0 to 1) consecutive calls of a tool must be to count as one; None is off."""
    similarity: Similarity = Similarity()
    max_calls: Calls = 0
    """Calls in a timeline, whatever they are; 0 is off."""
    max_calls_of_tool: Calls = 0
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
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """By globs over backend and model as one text, as in `openai:gpt-4o*`."""
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
    _models: "dict[str, LoopSettings]" = PrivateAttr(default_factory=dict)
    _wants_returns: bool | None = PrivateAttr(default=None)
    _session: Overrides = PrivateAttr(default=NO_OVERRIDES)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; the copy works out anew what holds for a tool."""
        copy = super().model_copy(update=update, deep=deep)
        copy._tools = {}
        copy._models = {}
        copy._wants_returns = None
        return copy

    @property
    def wants_returns(self) -> bool:
        """Whether nothing but an unknown tool can be found before a call of the newest round is one of those before."""
        if self._wants_returns is None:
            every: list[LoopSettings | ToolSettings] = [self, *self.per_tool.values()]
            twos = any(2 in (one.max_repeats, one.max_repeats_changing) for one in every)
            others = any(one.similarity_threshold or one.max_calls for one in every)
            stagnant = any(one.detectors is not None and one.detectors.stagnation for one in every)
            own = any({"max_repeats", "similarity_threshold"} & one.keys() for one in self._session.tools.values())
            self._wants_returns = not (twos or others or stagnant or own or self.max_calls_of_tool)
        return self._wants_returns

    def for_exchange(self, model: str, session: Overrides = NO_OVERRIDES) -> "LoopSettings":
        """What holds for one exchange: `model` is backend and model as one text, as in `openai:gpt-4o`."""
        if not (self.models or session):
            return self
        known = None if session else self._models.get(model)
        if known is None:
            known = self.model_copy(update=merged(self, self.tiers(model, session)))
            known._session = session
            if not session:
                if len(self._models) >= NAMES_KEPT:
                    self._models.clear()
                self._models[model] = known
        return known

    def for_tool(self, name: str) -> ForTool:
        """What holds for the tool of this name (with its namespace before a dot, where it has one)."""
        known = self._tools.get(name)
        if known is None:
            if len(self._tools) >= NAMES_KEPT:
                self._tools.clear()
            known = self._tools[name] = self._worked_out(name)
        return known

    def tiers(self, model: str = "", session: Overrides = NO_OVERRIDES, tool: str | None = None) -> list[Tier]:
        """The tiers above these settings that hold for a model, a session and a tool, the lowest first."""
        tiers = [*matching("models", model, self.models)] if model else []
        if tool is not None:
            tiers += [Tier(one.name, _of_tool(one.values)) for one in matching("per_tool", tool, self.per_tool)]
        if session.values:
            tiers.append(Tier("session", session.values))
        for pattern in sorted(session.tools, key=len) if tool is not None else ():
            if matches(tool or "", (pattern,)):
                tiers.append(Tier(f"session, tool {pattern}", _of_tool(session.tools[pattern])))
        return tiers

    def _worked_out(self, name: str) -> ForTool:
        values = merged(self, self.tiers("", self._session, name))
        poller = values.pop("poller", None)
        changing = values.pop("changes_state", None)
        ignore = frozenset(values.pop("ignore", ()))
        return ForTool(
            self.model_copy(update=values) if values else self,
            matches(name, self.pollers) if poller is None else poller,
            matches(name, self.state_changing) if changing is None else changing,
            ignore,
        )

    @property
    def ladder(self) -> Ladder:
        """The rungs in order."""
        return self.mode


def _of_tool(values: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's own values under the keys of the block: its `max_calls` are those of one tool."""
    return {"max_calls_of_tool" if key == "max_calls" else key: value for key, value in values.items()}
