"""The settings of the `tool_call_loop` block, validated; the defaults are supported by the recorded runs.

`LoopSettings` applies to every tool; its method `for_exchange` returns the settings for a model and a session, and
`for_tool` those for one tool.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from callfuse.detect.pre_checks import least_lowered
from callfuse.detect.settings import LONGEST_LAP
from callfuse.model import ANY_TOOL
from callfuse.policy.fields import (
    PLACEHOLDERS,
    Bytes,
    HeaderNames,
    Mode,
    Repeats,
    Seconds,
    Share,
    Strict,
    Threshold,
    Whole,
)
from callfuse.policy.known_tools import NOTE_TOOLS, PERSON_TOOLS, POLLERS, SCREEN_TOOLS
from callfuse.policy.presets import MODES
from callfuse.policy.rungs import Ladder, Rung
from callfuse.policy.sections import (
    LIMITS,
    Calls,
    Commands,
    Detectors,
    ErrorMessages,
    ModelSettings,
    Name,
    Similarity,
    ToolSettings,
    with_preset,
)
from callfuse.policy.spending import BudgetSettings, check_budgets
from callfuse.policy.tiers import (
    SESSION,
    Overrides,
    Tier,
    explicit_values,
    matches,
    merge_tiers,
    model_tiers,
    tool_tiers,
    with_presets,
)

__all__ = [
    "MODES",
    "NO_OTHER_MODEL",
    "PLACEHOLDERS",
    "ErrorMessages",
    "ForTool",
    "Ladder",
    "LoopSettings",
    "Rung",
    "Similarity",
    "Strict",
]

NAMES_KEPT = 1000
"""Tools, and models, whose settings are kept once they are worked out: names come from outside."""
LONGEST_NAME = 256
"""Characters of a tool's or a model's name that are looked at for its settings."""
SESSIONS_KEPT = 32
"""Sessions with settings of their own, by what they set, whose settings are kept once they are worked out. Each
keeps those of tools in turn."""
LONGEST_OVERRIDES = 4096
"""Characters of what a session sets, written out, up to which its settings are kept."""
NO_OVERRIDES: Final = Overrides()
NO_OTHER_MODEL: Final = "`escalate` needs another model; name it in tool_call_loop.escalate_model"


class ForTool(NamedTuple):
    """The settings and properties of one tool."""

    settings: "LoopSettings"
    poller: bool
    on_screen: bool
    takes_notes: bool
    changes_state: bool
    is_progress: bool
    is_read_only: bool
    """Whether the settings say of the tool that it changes nothing: `changes_state: false`."""
    ignore: frozenset[str]
    limits: dict[Any, Any]
    """Cache of the engine: limits of the detectors of calls, and of those of results."""


@dataclass(slots=True)
class Derived:
    """Cache of values computed from the settings. A plain object, because pydantic private attributes are more than ten
    times slower. `models`: by name; `tiers`: by the names of the higher tiers, which models share; `sessions`: by the
    model's name and the session's values, written out."""

    session: Overrides = NO_OVERRIDES
    tools: dict[str, ForTool] = field(default_factory=dict)
    models: "dict[str, LoopSettings]" = field(default_factory=dict)
    tiers: "dict[tuple[str, ...], LoopSettings]" = field(default_factory=dict)
    sessions: "dict[tuple[str, str], LoopSettings]" = field(default_factory=dict)
    late: "LoopSettings | None" = None
    observing: "LoopSettings | None" = None


class LoopSettings(Strict):
    """The `tool_call_loop` block. Times are seconds, sizes are bytes."""

    enabled: bool = True
    """If off, callfuse parses nothing and passes every byte."""
    mode: Mode = MODES["chance_then_block"]
    """The ladder of actions: the n-th finding of a streak leads to rung n, a hard finding to the last rung."""
    escalate_model: Name | None = None
    """The model that the rung `escalate` asks instead, by its vendor's name for it."""
    max_repeats: Repeats = 3
    """How many equal calls with equal outcomes are a finding, including the pending call; hard at twice that."""
    max_repeats_changing: Repeats = 6
    """The same limit for equal calls with any outcomes, at least `max_repeats`; hard at five thirds of it."""
    ttl_seconds: Seconds = 300
    """The longest pause between two rounds of a streak. It does not limit the length of the streak."""
    window: Annotated[Whole, Field(ge=2, le=100)] = 10
    """A call is known if it occurred in this many latest rounds. The window covers at least ten calls, so values below
    10 only matter if rounds have several calls."""
    similarity_threshold: Threshold | None = None
    """How similar (0 to 1) consecutive calls of a tool must be to count as equal; off if not set."""
    similarity: Similarity = Similarity()
    max_calls: Calls = 0
    """The most calls in a timeline; 0 is off."""
    max_calls_of_tool: Calls = 0
    """The most calls of any one tool in a timeline; 0 is off."""
    max_calls_per_answer: Calls = 128
    """The most calls in one answer. At the next call, callfuse ends the answer and reads no more of it. 0 is off."""
    max_weighted_calls: Calls = 0
    """The most calls in a timeline, where a call with a known result counts ten times; 0 is off."""
    no_repeats_after: Calls = 0
    """After this many calls, counted as for `max_weighted_calls`, `max_repeats` is 2; 0 is off."""
    budget: BudgetSettings = BudgetSettings()
    detectors: Detectors = Detectors()
    pollers: tuple[str, ...] = POLLERS
    """Globs for names of tools that wait for something outside, such as a job. Case does not matter."""
    poll_factor: Annotated[Whole, Field(ge=1)] = 5
    """Limits are multiplied by this for a stretch of calls that includes a poller."""
    screen_tools: tuple[str, ...] = SCREEN_TOOLS
    """Globs for names of tools that act on a screen, where a call may change something that no result shows. If a
    stretch includes one, limits are five thirds as high, and findings below the hard limit warn at most."""
    person_tools: tuple[str, ...] = PERSON_TOOLS
    """Globs for names of tools that ask a person. Their calls never lead to findings."""
    note_tools: tuple[str, ...] = NOTE_TOOLS
    """Globs for names of tools that only write down what the agent thinks, plans or remembers. A call of such a tool
    with new text does not count as progress."""
    state_changing: tuple[str, ...] = ()
    """Globs for names of tools whose successful calls are progress: they end every streak except their own."""
    per_tool: dict[str, ToolSettings] = Field(default_factory=dict)
    """Settings by globs for names of tools; if several match, longer globs take precedence."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Settings by globs for backend and model as one text, such as `openai:gpt-4o*`."""
    error_messages: ErrorMessages = ErrorMessages()
    blow_after: Calls = 5
    """The fuse blows after this many blocks in a lane without a new executed call between them; callfuse then answers
    without asking the model. 0 is off."""
    holdout: Share = 0
    """The share of sessions (0 to 1) that are only observed, as a control group; 0 is off."""
    tool_hint: bool = False
    """Whether to add a hint not to repeat calls to descriptions of tools, except of those that wait or change state."""
    tool_names: bool = False
    """Whether to add the tool's name to results that lack it, in formats that have a key for it."""
    commands: Commands = Commands()
    finish_reason: Literal["stop", "error"] = "stop"
    """The finish reason of a blocked answer: `stop`, as usual, or `error` for clients that need to notice."""
    usage: Literal["last", "sum"] = "last"
    """The input tokens reported for a steered answer: the last answer's, or the sum. Output is always the sum."""
    heartbeat_s: Seconds = 15
    """While a call is held, the client gets a keep-alive after this much silence."""
    max_hold_s: Seconds = 120
    """The longest hold. After it, callfuse releases what it holds."""
    steer_timeout_s: Seconds = 60
    """How long to wait for the first byte when a model is asked again; then the next rung follows."""
    callback_timeout_s: Seconds = 5
    """How long to wait for the `on_loop` callback; then the ladder's own rung applies."""
    max_held_bytes: Bytes = 4 * 1024 * 1024
    """The most bytes held of one answer, from its first complete event on. Beyond that, all are released."""
    max_request_bytes: Bytes = 64 * 1024 * 1024
    """The largest request that callfuse reads; a larger one passes unguarded."""
    max_response_bytes: Bytes = 64 * 1024 * 1024
    """The largest answer that is guarded, and the largest event in one; callfuse releases larger ones."""
    websocket: Literal["refuse", "pass"] = "refuse"
    """WebSocket handshakes on guarded paths: `refuse` answers 426, `pass` forwards them unguarded."""
    max_total_bytes: Bytes = 512 * 1024 * 1024
    """The most bytes that all exchanges together keep: requests, held bytes and buffered answers. An exchange that
    would exceed this passes unguarded."""
    max_kept_bytes: Whole = 64 * 1024 * 1024
    """The most bytes of parsed requests kept after their answer: the last one of each conversation, so that only the
    new part of the next one has to be parsed. They count towards `max_total_bytes` and are dropped first. 0 is off."""
    read_timeout_s: Seconds = 30
    """The longest wait for more of a request's body; the whole body may take ten times as long. After that, callfuse
    passes what has arrived to the app and streams the rest."""
    max_sessions: Annotated[Whole, Field(gt=0)] = 10_000
    """The most lanes kept in memory; the least recently used is dropped first."""
    max_ledger_bytes: Bytes = 256 * 1024 * 1024
    """The most bytes that these lanes use (an estimate); the least recently used is dropped first. An eighth of it is
    for settings of sessions."""
    max_rounds: Annotated[Whole, Field(ge=10)] = 128
    """The most rounds kept for a lane; the oldest is dropped first."""
    credential_headers: HeaderNames = ()
    """Further headers that tell clients apart. Their values are kept as digests. `cookie` means all cookies."""
    header_overrides: bool = False
    """Whether callers may change settings for one exchange with headers such as `x-callfuse-mode: warn`. Allow it only
    if you trust all callers."""
    fail_closed: bool = False
    """If a call cannot be judged, the client gets a block message instead of the call. The same holds for an answer if
    callfuse fails before it begins. Requests and answers that are too large or in an unknown form still pass unread."""

    @cached_property
    def derived(self) -> "Derived":
        """The cache of values computed from these settings."""
        return Derived()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        return with_preset(values)

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        """Check that a ladder that escalates has a model to escalate to, and that a limit on money has prices."""
        check_budgets(self.budget, self.models)
        if self.has_other_model:
            return self
        ladders: dict[tuple[str, ...], Ladder | None] = {("mode",): self.mode}
        ladders |= {("per_tool", name, "mode"): one.mode for name, one in self.per_tool.items()}
        ladders |= {("models", name, "mode"): one.mode for name, one in self.models.items()}
        missing = PydanticCustomError("escalate_model", "{error}", {"error": NO_OTHER_MODEL})
        wrong = [
            InitErrorDetails(type=missing, loc=place, input=ladder)
            for place, ladder in ladders.items()
            if any(rung.other_model for rung in ladder or ())
        ]
        if wrong:
            raise ValidationError.from_exception_data("escalate_model", wrong, hide_input=True)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the settings as pydantic does. The copy keeps the session's values, but nothing else of the cache."""
        copy = super().model_copy(update=update, deep=deep)
        for name in _DERIVED:
            vars(copy).pop(name, None)
        copy.derived.session = self.derived.session
        return copy

    @property
    def late(self) -> "LoopSettings":
        """The settings for a timeline whose weight exceeds `no_repeats_after`."""
        known = self.derived
        if known.late is None:
            known.late = self.model_copy(update={"max_repeats": min(self.max_repeats, 2), "no_repeats_after": 0})
        return known.late

    @property
    def observing(self) -> "LoopSettings":
        """These settings with ladders of the same lengths, for all and for single tools, that only observe."""
        known = self.derived
        if known.observing is None:
            session = known.session
            per_tool = {
                tool: one.model_copy(update=_observing(explicit_values(one))) for tool, one in self.per_tool.items()
            }
            copy = self.model_copy(update=_observing({"mode": self.mode}) | {"per_tool": per_tool})
            tools = {tool: {**values, **_observing(values)} for tool, values in session.tools.items()}
            copy.derived.session = Overrides({**session.values, **_observing(session.values)}, tools)
            known.observing = copy
        return known.observing

    def for_exchange(self, model: str, session: Overrides = NO_OVERRIDES) -> "LoopSettings":
        """Return the settings for one exchange. `model`: backend and model as one text, such as `openai:gpt-4o`."""
        if not (self.models or session):
            return self
        model = model[:LONGEST_NAME]
        if session:
            return self._for_session(model, session)
        models = self.derived.models
        if model not in models:
            if len(models) >= NAMES_KEPT:
                models.clear()
            models[model] = self._for_tiers(self.tiers(model))
        return models[model]

    def _for_session(self, model: str, session: Overrides) -> "LoopSettings":
        """Return the settings for one session: the same object for all its requests, as long as its values stay."""
        sessions, key = self.derived.sessions, (model, session.written)
        known = sessions.get(key)
        if known is None:
            known = self.model_copy(update=merge_tiers(self, self.tiers(model, session)))
            known.derived.session = session
            if len(key[1]) <= LONGEST_OVERRIDES:
                if len(sessions) >= SESSIONS_KEPT:
                    sessions.clear()
                sessions[key] = known
        return known

    def _for_tiers(self, tiers: Sequence[Tier]) -> "LoopSettings":
        """Return the settings under these tiers: one object for all models that match the same patterns."""
        if not tiers:
            return self
        known, names = self.derived.tiers, tuple([tier.name for tier in tiers])
        if names not in known:
            if len(known) >= NAMES_KEPT:
                known.clear()
            known[names] = self.model_copy(update=merge_tiers(self, tiers))
        return known[names]

    def for_tool(self, name: str) -> ForTool:
        """Return the settings for the tool with this name (with its namespace and a dot before it, if it has one).

        For `ANY_TOOL`, the loosest settings: they find everything that any tool's own settings would find.
        """
        tools, name = self.derived.tools, name[:LONGEST_NAME]
        known = tools.get(name)
        if known is None:
            if len(tools) >= NAMES_KEPT:
                tools.clear()
            known = tools[name] = self._for_tool(name)
        return known

    def tiers(self, model: str = "", session: Overrides = NO_OVERRIDES, tool: str | None = None) -> list[Tier]:
        """Return the tiers above these settings that apply to a model, a session and a tool, the lowest first."""
        tiers = [*model_tiers(model, self.models)] if model else []
        if tool is not None:
            tiers += [Tier(one.name, _of_tool(one.values)) for one in tool_tiers(tool, self.per_tool)]
        if session.values:
            tiers.append(Tier(SESSION, session.values))
        for pattern in sorted(session.tools, key=len) if tool is not None else ():
            if matches(tool or "", (pattern,)):
                tiers.append(Tier(f"{SESSION}, tool {pattern}", _of_tool(session.tools[pattern])))
        return [*with_presets(tiers)]

    def _for_tool(self, name: str) -> ForTool:
        if name == ANY_TOOL:
            return ForTool(self._loosest(), False, False, False, False, False, False, frozenset(), {})
        values = merge_tiers(self, self.tiers("", self.derived.session, name))
        poller = values.pop("poller", None)
        changing = values.pop("changes_state", None)
        ignore = frozenset(values.pop("ignore", ()))
        if matches(name, self.person_tools):
            values.setdefault("enabled", False)
        return ForTool(
            self.model_copy(update=values) if values else self,
            matches(name, self.pollers) if poller is None else poller,
            matches(name, self.screen_tools),
            matches(name, self.note_tools),
            matches(name, self.state_changing) if changing is None else changing,
            changing is True,
            changing is False,
            ignore,
            {},
        )

    def _only_for(self, tool: Mapping[str, Any]) -> "LoopSettings":
        """Return these settings with one tool's own values applied to every tool."""
        values = merge_tiers(self, with_presets([Tier("", _of_tool(tool))]))
        return self.model_copy(update={key: values[key] for key in values.keys() & _OF_ANY_TOOL})

    def _loosest(self) -> "LoopSettings":
        every = [self, *map(self._only_for, self._single_tools)]
        if len(every) == 1:
            return self
        thresholds = [one.similarity_threshold for one in every if one.similarity_threshold]
        values = {
            "enabled": any(one.enabled for one in every),
            "mode": MODES["block"] if any(rung.withholds for one in every for rung in one.mode) else self.mode,
            "max_repeats": _least(one.max_repeats for one in every),
            "max_repeats_changing": _least(one.max_repeats_changing for one in every),
            "ttl_seconds": max(one.ttl_seconds for one in every),
            "similarity_threshold": min(thresholds, default=None),
            "max_calls_of_tool": _least(one.max_calls_of_tool for one in every),
            "detectors": self.detectors.loosest([one.detectors for one in every]),
        }
        return self.model_copy(update=values)

    def limit_of(self, kind: str) -> int:
        """Return the soft limit of a kind that has one in `detectors`; 0 means off."""
        limit: int = getattr(self.detectors, kind)
        return limit

    @cached_property
    def has_state_changing(self) -> bool:
        """Whether a call of any tool may be progress whatever it returns."""
        return bool(self.state_changing) or any(self._of_tools("changes_state"))

    @cached_property
    def highest_limit(self) -> int:
        """The longest streak that any limit needs, in rounds."""
        limits = [self.limit_of(kind) * limit.rounds_each for kind, limit in LIMITS.items()]
        return 2 * self.poll_factor * max(self.max_repeats, self.max_repeats_changing, *limits)

    @cached_property
    def reach(self) -> int:
        """How many rounds back a looping call may have occurred: the window, or the longest lap."""
        return max(self.window, LONGEST_LAP)

    @property
    def may_judge(self) -> bool:
        """Whether anything can be judged at all; if not, nothing is parsed."""
        return self.enabled or self.header_overrides or any(one.enabled for one in self.models.values())

    @property
    def has_other_model(self) -> bool:
        """Whether there is a model to escalate to, for all models or for some."""
        return bool(self.escalate_model) or any(one.escalate_model for one in self.models.values())

    @property
    def ladder(self) -> Ladder:
        """The rungs in order."""
        return self.mode

    @cached_property
    def further_credentials(self) -> frozenset[bytes]:
        """The names of `credential_headers`, as bytes, in which headers are read."""
        return frozenset(name.encode() for name in self.credential_headers)

    @cached_property
    def observes(self) -> bool:
        """Whether findings are only ever reported."""
        return not any(rung.warns or rung.withholds for rung in self.ladder)

    @cached_property
    def blocks(self) -> bool:
        """Whether a call of any tool may be blocked: by its ladder, or because a rung that asks is not possible."""
        return any(rung.withholds for ladder in [self.ladder, *self._of_tools("mode")] for rung in ladder)

    @cached_property
    def cuts_texts(self) -> bool:
        """Whether text or reasoning that runs away may be cut off, so that an answer is followed from its start."""
        return self.detectors.cuts_texts and any(rung.withholds for rung in self.ladder)

    @cached_property
    def warns(self) -> bool:
        """Whether a call of any tool may get a warning: by its ladder, or because a cap lowers a rung to a warning."""
        return any(rung.warns or rung.withholds for ladder in [self.ladder, *self._of_tools("mode")] for rung in ladder)

    @cached_property
    def rounds_before_warning(self) -> int:
        """The least number of consecutive rounds with a known call before a call can get a warning; 0 if unknown."""
        if any(rung.warns for ladder in [self.ladder, *self._of_tools("mode")] for rung in ladder):
            return 0
        return least_lowered(self, Rung.WARN.hardness)  # no rung warns by itself: only a cap leads to a warning

    @cached_property
    def caps(self) -> list[Detectors]:
        """The sections `detectors`: that for all tools, and those of single tools."""
        return [self.detectors, *[self._only_for(tool).detectors for tool in self._single_tools]]

    @cached_property
    def ignores(self) -> bool:
        """Whether any tool has arguments to ignore."""
        return any(self._of_tools("ignore"))

    def _of_tools(self, key: str) -> list[Any]:
        """Return the values under a key in the settings of single tools."""
        return [one[key] for one in self._single_tools if key in one]

    @cached_property
    def _single_tools(self) -> list[Mapping[str, Any]]:
        """The values that are set for single tools."""
        return [*map(explicit_values, self.per_tool.values()), *self.derived.session.tools.values()]


_DERIVED: Final = tuple(name for name, value in vars(LoopSettings).items() if isinstance(value, cached_property))
_OF_ANY_TOOL: Final = frozenset({
    "enabled", "mode", "max_repeats", "max_repeats_changing", "ttl_seconds", "similarity_threshold",
    "max_calls_of_tool", "detectors",
})  # fmt: skip
"""What of a tool's own settings matters where it is not known which tool is called."""


def _least(limits: Iterable[int]) -> int:
    """Return the lowest limit that is on; 0 if none is."""
    return min(filter(None, limits), default=0)


def _observing(values: Mapping[str, Any]) -> dict[str, Ladder]:
    """Return the ladder among these values, if there is one, with rungs that only observe."""
    return {"mode": (Rung.OBSERVE,) * len(values["mode"])} if "mode" in values else {}


def _of_tool(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's own values under the keys of the block: its `max_calls` becomes `max_calls_of_tool`."""
    return {"max_calls_of_tool" if key == "max_calls" else key: value for key, value in values.items()}
