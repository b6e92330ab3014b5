"""Fast path for the chunks of a growing call: a chunk that differs from the last one only in its piece of arguments is
not parsed as a whole.

A model that writes a file into a call sends thousands of chunks, and most vendors send each piece in the same envelope.
The envelope is parsed once, then only the pieces. Measured (benchmarks/chunks.py, per chunk of a call): 0.9 us with
this, 1.9 to 2.8 us without.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from callfuse.dialects.base import OpenCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, dumps

_PROBE: Final = "\x00callfuse"
"""A text that no vendor sends: it stands for any other piece when a template is tested."""

PayloadOf = Callable[[bytes], Payload | None]
"""Parses a frame; a format's `payload`."""

PieceCounts = Sequence[tuple[list[str], int]]
"""For each call of an answer: its list of pieces, and the length of that list at the time."""

TRIES: Final = 4
"""Chunks in a row that are tried as templates. After that many without a match the envelope evidently varies."""
MAX_CALLS: Final = 64
"""Calls of one answer up to which templates are tried: each try compares all of them."""


class ChunkTemplate:
    """The bytes around the piece of arguments in a chunk. A chunk with the same bytes around its piece only appends
    it.

    `before` ends with the piece's opening quote and `after` begins with its closing one: so the piece has no line end
    beside it, which would end a frame.
    """

    __slots__ = ("_after", "_before", "_end", "_known", "_pieces", "_start")

    def __init__(self, before: bytes, after: bytes, pieces: list[str]) -> None:
        self._before = before
        self._after = after
        self._start = len(before) - 1
        self._end = 1 - len(after)
        self._pieces = pieces
        self._known = len(pieces)

    def append(self, chunk: bytes) -> bool:
        """Append the piece of a chunk that fits; False if the chunk does not fit and has to be parsed."""
        if not (chunk.startswith(self._before) and chunk.endswith(self._after)):
            return False
        try:
            piece = orjson.loads(chunk[self._start : self._end])
        except orjson.JSONDecodeError:
            return False
        if type(piece) is not str:
            return False
        self._pieces.append(piece)
        return True

    @property
    def was_used(self) -> bool:
        """Whether any chunk has fitted."""
        return len(self._pieces) > self._known


class TemplateFinder:
    """Finds templates among the chunks of one answer; gives up after `TRIES` chunks in a row without a match."""

    __slots__ = ("_calls", "_payload_of", "_tries")

    def __init__(self, calls: Sequence[OpenCall], payload_of: PayloadOf) -> None:
        self._calls = calls
        self._payload_of = payload_of
        self._tries = TRIES

    def begin(self, last: ChunkTemplate | None) -> PieceCounts | None:
        """Call before a chunk is parsed that did not fit the last template. Returns the counts that `find` needs; None
        if the chunk is not to be tried."""
        if last is not None and last.was_used:
            self._tries = TRIES
        if not self._tries or len(self._calls) > MAX_CALLS:
            return None
        self._tries -= 1
        return count_pieces(self._calls)

    def find(self, chunk: bytes, before: PieceCounts) -> ChunkTemplate | None:
        """The template of a chunk (exactly one frame) that has just been parsed; None if it makes none."""
        return template_of(chunk, self._calls, before, self._payload_of)


def count_pieces(calls: Sequence[OpenCall]) -> PieceCounts:
    """The pieces of the calls before a chunk is parsed."""
    return [(call.pieces, len(call.pieces)) for call in calls]


def template_of(
    chunk: bytes, calls: Sequence[OpenCall], before: PieceCounts, payload_of: PayloadOf
) -> ChunkTemplate | None:
    """The template of a chunk (exactly one frame) that has just been parsed. None unless the chunk appended one piece
    to one open call and did nothing else."""
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
    return _cut_out(chunk, pieces, payload_of)


def _cut_out(chunk: bytes, pieces: list[str], payload_of: PayloadOf) -> ChunkTemplate | None:
    """The template around the last piece. Safe only if the piece occurs once in the chunk, encoded as `dumps` does, and
    replacing it changes nothing else in the payload."""
    piece = pieces[-1]
    before, found, after = chunk.partition(dumps(piece))
    if not found:
        return None
    try:
        payload, probed = payload_of(chunk), payload_of(before + dumps(_PROBE) + after)
        places = [(holder, key) for holder, key in _strings(probed or {}) if holder[key] in (_PROBE, piece)]
        if len(places) != 1:
            return None
        ((holder, key),) = places
        if holder[key] != _PROBE:  # of equal keys only the last counts, and this was another
            return None
        holder[key] = piece
        return ChunkTemplate(before + b'"', b'"' + after, pieces) if probed == payload else None
    except (NotJSON, RecursionError):
        return None


def _strings(value: Any) -> Iterator[tuple[Any, Any]]:
    """The places of all strings in a value, as (holder, key or index)."""
    left = [value]
    while left:
        holder = left.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, str):
                yield holder, key
            elif isinstance(item, dict | list):
                left.append(item)
