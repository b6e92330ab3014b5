"""The sections of the `tool_call_loop` block: texts, similarity, detectors, commands, settings of tools and models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from callfuse.detect.kind import ARGUMENTS, Kind
from callfuse.detect.registry import KINDS, PARTS
from callfuse.policy.fields import (
    OFF,
    Mode,
    Repeats,
    Seconds,
    Strict,
    Switch,
    Template,
    Threshold,
    Whole,
    limit,
    part_cap,
    preset_of,
)
from callfuse.policy.fields import cap as to_cap
from callfuse.policy.nearest import suggest
from callfuse.policy.rungs import NO_CAP, Rung, milder
from callfuse.policy.spending import SomeBudget

Calls = Annotated[Whole, Field(ge=0)]
Cap = Annotated[Rung, BeforeValidator(to_cap)]
Name = Annotated[str, Field(min_length=1)]

COMMAND_KEYS = ("tool-loop-detection", "tool-loop-max-repeats", "tool-loop-ttl", "tool-loop-mode")
"""What users call the settings that they may change in a message."""
COMMAND_ALIASES = {
    "tool-loop-detection-enabled": "tool-loop-detection",
    "tool-loop-ttl-seconds": "tool-loop-ttl",
}
"""Other spellings; `_` may stand for `-` everywhere."""


def command_key(spelt: str) -> str:
    """Return the key for one of its spellings; return any other text unchanged, except with `-` for `_`."""
    key = spelt.lower().replace("_", "-")
    return COMMAND_ALIASES.get(key, key)


def _prefix(value: str) -> str:
    if not value or any(char.isspace() or char in "`>" for char in value):  # quoted text is not a command
        raise ValueError("use text without white space, ` and >, as in !/")
    return value


def _command_keys(values: tuple[str, ...]) -> tuple[str, ...]:
    keys = tuple(map(command_key, values))
    for value, key in zip(values, keys, strict=True):
        if key not in COMMAND_KEYS:
            raise ValueError(f"{value!r} is not a key of a command; {suggest(key, COMMAND_KEYS)}")
    return keys


CommandKeys = Annotated[tuple[str, ...], AfterValidator(_command_keys)]


class ErrorMessages(Strict):
    """The texts that callfuse writes into a conversation; a text that is not set is the built-in one."""

    block: Template | None = None
    """What the client gets instead of a blocked call."""
    warning: Template | None = None
    """What is appended to the result of a repeated call."""
    guidance: Template | None = None
    """What the model gets as the result of a withheld call."""
    blown: Template | None = None
    """What the client gets instead of the model's answer after the fuse has blown."""


class Similarity(Strict):
    """How to measure the similarity of two sets of arguments."""

    algorithm: Literal["levenshtein", "levenshtein_json", "jaccard"] = "levenshtein"
    """`levenshtein` counts edits of characters field by field, `levenshtein_json` in the arguments as one JSON text;
    `jaccard` counts shared words."""
    normalize_whitespace: bool = True
    """Whether a run of white space equals one space."""
    ignore_case: bool = True
    """Whether upper and lower case are equal."""
    ignore_word_order: bool = True
    """Whether to ignore the order of three or more words. Needs `levenshtein` and `normalize_whitespace`."""
    ignore_array_order: bool = False
    """Whether to ignore the order of list elements."""

    def __hash__(self) -> int:
        """Return the hash of one field, at a tenth of the cost of all: similarities are cached by it."""
        return hash(self.algorithm)


LIMITS: Final = {name: kind.limit for name, kind in KINDS.items() if kind.limit is not None}
"""The kinds that have a limit in the section `detectors`, and what they say of it."""
CAPS: Final = ("most", "most_hard")
"""What every kind has beside its limit: the hardest rung that it may take, and the same from its hard limit on."""


def cap_key(kind: str, which: str = "most") -> str:
    """Return the key of a kind's cap in the section `detectors`."""
    return f"{kind}_{which}"


def _long_form(kind: Kind) -> dict[str, str]:
    limit = {kind.limit.unit: kind.name, "limit": kind.name} if kind.limit else {}
    parts = {name: cap_key(kind.name, name) for name in PARTS[kind.name]}
    return limit | parts | {which: cap_key(kind.name, which) for which in CAPS}


