"""The chunks of a call that differ in nothing but its next piece: most of a long call.

A model writes a file into a call in thousands of chunks, and most vendors send each piece in the same envelope. What
stands around the piece is parsed once; after that the piece alone, at a third of what the whole chunk costs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from callfuse.dialects.base import OpenCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, dumps

_PROBE: Final = "\x00callfuse"
"""A text that no vendor sends."""

Lengths = Sequence[tuple[list[str], int]]
"""The pieces of each call of an answer, and how many there were."""


class Growth:
    """What stands around a piece, where such a chunk adds it to its call and does nothing else that it has not done
    before."""

    __slots__ = ("_after", "_before", "_known", "_pieces")

    def __init__(self, before: bytes, after: bytes, pieces: list[str]) -> None:
        self._before = before
        self._after = after
        self._pieces = pieces
        self._known = len(pieces)

    def takes(self, chunk: bytes) -> bool:
        """Add the piece that a chunk brings; False where the chunk is another, which has to be read."""
        before, after = self._before, self._after
        if not (chunk.startswith(before) and chunk.endswith(after)):
            return False
        try:
            piece = orjson.loads(chunk[len(before) : len(chunk) - len(after)])
        except orjson.JSONDecodeError:
            return False
        if type(piece) is not str:
            return False
        self._pieces.append(piece)
        return True

    @property
    def has_taken(self) -> bool:
        """Whether there was any chunk like that."""
        return len(self._pieces) > self._known


def lengths_of(calls: Sequence[OpenCall]) -> Lengths:
    """What `growth_in` has to know of the calls as they were before a chunk was read."""
    return [(call.pieces, len(call.pieces)) for call in calls]


def growth_in(
    chunk: bytes, calls: Sequence[OpenCall], before: Lengths, payload_of: Callable[[bytes], Payload | None]
) -> Growth | None:
    """What stands around the piece in a chunk, one frame, that has just been read and has added one to one call."""
    if len(calls) != len(before):
        return None
    changed = [
        (call, pieces, length)
        for call, (pieces, length) in zip(calls, before, strict=True)
        if call.pieces is not pieces or len(pieces) != length
    ]
    if len(changed) != 1:
        return None
    ((call, pieces, length),) = changed
    if call.closed or call.pieces is not pieces or len(pieces) != length + 1:
        return None
    return _around(chunk, pieces, payload_of)


def _around(chunk: bytes, pieces: list[str], payload_of: Callable[[bytes], Payload | None]) -> Growth | None:
    """It is certain where the chunk holds the piece once, as it is written here, and with another text in its place
    says the same, but for that text."""
    piece = pieces[-1]
    before, found, after = chunk.partition(dumps(piece))
    if not found:
        return None
    try:
        payload, probed = payload_of(chunk), payload_of(before + dumps(_PROBE) + after)
        places = [(holder, key) for holder, key in _texts(probed or {}) if holder[key] in (_PROBE, piece)]
        if len(places) != 1:
            return None
        ((holder, key),) = places
        holder[key] = piece
        return Growth(before, after, pieces) if probed == payload else None
    except (NotJSON, RecursionError):
        return None


def _texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where in a value texts stand, as (holder, key or index)."""
    left = [value]
    while left:
        holder = left.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, str):
                yield holder, key
            elif isinstance(item, dict | list):
                left.append(item)
