"""The sections of the `tool_call_loop` block: texts, likeness, detectors, commands, what differs by tool or model."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from callfuse.detect.registry import KINDS
from callfuse.policy.fields import Repeats, Seconds, Strict, Template, Threshold, Whole, limit
from callfuse.policy.fields import ladder as to_ladder
from callfuse.policy.nearest import suggest
from callfuse.policy.rungs import Ladder

Calls = Annotated[Whole, Field(ge=0)]
Name = Annotated[str, Field(min_length=1)]

COMMAND_KEYS = ("tool-loop-detection", "tool-loop-max-repeats", "tool-loop-ttl", "tool-loop-mode")
"""What users call the settings that they may change in a message."""
COMMAND_ALIASES = {
    "tool-loop-detection-enabled": "tool-loop-detection",
    "tool-loop-ttl-seconds": "tool-loop-ttl",
}
"""Other spellings; `_` may stand for `-` everywhere."""


def command_key(spelt: str) -> str:
    """The key that is meant by a spelling of it; what is no key as it is, with `-` for `_`."""
    key = spelt.lower().replace("_", "-")
    return COMMAND_ALIASES.get(key, key)


def _prefix(value: str) -> str:
    if not value or any(char.isspace() or char in "`>" for char in value):  # what is quoted is no command
        raise ValueError("use text without white space, ` and >, as in !/")
    return value


def _command_keys(values: tuple[str, ...]) -> tuple[str, ...]:
    keys = tuple(map(command_key, values))
    for value, key in zip(values, keys, strict=True):
        if key not in COMMAND_KEYS:
            raise ValueError(f"{value!r} is no key of a command; {suggest(key, COMMAND_KEYS)}")
    return keys


CommandKeys = Annotated[tuple[str, ...], AfterValidator(_command_keys)]


class ErrorMessages(Strict):
    """Every text that callfuse writes into a conversation; the built-in one where none is given."""

    block: Template | None = None
    """What the client reads in place of a blocked call."""
    warning: Template | None = None
    """What stands below the result of a repeated call."""
    guidance: Template | None = None
    """What the model reads as the result of a withheld call."""
    blown: Template | None = None
    """What the client reads once the fuse has blown, in place of an answer of the model."""


class Similarity(Strict):
    """How alike two sets of arguments are."""

    algorithm: Literal["levenshtein", "jaccard"] = "levenshtein"
    """By edits of characters, or by the words that both have."""
    normalize_whitespace: bool = True
    """Runs of white space count as one blank."""
    ignore_case: bool = True
    """Capitals count as small letters."""

    def __hash__(self) -> int:
        """A part of it, at a tenth of what the whole costs: likenesses are kept by it."""
        return hash(self.algorithm)


class Detectors(Strict):
    """Soft limits by kind; a finding is hard at twice that. `false` is off."""

    if TYPE_CHECKING:

        def __getattr__(self, kind: str) -> int: ...


class SomeDetectors(Strict):
    """As `Detectors`; None leaves the value of the tier below."""


LIMITS: Final = {name: kind.limit for name, kind in KINDS.items() if kind.limit is not None}
"""The kinds that have a key in the section `detectors`, and what they say of it."""


def _with_limits(section: type[Strict], *, optional: bool) -> type[Strict]:
    """The class of the section with a field for each limit; None is the default of those that are optional."""
    keys: dict[str, Any] = {}
    for kind, own in LIMITS.items():
        value = Annotated[int, limit(own.unit, own.default)]
        keys[kind] = (value | None, None) if optional else (value, own.default if own.on else 0)
    return create_model(section.__name__, __base__=section, __module__=__name__, __doc__=section.__doc__, **keys)


if not TYPE_CHECKING:  # a type checker knows no class that is made of a table
    Detectors = _with_limits(Detectors, optional=False)
    SomeDetectors = _with_limits(SomeDetectors, optional=True)


class Commands(Strict):
    """Commands that users type into their messages: `!/set(tool-loop-mode=warn)`. `commands: off` turns them off."""

    enabled: bool = True
    """Off means: what looks like a command is text like any other."""
    prefix: Annotated[str, AfterValidator(_prefix)] = "!/"
    """What each command begins with."""
    keys: CommandKeys = COMMAND_KEYS
    """Those that users may set, each in either of its spellings."""
    locked: CommandKeys = ()
    """Those that only operators set: a user who tries is told so."""


class TierSettings(Strict):
    """What a model, a tool or a session may have of its own; None leaves the value of the tier below."""

    enabled: bool | None = None
    mode: Annotated[Ladder, BeforeValidator(to_ladder)] | None = None
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
    poll_factor: Annotated[Whole, Field(ge=1)] | None = None


class ToolSettings(TierSettings):
    """What is different for the tools of a name."""

    max_calls: Calls | None = None
    """Calls of this tool in a timeline."""
    poller: bool | None = None
    """Whether it is called again and again by its nature: then every limit is `poll_factor` times as high."""
    changes_state: bool | None = None
    """Whether a successful call of it is progress, whatever it returns."""
    ignore: tuple[str, ...] | None = None
    """Names of arguments that do not tell calls apart: time stamps, request ids."""
