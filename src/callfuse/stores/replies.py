"""Read a server's replies to scripts. Raises UnexpectedReplyError for a reply of any other shape.

A server, or another program at its address, may answer with anything. A wrong reply counts as a failure of the store,
like a missing one. So replies are read where failures are caught (`stores/redis.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Value = bytes | None
"""The value of a key."""
T = TypeVar("T")
Reader = Callable[[Any], T]


class UnexpectedReplyError(TypeError):
    """A reply that no script of callfuse gives."""


def read_value(reply: Any) -> Value:
    """Read the value of a key."""
    if reply is None or isinstance(reply, bytes):
        return reply
    raise UnexpectedReplyError(f"expected a value, got {type(reply).__name__}")


def read_number(reply: Any) -> int:
    """Read a whole number."""
    if type(reply) is int:
        return reply
    raise UnexpectedReplyError(f"expected a number, got {type(reply).__name__}")


def values_of(count: int) -> Reader[list[Value]]:
    """Make a reader of the values of this many keys."""
    return partial(_read_values, count)


def moved_of(count: int) -> Reader[list[Value]]:
    """Make a reader of the reply to a write that checks `count` keys: empty if it was done, else the values of these
    keys."""
    return partial(_read_moved, count)


def states_of(count: int) -> Reader[list[tuple[Value, int]]]:
    """Make a reader of the values of this many keys, each with a number."""
    return partial(_read_states, count)


def read_scores(reply: Any) -> list[tuple[bytes, float]]:
    """Return the members of a sorted set, each with its score. Raises ValueError for a score that is not a number."""
    items = _list(reply)
    if len(items) % 2 or not all(isinstance(item, bytes) for item in items):
        raise UnexpectedReplyError("expected members with their scores")
    return [(member, float(score)) for member, score in zip(items[::2], items[1::2], strict=True)]


def read_entries(reply: Any) -> list[tuple[str, bytes]]:
    """Return the entries of a stream: each id and value. The value is empty unless the entry has exactly one field.
    Raises ValueError for an id that is not a text."""
    entries = []
    for item in _list(reply):
        id_, fields = _list(item, 2)
        if not isinstance(id_, bytes):
            raise UnexpectedReplyError("an entry without an id")
        known = _list(fields) if fields is not None else []
        entries.append((id_.decode(), read_value(known[1]) or b"" if len(known) == 2 else b""))
    return entries


def _read_values(count: int, reply: Any) -> list[Value]:
    return [read_value(one) for one in _list(reply, count)]


def _read_moved(count: int, reply: Any) -> list[Value]:
    return [] if type(reply) is int else _read_values(max(1, count), reply)


def _read_states(count: int, reply: Any) -> list[tuple[Value, int]]:
    items = _list(reply, 2 * count)
    return [(read_value(value), read_number(number)) for value, number in zip(items[::2], items[1::2], strict=True)]


def _list(reply: Any, length: int | None = None) -> list[Any]:
    """Check that a reply is a list of this length (None: any length)."""
    if not isinstance(reply, list) or length not in (None, len(reply)):
        raise UnexpectedReplyError(f"expected a list of the right length, got {type(reply).__name__}")
    return reply
