"""Reads values of vendors' JSON that may be of any type. One of a type that is not documented counts as missing."""

from typing import Any

from callfuse.wire import Payload


def object_of(value: Any) -> Payload:
    """The value itself if it is an object, else an empty one."""
    return value if type(value) is dict else {}


def list_of(value: Any) -> list[Any]:
    """The value itself if it is a list, else an empty one."""
    return value if type(value) is list else []


def text_of(value: Any) -> str:
    """The value itself if it is a text; empty for null and other empty values; what it prints as for any other."""
    return value if type(value) is str else str(value or "")
