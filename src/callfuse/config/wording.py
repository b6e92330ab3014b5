"""Write the texts about wrong settings: the value without credentials, and what is allowed."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from callfuse.config.model import item_of, section_of
from callfuse.policy.fields import SWITCH_NAMES
from callfuse.policy.nearest import value_hint

MAX_SHOWN = 120
"""Characters of a value that a message shows."""

_USER_INFO = re.compile(r"^(.*?://)?.*@", re.DOTALL)
_ORIGIN = re.compile(r"(https?://)(?:[^/?#]*@)?((?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?)(?=[/?#]|$)")
_AT_IN_QUERY = re.compile(r"^(.*?://).*[?&][\w.-]+=.*@.*", re.DOTALL)
_QUERY = re.compile(r"(^\S+://[^\s?#]*[?#]).+|(://[^\s?#]*[?#])\S+", re.DOTALL)


def without_credentials(text: str) -> str:
    """Mask possible credentials with `***`: everything between a scheme and the last @, and the query of a URL.

    If that @ may be in the query, everything after the scheme is masked.
    """
    if found := _AT_IN_QUERY.match(text):
        return f"{found[1]}***"
    # Greedy, because a password in a URL may contain slashes, spaces and @.
    masked = _USER_INFO.sub(lambda found: f"{found[1] or ''}***@", text) if "@" in text else text
    return _QUERY.sub(r"\1\2***", masked)


def masked(secret: object) -> str:
    """Return a secret in a form that is safe to show: scheme and host of a URL, and nothing of other secrets."""
    found = _ORIGIN.match(str(secret))
    return f"{found[1]}{found[2]}/***" if found else "***"


def format_value(value: object) -> str:
    """Format a value for a message: as in the file, cut to `MAX_SHOWN` characters, without credentials."""
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case str():
            text = repr(without_credentials(value))
        case Mapping():
            return "a mapping"
        case list() | tuple():
            text = f"[{', '.join(format_value(item) for item in value)}]"
        case _:
            text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def describe_allowed(field: FieldInfo) -> str:
    """Describe what a field takes: "a whole number from 2 to 100"."""
    return _describe_type(field.annotation, list(field.metadata))


def describe_fix(problem: Mapping[str, Any], field: FieldInfo, value: object) -> str:
    """Describe what is allowed in place of a refused value. `problem` is an error of pydantic's."""
    own_words = problem.get("ctx", {}).get("error")
    if own_words:
        return str(own_words)
    names = SWITCH_NAMES if field.annotation is bool else [*map(str, _choices(field.annotation))]
    return f"use {describe_allowed(field)}{value_hint(value, names)}"


def _describe_type(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        bare, *more = get_args(annotation)
        inner = [part for item in more for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _describe_type(bare, metadata + inner)
    if origin in (Union, UnionType):
        return " or ".join(_describe_type(arm, metadata) for arm in get_args(annotation) if arm is not type(None))
    if choices := _choices(annotation):
        return f"one of {', '.join(map(str, choices))}"
    if section_of(annotation):
        return "a mapping of keys"
    if item := item_of(annotation):
        return f"a list of mappings ({', '.join(item.model_fields)})"
    if origin is tuple and get_args(annotation)[0] is str:
        return "a list of texts"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text that is not empty"}
    return names.get(annotation, "another value") + _describe_range(metadata)


def _choices(annotation: Any) -> Sequence[object]:
    """Return the values of a field that allows only a few; empty for any other."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [*annotation]
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _describe_range(metadata: list[Any]) -> str:
    low = next((f"from {bound.ge}" for bound in metadata if isinstance(bound, Ge)), "")
    low = next((f"above {bound.gt}" for bound in metadata if isinstance(bound, Gt)), low)
    high = next((f"to {bound.le}" for bound in metadata if isinstance(bound, Le)), "")
    high = next((f"below {bound.lt}" for bound in metadata if isinstance(bound, Lt)), high)
    return "".join(f" {bound}" for bound in (low, high) if bound)
