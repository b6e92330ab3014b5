"""Reads values of vendors' JSON that may be of any type. A value of an undocumented type counts as missing."""

from collections.abc import Collection
from typing import Any, TypeGuard

from callfuse.wire import Payload


def object_of(value: Any) -> Payload:
    """Return the value itself if it is an object, else an empty one."""
    return value if type(value) is dict else {}


def list_of(value: Any) -> list[Any]:
    """Return the value itself if it is a list, else an empty one."""
    return value if type(value) is list else []


def objects_of(value: Any) -> list[Payload]:
    """Return the elements of a list, each as an object (the list itself if all are); empty for any other value."""
    if type(value) is not list:
        return []
    for one in value:
        if type(one) is not dict:
            return [object_of(each) for each in value]
    return value  # nearly always


def text_of(value: Any) -> str:
    """Return the value itself if it is a text; an empty text for null and other empty values; else its `str`."""
    return value if type(value) is str else str(value or "")


def plain_text_of(value: Any) -> str:
    """Return the value itself if it is a text, else an empty one."""
    return value if type(value) is str else ""


def index_of(value: Any) -> int:
    """Return the value itself if it is an integer that is not negative, else 0."""
    return value if type(value) is int and value >= 0 else 0


def is_index(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer that is not negative. `True` does not count, though it is an `int` in Python."""
    return type(value) is int and value >= 0


def is_one_of(value: Any, known: Collection[Any]) -> bool:
    """Whether a value is among these texts or numbers."""
    return isinstance(value, str | int) and value in known
