"""The values of Python programs as the JSON that detectors read: arguments, and results of any type."""

import json
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any

import orjson

from callfuse.wire.jsontext import loads


def arguments_text(tool: str, arguments: object) -> str:
    """Arguments as JSON text. Text stays as the model wrote it, JSON or not; TypeError for what is no mapping either.

    Values that JSON does not know count by their `repr`.
    """
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping):
        return json_text(dict(arguments))
    raise TypeError(
        f"arguments of {tool or 'a tool'} = {short_repr(arguments)} ({type(arguments).__name__}): "
        "use a mapping, or the JSON text that the model wrote; {} for none"
    )


def json_text(value: object) -> str:
    """Any value as JSON text; what JSON does not know stands there by its `repr`."""
    try:
        return orjson.dumps(value, default=repr).decode()
    except TypeError:  # wide integers, lone surrogates, keys that are no text, values that hold themselves
        pass
    try:
        return json.dumps(value, default=repr, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(object.__repr__(value))


def shown(content: object) -> str:
    """A result as text for a model: text as it is, all else as JSON."""
    return content if isinstance(content, str) else json_text(content)


def plain(content: object) -> Any:
    """A result of any type as text or as a JSON value."""
    return content if isinstance(content, str) else loads(json_text(content))
