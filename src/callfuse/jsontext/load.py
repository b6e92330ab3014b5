"""Read and write JSON fast, and fall back to the lenient reader for what the fast one refuses.

orjson refuses lone surrogates, NaN, 1e400 and deep nesting; models and clients send all of them.
"""

import json
from typing import Any

import orjson


class NotJSON(ValueError):
    """The text is no JSON for either reader."""


def loads(text: bytes | str) -> Any:
    """The value of a JSON text; raises `NotJSON`. Integers beyond 64 bits come as floats (see `loads_exact`)."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return loads_exact(text)


def loads_exact(text: bytes | str) -> Any:
    """As `loads`, slower, with every digit of every integer kept."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise NotJSON(str(error)) from None


class ExactAt:
    """Reads the value at a place of a JSON text as `loads_exact` does, when it is called; None where there is none."""

    __slots__ = ("_path", "_text")

    def __init__(self, text: bytes, *path: str | int) -> None:
        self._text = text
        self._path = path

    def __call__(self) -> Any:
        value = loads_exact(self._text)
        for step in self._path:
            value = value.get(step) if isinstance(value, dict) else value[step]
        return value


def dumps(value: Any) -> bytes:
    """A value as compact UTF-8 JSON; lone surrogates and wide integers are written as escapes and digits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
