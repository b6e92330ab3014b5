"""What the model says in an answer, piece by piece: texts and reasoning, which grow separately."""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from callfuse.detect.kind import REASONING, TEXT
from callfuse.dialects.shapes import objects_of

__all__ = ["REASONING", "TEXT", "SaidPiece", "blocks_in", "piece_in"]


class SaidPiece(NamedTuple):
    """A piece of text. `part`: `TEXT` or `REASONING`. `place`: identifies the text within the answer: it is equal for
    all pieces of one text. A whole answer has each text in one piece, or in a few."""

    part: str
    place: Hashable
    piece: str


def piece_in(part: str, place: Hashable, value: Any) -> Iterator[SaidPiece]:
    """Yield a value as a piece if it is a text that is not empty."""
    if type(value) is str and value:
        yield SaidPiece(part, place, value)


def blocks_in(content: Any, place: Hashable, keys: dict[str, tuple[str, str]]) -> Iterator[SaidPiece]:
    """Yield the texts in a list of blocks. `keys`: by type of block, the key of its text, and `TEXT` or `REASONING`."""
    for at, block in enumerate(objects_of(content)):
        kind = block.get("type")
        if type(kind) is str and kind in keys:
            key, part = keys[kind]
            yield from piece_in(part, (place, at), block.get(key))
