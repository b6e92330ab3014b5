"""Reads the parts of a chunk or an answer. A value of a type that the vendor does not document counts as missing."""

from typing import Any, NamedTuple

from callfuse.wire import Payload


class ChoicePart(NamedTuple):
    """One choice of a chunk. `place`: its index in the list. `number`: the choice's own index."""

    place: int
    number: int
    choice: Payload
    delta: Payload


def choice_parts(payload: Payload | None) -> list[ChoicePart]:
    """The choices of a chunk; empty if it has none, or is None."""
    return [
        ChoicePart(place, number_of(choice), choice, object_of(choice.get("delta")))
        for place, choice in enumerate(list_of((payload or {}).get("choices")))
        if type(choice) is dict
    ]


def number_of(choice: Payload) -> int:
    """The index of a choice; 0 if it has none."""
    number = choice.get("index")
    return number if type(number) is int else 0


def object_of(value: Any) -> Payload:
    """The value itself if it is an object, else an empty one."""
    return value if type(value) is dict else {}


def list_of(value: Any) -> list[Any]:
    """The value itself if it is a list, else an empty one."""
    return value if type(value) is list else []


def text_of(value: Any) -> str:
    """The value itself if it is a text; empty for null and other empty values; what it prints as for any other."""
    return value if type(value) is str else str(value or "")
