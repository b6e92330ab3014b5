"""What the model says in an answer, piece by piece: its text and its reasoning, of which each part grows for itself."""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from callfuse.detect.kind import REASONING, TEXT
from callfuse.dialects.shapes import objects_of

__all__ = ["REASONING", "TEXT", "SaidPiece", "blocks_in", "piece_in"]


class SaidPiece(NamedTuple):
    """A piece of text. `part`: `TEXT` or `REASONING`. `place`: the same for pieces of one text, and for no others of
    its answer. A whole answer has each text in one piece, or in a few."""

    part: str
    place: Hashable
    piece: str


def piece_in(part: str, place: Hashable, value: Any) -> Iterator[SaidPiece]:
    """What a value says that should be a text."""
    if type(value) is str and value:
        yield SaidPiece(part, place, value)


def blocks_in(content: Any, place: Hashable, keys: dict[str, tuple[str, str]]) -> Iterator[SaidPiece]:
    """What a list of blocks says. `keys`: by type of block, the key of its text, and the part that it is."""
    for at, block in enumerate(objects_of(content)):
        kind = block.get("type")
        if type(kind) is str and kind in keys:
            key, part = keys[kind]
            yield from piece_in(part, (place, at), block.get(key))