LONG_FORMS: Final = {name: _long_form(kind) for name, kind in KINDS.items()}
"""The keys of a kind in its long form, `same_error: {limit: 4, most: warn}`, each with the key of the section
`detectors` that it stands for."""


def spelt_out(section: Any) -> Any:
    """Return the section `detectors` with its long forms resolved. Raises ValueError for an unknown key in one."""
    if not isinstance(section, Mapping):
        return section
    values: dict[str, Any] = {}
    for kind, value in section.items():
        if not (isinstance(value, Mapping) and kind in LONG_FORMS):
            values[kind] = value
            continue
        for key, own in value.items():
            if key not in LONG_FORMS[kind]:
                raise ValueError(f"unknown key {key!r} of {kind}; use {', '.join(LONG_FORMS[kind])}")
            values[LONG_FORMS[kind][key]] = own
    return values


class Detectors(Strict):
    """Soft limits by kind (`false` is off; hard at twice the limit), and caps: the strictest rung for a kind."""

    if TYPE_CHECKING:

        def __getattr__(self, kind: str) -> int: ...

    @model_validator(mode="before")
    @classmethod
    def _read_long_forms(cls, section: Any) -> Any:
        return spelt_out(section)

    def finds(self, kind: str, part: str = ARGUMENTS) -> bool:
        """Whether findings of a kind are reported at all: in calls, or in another part of an answer."""
        values = vars(self)
        return bool(values[kind]) and values.get(f"{kind}_{part}") != OFF

    def cap(self, kind: str, *, hard: bool, waits: bool, part: str = ARGUMENTS) -> Rung:
        """Return the hardest rung for a finding of this kind, in calls or in another part of an answer. A finding that
        `waits` warns at most below the hard limit. From the hard limit on, the cap is never milder."""
        values = vars(self)
        most: Rung = values[f"{kind}_most"]
        if hard:
            most_hard: Rung = values[f"{kind}_most_hard"] or most
            most = most_hard if most_hard.hardness >= most.hardness else most
        elif waits:
            most = milder(most, Rung.WARN)
        of_part: Rung | str | None = values.get(f"{kind}_{part}")
        if of_part is None:
            return most
        return milder(most, of_part) if isinstance(of_part, Rung) else Rung.OBSERVE

    @property
    def cuts_texts(self) -> bool:
        """Whether the caps of any kind allow text or reasoning to be cut off."""
        said = [(kind, part) for kind, parts in PARTS.items() for part in parts if part != ARGUMENTS]
        caps = [self.cap(kind, hard=True, waits=False, part=part) for kind, part in said if self.finds(kind, part)]
        return any(cap.withholds for cap in caps)

    def may_withhold(self, kind: str) -> bool:
        """Whether the caps of a kind allow its findings to withhold a call."""
        return self.cap(kind, hard=True, waits=False).withholds  # never milder than below the hard limit

    def hardest(self, kind: str, *, hard: bool, waits: bool) -> int:
        """Return the hardness of the rung that `cap` returns."""
        return self.cap(kind, hard=hard, waits=waits).hardness

    def with_limits(self, limits: Mapping[str, int]) -> Self:
        """Return a copy with these soft limits, by kind."""
        return self.model_copy(update=dict(limits))

    def loosest(self, others: Sequence[Self]) -> Self:
        """Return a section that finds, and acts on, everything that any of `others` would."""
        values: dict[str, Any] = {}
        for kind in KINDS:
            limits = [limit for one in others if (limit := getattr(one, kind))]
            values[kind] = min(limits, default=0 if kind in LIMITS else False)
            for which, is_hard in zip(CAPS, (False, True), strict=True):
                caps = [one.cap(kind, hard=is_hard, waits=False) for one in others]
                values[cap_key(kind, which)] = max(caps, key=lambda rung: rung.hardness)
            for part in PARTS[kind]:
                key = cap_key(kind, part)
                rungs = [rung for one in others if isinstance(rung := vars(one)[key], Rung)]
                values[key] = max(rungs, key=lambda rung: rung.hardness, default=OFF)
        return self.model_copy(update=values)


class SomeDetectors(Strict):
    """As `Detectors`; None leaves the value of the tier below."""

    @model_validator(mode="before")
    @classmethod
    def _read_long_forms(cls, section: Any) -> Any:
        return spelt_out(section)


