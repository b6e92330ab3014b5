"""Read the fields of an event that another process has written, from a shared store or from the feed of a server."""

from typing import Any, Final

from callfuse.observe import fields as names
from callfuse.observe.printable import printable
from callfuse.wire.jsontext import NotJSON, loads

LONGEST: Final = 10_000
"""Characters of a text, more than any that callfuse writes."""
LARGEST: Final = 1e15
"""Larger than any number that callfuse writes."""
NUMBERS: Final = frozenset(
    {
        *(names.TIME, names.SECONDS, names.COUNT, names.THRESHOLD, names.WINDOW, names.CONFIDENCE, names.STEP),
        *(names.BLOCKS, names.SAVED_CALLS, names.SAVED_TOKENS, names.SAVED_COST, names.REQUEST_TOKENS),
        names.REQUEST_COST,
        *(names.INPUT_TOKENS, names.CACHED_TOKENS, names.OUTPUT_TOKENS, names.ESTIMATED_TOKENS, names.COST),
    }
)
FLAGS: Final = frozenset({names.HARD, names.AGAIN, names.FIRST, names.IS_OFF})
LISTS: Final = frozenset({names.KINDS, names.RESTS_ON, names.PATTERN, names.SESSIONS, names.CUT})


def read_fields(data: bytes) -> dict[str, Any]:
    """Return the fields of an event in JSON that an activity (`observe/activity.py`) uses, texts bounded and printable;
    none if it is not JSON. Values of unexpected types are left out, because other programs may write to the store."""
    try:
        found = loads(data)
    except NotJSON:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: _text_of(value) for name, value in found.items() if _fits(name, value)}


def _fits(name: str, value: Any) -> bool:
    if name in NUMBERS:
        return type(value) in (int, float) and -LARGEST < value < LARGEST
    if name in FLAGS:
        return type(value) is bool
    if name in LISTS:
        return type(value) is list and len(value) <= names.MOST and all(type(one) is str for one in value)
    return type(value) is str


def _text_of(value: Any) -> Any:
    """Return a value with its texts bounded and printable."""
    if type(value) is list:
        return [_text_of(one) for one in value]
    if type(value) is not str or (value.isprintable() and len(value) <= LONGEST):
        return value
    return printable(value[:LONGEST])
