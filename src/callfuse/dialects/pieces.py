"""Texts that come in pieces, within the objects of a turn that is rebuilt. Each is joined once, so that the cost is
linear, however many pieces there are."""

from typing import Any

from callfuse.wire import Payload


class Pieces(list[str]):
    """The pieces of one text. They stand in the text's place until `joined`."""


def grow(holder: Payload, key: str, piece: str) -> None:
    """Append a piece to the text under a key; a missing, null or other value is replaced by it."""
    text = holder.get(key)
    if type(text) is Pieces:
        text.append(piece)
    else:
        holder[key] = Pieces((text, piece) if isinstance(text, str) else (piece,))


def joined(holder: Payload) -> dict[str, Any]:
    """The object with its texts whole."""
    return {key: "".join(value) if type(value) is Pieces else value for key, value in holder.items()}
