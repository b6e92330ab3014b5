"""Reads the choices of a chunk."""

from typing import NamedTuple

from callfuse.wire import Payload


class ChoicePart(NamedTuple):
    """One choice of a chunk. `place`: its index in the list. `number`: the choice's own index."""

    place: int
    number: int
    choice: Payload
    delta: Payload


def choice_parts(payload: Payload | None) -> list[ChoicePart]:
    """Return the choices of a chunk; empty if the chunk has none, or is None."""
    choices = payload.get("choices") if payload is not None else None
    parts: list[ChoicePart] = []
    for place, choice in enumerate(choices if type(choices) is list else ()):
        if type(choice) is dict:
            number, delta = choice.get("index"), choice.get("delta")
            kept = delta if type(delta) is dict else {}
            parts.append(ChoicePart(place, number if type(number) is int else 0, choice, kept))
    return parts


def number_of(choice: Payload) -> int:
    """Return the index of a choice; 0 if the choice has none."""
    number = choice.get("index")
    return number if type(number) is int else 0
