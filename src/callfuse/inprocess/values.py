"""Convert Python values to the JSON that detectors read, and append texts to results."""

import json
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Any, Final

import orjson

from callfuse.model import MARKER
from callfuse.wire.jsontext import loads

_KEY: Final = MARKER.strip("[]")


def arguments_text(tool: str, arguments: object) -> str:
    """Return a call's arguments as JSON text: a mapping is converted, and text stays unchanged, even if it is not JSON.

    Values without a JSON form are written as their `repr`. Raises TypeError for any other type.
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
    """Return any value as JSON text. Values without a JSON form are written as their `repr`."""
    try:
        return orjson.dumps(value, default=repr).decode()
    except TypeError:  # wide integers, lone surrogates, keys that are not text, cyclic values
        pass
    try:
        return json.dumps(value, default=repr, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(object.__repr__(value))


def as_text(content: object) -> str:
    """Return a result as text for a model: text unchanged, anything else as JSON."""
    return content if isinstance(content, str) else json_text(content)


def plain(content: object) -> Any:
    """Convert a result of any type to text or to a JSON value."""
    return content if isinstance(content, str) else loads(json_text(content))


def append_text(result: Any, text: str) -> Any:
    """Append callfuse's text to a tool's result, in a copy that keeps the result's shape if possible.

    Text: after a blank line. A mapping: under the key `callfuse`. A list of content parts (objects with a `type`): as
    one more part. None and empty text: the text alone. Anything else becomes text: its JSON, then the text.
    """
    if isinstance(result, Mapping):
        return {**result, _KEY: text}
    if isinstance(result, list) and result and all(isinstance(part, dict) and "type" in part for part in result):
        return [*result, {"type": "text", "text": text}]
    return text if result is None or result == "" else f"{as_text(result)}\n\n{text}"
