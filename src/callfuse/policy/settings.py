"""The settings of the `tool_call_loop` block, validated; defaults are the ones the recorded runs support."""

from enum import StrEnum
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)


class Rung(StrEnum):
    """One step of the ladder: what is done about a finding, mildest first."""

    OBSERVE = "observe"
    WARN = "warn"
    STEER = "steer"
    BLOCK = "block"

    @property
    def withholds(self) -> bool:
        """Whether the call is kept from the client."""
        return self in (Rung.STEER, Rung.BLOCK)


Ladder = tuple[Rung, ...]

MODES: dict[str, Ladder] = {
    "observe": (Rung.OBSERVE,),
    "warn": (Rung.WARN,),
    "block": (Rung.BLOCK,),
    "break": (Rung.BLOCK,),
    "chance_then_block": (Rung.STEER, Rung.BLOCK),
    "chance_then_break": (Rung.STEER, Rung.BLOCK),
    "chance": (Rung.STEER, Rung.BLOCK),
    "graduated": (Rung.WARN, Rung.WARN, Rung.BLOCK),
}

PLACEHOLDERS = ("tool_name", "arguments", "count", "max_repeats", "window", "previous_result", "model")


def _ladder(value: Any) -> Any:
    """A mode's name or a list of rungs becomes a ladder."""
    rungs = ", ".join(Rung)
    if isinstance(value, str) and value in MODES:
        return MODES[value]
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        if bad := [rung for rung in value if rung not in list(Rung)]:
            raise ValueError(f"{bad[0]!r} is no rung; use {rungs}")
        return tuple(Rung(rung) for rung in value)
    # YAML reads `mode: off` as false.
    switch = "; `enabled: false` turns callfuse off" if isinstance(value, bool) else ""
    raise ValueError(f"use one of {', '.join(MODES)}, or a list of rungs ({rungs}){switch}")


def _number(value: Any) -> Any:
    """A switch is no number: pydantic would read `true` as 1."""
    if not isinstance(value, bool):
        return value
    raise ValueError("use a number (YAML reads on, off, yes and no as true and false)")


def _repeats(value: Any, whole: ValidatorFunctionWrapHandler) -> int:
    try:
        count: int = whole(value)
    except ValidationError:
        count = 1  # what is no whole number gets the same answer
    if count != 0 and count < 2:
        raise ValueError("use 0 (off) or a whole number from 2")
    return count


def _template(value: str) -> str:
    allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    try:
        fields = [(field, spec, conv) for _, field, spec, conv in Formatter().parse(value) if field is not None]
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces, and use the placeholders {allowed}") from None
    for field, spec, conversion in fields:
        if field not in PLACEHOLDERS or spec or conversion:
            written = f"{{{field}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}}}"
            raise ValueError(f"{written} is no placeholder; use {allowed}")
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Repeats = Annotated[Whole, WrapValidator(_repeats)]
Template = Annotated[str, Field(min_length=1), AfterValidator(_template)]
Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Bytes = Annotated[Whole, Field(gt=0)]


class Strict(BaseModel):
    """Unknown keys are errors, nothing changes after the start, and no error prints a value that may be secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ErrorMessages(Strict):
    """Every text that callfuse writes into a conversation; None keeps the built-in one."""

    block: Template | None = None
    warning: Template | None = None
    guidance: Template | None = None


class LoopSettings(Strict):
    """The `tool_call_loop` block. Times are seconds, sizes are bytes."""

    enabled: bool = True
    """Off means: not one byte is parsed."""
    mode: Annotated[Ladder, BeforeValidator(_ladder)] = MODES["chance_then_block"]
    """The ladder: the n-th finding of a streak takes rung n, a hard finding the last."""
    max_repeats: Repeats = 3
    """Calls with the pending one, with equal outcomes, from which a repeat is a finding; hard at twice that."""
    max_repeats_changing: Repeats = 6
    """The same whatever the outcomes, never below `max_repeats`; hard at five thirds of that."""
    ttl_seconds: Seconds = 300
    """The longest pause between two rounds of a streak, not the length of a streak."""
    window: Annotated[Whole, Field(ge=2, le=100)] = 10
    """Rounds in which a call counts as known."""
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

    @property
    def ladder(self) -> Ladder:
        """The rungs in order."""
        return self.mode
