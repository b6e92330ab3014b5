"""Read the known calls with which a call is compared while its arguments arrive (`detect/comparison.py`).

Only what is needed to see a difference is kept of each argument: the beginning of a string, the canonical form of a
number or a word, the digest of an object, and lists of these.
"""

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.signature import canonical_value, contradicts_itself
from callfuse.wire.jsontext import NotJSON, UnreadableJSON, loads_exact
from callfuse.wire.values import is_too_much_inside

MOST: Final = 100
"""The most calls with which one is compared. If there are more, nothing is compared."""
LONGEST: Final = 512 * 1024
"""The most bytes of their canonical arguments, which take 5 ms to read. If they are longer, nothing is compared."""
KEPT: Final = 64 * 1024
"""The most bytes that are kept of them while the call is held. If it would be more, nothing is compared."""
BEGINNING: Final = 2048
"""How many characters of a string are kept. A string with the same beginning may be equal until its end."""
_OBJECT: Final = 64
"""The bytes of a string or list beside its contents."""
DEPTH: Final = 8
"""The most levels of nested lists. If there are more, nothing is compared."""
_NOT_JSON: Final = (b"nan", b"inf", b"-inf")
"""Canonical forms of numbers that are not JSON."""


class _TooDeepError(ValueError):
    """A value has too many lists in lists."""


class Beginning(str):
    """The beginning of a long string."""

    __slots__ = ()


class ObjectDigest(bytes):
    """The digest of an object."""

    __slots__ = ()


class Scalar(bytes):
    """The canonical form of a number or a word."""

    __slots__ = ()


Node = str | list[Any] | ObjectDigest | Scalar


class KnownCalls(NamedTuple):
    """The known calls of one tool, for comparison: arguments that are objects (`values`), and arguments that are not
    JSON, without white space (`texts`). Arguments named in `ignore` do not matter."""

    values: list[dict[str, Node]]
    texts: list[str]
    ignore: Collection[str]


def read_calls(calls: Iterable[ToolCall], ignore: Collection[str] = ()) -> KnownCalls | None:
    """Read the known calls of one tool. Return None if there are too many, or if a difference to one of them cannot be
    seen before the other call is complete."""
    values: list[dict[str, Node]] = []
    texts: list[str] = []
    length = kept = 0
    for call in calls:
        if not call.has_arguments or len(values) + len(texts) == MOST:
            return None
        text = call.canonical
        length += len(text)
        value = _value_of(text) if length <= LONGEST else None
        if isinstance(value, dict):
            try:
                values.append({key: node_of(one) for key, one in value.items()})
            except _TooDeepError:
                return None
            kept += sum([_size(key) + _size(one) for key, one in values[-1].items()])
        elif isinstance(value, str):
            texts.append(_beginning("".join(value.split())))
            kept += _size(texts[-1])
        if value is None or kept > KEPT:
            return None
    return KnownCalls(values, texts, ignore)


def node_of(value: Any, depth: int = DEPTH) -> Node:
    """Return the part of a value that is kept. Raises _TooDeepError."""
    if isinstance(value, str):
        return _beginning(value)
    if isinstance(value, list):
        if not depth:
            raise _TooDeepError
        return [node_of(one, depth - 1) for one in value]
    canonical = canonical_value(value)
    return ObjectDigest(sha256(canonical).digest()) if isinstance(value, dict) else Scalar(canonical)


def _beginning(text: str) -> str:
    return text if len(text) <= BEGINNING else Beginning(text[:BEGINNING])


def _size(node: Node) -> int:
    """Return about how many bytes a kept value takes, at most."""
    if isinstance(node, list):
        return _OBJECT + sum([8 + _size(one) for one in node])
    return _OBJECT + (4 * len(node) if isinstance(node, str) and not node.isascii() else len(node))


def goes_on(known: str, text: str, at: int) -> bool:
    """Whether a known string, as far as it was kept, continues with this text at index `at`."""
    if isinstance(known, Beginning):
        return at >= len(known) or known.startswith(text[: len(known) - at], at)
    return known.startswith(text, at)


def _value_of(canonical: bytes) -> dict[str, Any] | str | None:
    """Return canonical arguments as an object, or as text if they are not JSON; None for all else.

    Text that only looks like an object (cut off, too deep, with NaN, or with contradicting values) may be the canonical
    form of arguments that are spelled differently.
    """
    text = canonical.decode("utf-8", "surrogatepass")
    if is_too_much_inside(text):
        return None
    try:
        value = loads_exact(text)
    except UnreadableJSON:
        return None
    except NotJSON:
        return None if text[:1] in ("{", "[") or canonical in _NOT_JSON else text
    return value if isinstance(value, dict) and not contradicts_itself(text, value) else None