def _with_kinds(section: type[Strict], *, optional: bool) -> type[Strict]:
    """Return the class of the section with the fields of every kind. `optional`: their defaults are None."""
    keys: dict[str, Any] = {}
    caps: dict[str, Any] = {}
    for name, kind in KINDS.items():
        own = kind.limit
        switch = BeforeValidator(Switch(kind.limited_by, tuple(PARTS[name])))
        value: Any = Annotated[int, limit(own.unit, own.default)] if own else Annotated[bool, switch]
        keys[name] = (value | None, None) if optional else (value, own.default * own.on if own else True)
        for part in PARTS[name].values():
            of_part: Any = Annotated[Rung | Literal["off"], BeforeValidator(part_cap)]
            default = to_cap(part.default)
            keys[cap_key(name, part.name)] = (of_part | None, None) if optional else (of_part, default)
        most = None if optional else to_cap(kind.most or NO_CAP)
        most_hard = to_cap(kind.most_hard) if kind.most_hard and not optional else None
        caps[cap_key(name)] = (Cap | None, most) if optional else (Cap, most)
        caps[cap_key(name, "most_hard")] = (Cap | None, most_hard)
    fields = keys | caps
    return create_model(section.__name__, __base__=section, __module__=__name__, __doc__=section.__doc__, **fields)


if not TYPE_CHECKING:  # type checkers cannot read classes that are created from a table
    Detectors = _with_kinds(Detectors, optional=False)
    SomeDetectors = _with_kinds(SomeDetectors, optional=True)


def with_preset(values: Any) -> Any:
    """Return the raw values of a tier; if its mode is a preset, with the preset's values for keys it does not set."""
    preset = preset_of(values.get("mode")) if isinstance(values, Mapping) else None
    if preset is None:
        return values
    given = values.get("detectors")
    own = given.model_dump(exclude_unset=True) if isinstance(given, Strict) else spelt_out(given or {})
    if not isinstance(own, Mapping):
        return values  # validation reports this error
    return {**preset.sets, **values, "detectors": {**preset.sets["detectors"], **own}}


class Commands(Strict):
    """Commands that users type into their messages: `!/set(tool-loop-mode=warn)`. `commands: off` turns them off."""

    enabled: bool = True
    """If off, text that looks like a command is ordinary text."""
    prefix: Annotated[str, AfterValidator(_prefix)] = "!/"
    """The text that each command begins with."""
    keys: CommandKeys = COMMAND_KEYS
    """The settings that users may change, in either spelling."""
    locked: CommandKeys = ()
    """The settings that only operators may change. A user who tries gets an answer that says so."""


class TierSettings(Strict):
    """What a model, a tool or a session may have of its own; None leaves the value of the tier below."""

    enabled: bool | None = None
    mode: Mode | None = None
    max_repeats: Repeats | None = None
    max_repeats_changing: Repeats | None = None
    ttl_seconds: Seconds | None = None
    similarity_threshold: Threshold | None = None
    detectors: SomeDetectors | None = None
    error_messages: ErrorMessages | None = None


class ModelSettings(TierSettings):
    """What is different for the models of a name."""

    escalate_model: Name | None = None
    max_calls: Calls | None = None
    max_calls_of_tool: Calls | None = None
    max_calls_per_answer: Calls | None = None
    budget: SomeBudget | None = None
    poll_factor: Annotated[Whole, Field(ge=1)] | None = None


class ToolSettings(TierSettings):
    """What is different for the tools of a name."""

    @model_validator(mode="after")
    def _has_no_text(self) -> Self:
        """Raise ValueError for a key about an answer's text, which cannot be set for a tool."""
        given = self.detectors.model_fields_set if self.detectors is not None else ()
        for kind, parts in PARTS.items():
            for part in parts:
                if part != ARGUMENTS and (key := cap_key(kind, part)) in given:
                    raise ValueError(f"{key} cannot be set for a tool; set it for all, for a model or for a session")
        return self

    max_calls: Calls | None = None
    """The most calls of this tool in a timeline."""
    poller: bool | None = None
    """Whether the tool is meant to be called repeatedly. If so, every limit is `poll_factor` times as high."""
    changes_state: bool | None = None
    """Whether a successful call is progress, whatever it returns. If so, it ends every streak, including its own."""
    ignore: tuple[str, ...] | None = None
    """Names of arguments to ignore when calls are compared, such as time stamps and request ids."""
