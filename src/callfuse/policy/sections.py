"""The sections of the `tool_call_loop` block: texts, likeness, detectors, and what differs for a tool or a model."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from callfuse.policy.fields import Ladder, Repeats, Seconds, Strict, Template, Whole, limit
from callfuse.policy.fields import ladder as to_ladder

Threshold = Annotated[float, Field(gt=0, le=1)]
Calls = Annotated[Whole, Field(ge=0)]


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


class SomeDetectors(Strict):
    """As `Detectors`; None leaves the value of the tier below."""

    no_news: Annotated[int, limit("rounds", 4)] | None = None
    cycle: Annotated[int, limit("laps", 2)] | None = None
    same_error: Annotated[int, limit("rounds", 4)] | None = None
    unknown_tool: Annotated[int, limit("calls", 3)] | None = None
    stagnation: Annotated[int, limit("calls", 6)] | None = None


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

    max_calls: Calls | None = None
    max_calls_of_tool: Calls | None = None
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
