"""Reads the choices of a chunk."""

from typing import NamedTuple

from callfuse.dialects.shapes import list_of, object_of
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
