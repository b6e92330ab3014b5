"""Reads JSON values of the wrong shape as empty ones, so that one odd field does not hide the rest of a body."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from callfuse.dialects.base import CannotReplay
from callfuse.wire import Payload

_EMPTY: Final[Payload] = {}
"""Never changed."""


def as_object(value: Any) -> Payload:
    """The value if it is an object, else an empty one, which must not be changed."""
    return value if type(value) is dict else _EMPTY


def as_list(value: Any) -> Sequence[Any]:
    """The value if it is a list, else an empty one."""
    return value if type(value) is list else ()


def as_objects(value: Any) -> Sequence[Payload]:
    """The elements of a list, each as an object; empty if the value is no list."""
    return [as_object(one) for one in as_list(value)]


def as_text(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if type(value) is str else ""


def as_printed(value: Any) -> str:
    """The value if it is a text, empty for null and other empty values, else what it prints as."""
    return value if type(value) is str else str(value or "")


def as_index(value: Any) -> int:
    """The value if it is a number without a fraction, not below 0; else 0."""
    return value if type(value) is int and value >= 0 else 0


def is_one_of(value: Any, known: Collection[Any]) -> bool:
    """Whether a value, which may be of any type, is among these texts or numbers."""
    return isinstance(value, str | int) and value in known


@contextmanager
def replaying() -> Iterator[None]:
    """Raise CannotReplay for the errors that a malformed turn or request causes while it is rebuilt."""
    try:
        yield
    except CannotReplay:
        raise
    except (AttributeError, LookupError, TypeError, ValueError):
        raise CannotReplay("malformed") from None
