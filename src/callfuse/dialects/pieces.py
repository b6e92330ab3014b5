"""Collects texts that come in pieces, within the objects of a turn that is rebuilt. Each text is joined only once, so
the cost is linear however many pieces there are."""

from typing import Any

from callfuse.wire import Payload


class Pieces(list[str]):
    """The pieces of one text. They replace the text in an object until `joined`."""


def grow(holder: Payload, key: str, piece: str) -> None:
    """Append a piece to the text under a key; the piece replaces null or a value of another type."""
    text = holder.get(key)
    if type(text) is Pieces:
        text.append(piece)
    else:
        holder[key] = Pieces((text, piece) if isinstance(text, str) else (piece,))


def joined(holder: Payload) -> dict[str, Any]:
    """Return the object with all its pieces joined into texts."""
    return {key: "".join(value) if type(value) is Pieces else value for key, value in holder.items()}
