"""The types of the values of settings: ladders, counts, times, texts with placeholders, on-or-off limits."""

from dataclasses import dataclass
from string import Formatter, ascii_lowercase, digits
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from callfuse.policy.nearest import value_hint
from callfuse.policy.presets import MODES, Preset
from callfuse.policy.rungs import HARDEST, NO_CAP, RUNG_NAMES, Ladder, Rung

PLACEHOLDERS = (
    "tool_name",
    "arguments",
    "count",
    "max_repeats",
    "window",
    "previous_result",
    "model",
    "finding",
    "suggestion",
)

_HEADER_CHARACTERS = frozenset(f"{ascii_lowercase}{digits}!#$%&'*+-.^_`|~")
"""https://www.rfc-editor.org/rfc/rfc9110#name-tokens"""
SWITCHES = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
"""Words for on and off, in lower case."""
OFF: Final = "off"
"""A part of an answer in which a kind is not looked for."""
SWITCH_NAMES: Final = ("true", "false")
"""Those that messages suggest."""
SECRET: Final[dict[str, Any]] = {"writeOnly": True}
"""The `json_schema_extra` of a key whose value is never printed."""


def lower(value: Any) -> Any:
    """Convert a word to lower case: many write log levels in capitals."""
    return value.lower() if isinstance(value, str) else value


def lower_or_none(value: Any) -> Any:
    """Convert a word to lower case. YAML reads `no` and `off` as false, which here means the word `none`."""
    return "none" if value is False else lower(value)


def ladder(value: Any) -> Any:
    """Convert a mode's name or a list of rungs to a ladder; names in any case, and with `-` for `_`."""
    rungs = ", ".join(Rung)
    if isinstance(value, Preset):
        return value
    if isinstance(value, str) and (name := _name(value)) in MODES:
        return MODES[name]
    if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        if bad := [rung for rung in value if _name(rung) not in RUNG_NAMES]:
            raise ValueError(f"{bad[0]!r} is not a rung; use {rungs}{value_hint(bad[0], [*Rung])}")
        return tuple(RUNG_NAMES[_name(rung)] for rung in value)
    # YAML reads `mode: off` as false.
    switch = "; `enabled: false` turns callfuse off" if isinstance(value, bool) else ""
    raise ValueError(f"use one of {', '.join(MODES)}, or a list of rungs ({rungs}){switch or value_hint(value, MODES)}")


def preset_of(mode: object) -> Preset | None:
    """Return the preset that a mode is, or names; None if the mode is not a preset."""
    found = MODES.get(_name(mode)) if isinstance(mode, str) else mode
    return found if isinstance(found, Preset) else None


def _plain_ladder(ladder: Ladder) -> str | list[str]:
    return ladder.name if isinstance(ladder, Preset) else [*map(str, ladder)]


def _name(value: str) -> str:
    return value.strip().lower().replace("-", "_")


def _number(value: Any) -> Any:
    """Return the value; raise ValueError for a switch, because pydantic would read `true` as 1."""
    if not isinstance(value, bool):
        return value
    raise ValueError("use a number (YAML reads on, off, yes and no as true and false)")


def _repeats(value: Any, whole: ValidatorFunctionWrapHandler) -> int:
    try:
        count: int = whole(value)
    except ValidationError:
        count = 1  # other values get the same message
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
            raise ValueError(f"{written} is not a placeholder; use {allowed}")
    return value


@dataclass(frozen=True, slots=True)
class Limit:
    """Reads a detector's soft limit: off, on (`default`), or a number. `unit`: its name in the long form."""

    unit: str
    default: int

    def __call__(self, value: Any) -> Any:
        """Return the number; 0 means off."""
        if isinstance(value, str):  # from the environment
            word = value.strip().lower()
            value = SWITCHES.get(word, int(word) if word.isdecimal() else value)
        if isinstance(value, bool):
            return self.default if value else 0
        if isinstance(value, int) and not isinstance(value, bool) and (value == 0 or value >= 2):
            return value
        hint = value_hint(value, SWITCH_NAMES)
        raise ValueError(f"use false, true, a whole number from 2, or a mapping ({self.unit}, most, most_hard){hint}")


def limit(unit: str, default: int) -> BeforeValidator:
    """Return the validator of a detector's soft limit."""
    return BeforeValidator(Limit(unit, default))


@dataclass(frozen=True, slots=True)
class Switch:
    """Reads the switch of a kind whose limit is set under other keys (`limited_by`). `parts`: the parts of an answer in
    which it may be found, which are further keys of the long form."""

    limited_by: str
    parts: tuple[str, ...] = ()

    def __call__(self, value: Any) -> Any:
        """Return whether the kind is on."""
        known = SWITCHES.get(value.strip().lower()) if isinstance(value, str) else value
        if isinstance(known, bool):
            return known
        limit = f"; the limit is {self.limited_by}" if self.limited_by else ""
        hint = value_hint(value, SWITCH_NAMES)
        keys = ", ".join((*self.parts, "most", "most_hard"))
        raise ValueError(f"use false, true, or a mapping ({keys}){limit}{hint}")


def cap(value: Any) -> Any:
    """Convert the name of a rung to the rung, and `none` to the hardest rung."""
    if isinstance(value, str):
        name = _name(value)
        if name == NO_CAP:
            return HARDEST
        if name in RUNG_NAMES:
            return RUNG_NAMES[name]
    raise ValueError(f"use {', '.join(Rung)}, or {NO_CAP}{value_hint(value, [*Rung, NO_CAP])}")


def part_cap(value: Any) -> Any:
    """Return the strictest rung for a part of an answer, or `off`, which YAML reads as false."""
    if value is False or (isinstance(value, str) and _name(value) == OFF):
        return OFF
    if isinstance(value, str) and (name := _name(value)) in (*RUNG_NAMES, NO_CAP):
        return cap(name)
    names = (OFF, *Rung)
    raise ValueError(f"use {', '.join(names)}{value_hint(value, names)}")


def _header_names(values: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(value.strip().lower() for value in values)
    for name in names:
        if not name or not _HEADER_CHARACTERS.issuperset(name) or name.startswith("x-callfuse-"):
            raise ValueError(f"{name!r} is not the name of a client's header; use names as in x-auth-token")
    return names


Mode = Annotated[Ladder, PlainValidator(ladder), PlainSerializer(_plain_ladder, when_used="json")]
Whole = Annotated[int, BeforeValidator(_number)]
Repeats = Annotated[Whole, WrapValidator(_repeats)]
Template = Annotated[str, Field(min_length=1), AfterValidator(_template)]
Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Pause = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Threshold = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
Amount = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
Bytes = Annotated[Whole, Field(gt=0)]
HeaderNames = Annotated[tuple[str, ...], AfterValidator(_header_names)]


class Strict(BaseModel):
    """Unknown keys are errors, nothing changes after the start, and no error prints a value that may be secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
