"""Edits the frames of one stream. A frame that differs from the frame before only in its values is edited without a
walk through its JSON.

The frames of an answer differ only in a piece of text; the envelope around it is the same. The edits that fit a frame
into another stream replace the same values each time. `FrameEditor` finds those values once. A later frame with the
same bytes around them, and around the text that differs, has them at the same places:

1. A JSON text is literals (brackets, commas, colons, white space) between tokens (strings, numbers, words). Two texts
   with equal literals and equal keys have the same structure: a path leads to the token with the same number.
2. So if two frames have equal literals and keys, and their edits have equal paths, the edited values are at the same
   places in both. The tokens that differ, and those that the edits replace, are skipped in later frames; all other
   bytes must be equal.
3. A later frame is matched from left to right. If its bytes up to a place are equal, a token begins at that place, and
   ends where the pattern of a token ends. An edit may also replace an object or a list: inside it, too, only the tokens
   that differ are skipped.

All else takes the slow path: other paths, a removed or an added member.
"""

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from callfuse.wire.format import Format
from callfuse.wire.jsontext import Edit, apply, replaced_spans

_TOKEN: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,:\[\]{}"]++)', re.DOTALL)
"""A string, or another value that is neither an object nor a list. As a group, so that `split` keeps it."""
_KEPT: Final = -1
"""Used in place of an edit's number: the value stays."""
_TOKEN_ONLY: Final[Sequence[bytes]] = ()
"""Used in place of a value's literals: the value is a single token."""
_LONGEST: Final = 4096
"""The most bytes of a text that is compared with the next one; a piece of an answer is far shorter."""
_TRIES: Final = 8
"""After so many comparisons in a row without success, only two neighbours of each `_PERIOD` texts are compared."""
_PERIOD: Final = 16


class FrameEditor:
    """Edits the frames of one stream of this format.

    `_tokens`: the last text that was walked through, as literals (even places) and tokens (odd ones). `_paths`: the
    paths of its edits. `_varying`: the places of tokens that have differed. `_steps`: what a frame must contain to be
    edited without a walk, in order. A step is a text; the literals of the value after it, with a token between each
    two; and the number of the edit that replaces this value, or `_KEPT`. `_tail`: the text after the last step.
    `_walks`: how many texts in a row were walked through.
    """

    __slots__ = ("_format", "_paths", "_steps", "_tail", "_tokens", "_varying", "_walks")

    def __init__(self, form: Format) -> None:
        self._format = form
        self._paths: list[object] = []
        self._tokens: list[bytes] = []
        self._varying: set[int] = set()
        self._steps: list[tuple[bytes, Sequence[bytes], int]] = []
        self._tail = b""
        self._walks = 0

    def edit(self, frame: bytes, edits: Sequence[Edit]) -> bytes:
        """Return the frame with these edits applied to its payload; all other bytes stay."""
        if not edits:
            return frame
        return self._format.with_text(frame, self.apply(self._format.text(frame), edits))

    def apply(self, text: bytes, edits: Sequence[Edit]) -> bytes:
        """Apply edits as `jsontext.apply` does, faster for texts of one stream."""
        paths: list[object] = [edit.path for edit in edits]
        if self._steps and paths == self._paths and (edited := self._replace(text, edits)) is not None:
            self._walks = 0
            return edited
        edited = apply(text, edits)
        if self._walks < _TRIES or self._walks % _PERIOD < 2:
            self._learn(text, edits, paths)
        self._walks += 1
        return edited

    def _replace(self, text: bytes, edits: Sequence[Edit]) -> bytes | None:
        """Return the edited text; None if the text is not like the one before."""
        pieces: list[bytes] = []
        end = 0
        for before, literals, number in self._steps:
            if not text.startswith(before, end):
                return None
            start = end + len(before)
            if literals:
                end = _end_of(text, start, literals)
            else:
                match = _TOKEN.match(text, start)
                end = match.end() if match is not None else 0
            if not end:
                return None
            old = text[start:end]
            raw = old if number == _KEPT else edits[number].raw
            if raw is None:
                return None
            pieces += (before, raw if isinstance(raw, bytes) else raw(old))
        if text[end:] != self._tail:
            return None
        pieces.append(self._tail)
        return b"".join(pieces)

    def _learn(self, text: bytes, edits: Sequence[Edit], paths: list[object]) -> None:
        """Compare a text with the text before, and compute what the next text must contain."""
        before, known = self._tokens, self._paths
        self._steps = []
        self._paths = paths
        self._tokens = _TOKEN.split(text) if len(text) <= _LONGEST else []
        is_alike = known == paths and len(before) > 1 and before[::2] == self._tokens[::2]
        changed = {at for at in range(1, len(before), 2) if before[at] != self._tokens[at]} if is_alike else set()
        if not is_alike or any(map(self._is_key, changed)):
            self._varying = set()
            return
        self._varying |= changed
        spans = replaced_spans(text, edits)
        if len(spans) == len(edits):
            self._find_steps(text, {span: number for number, span in enumerate(spans)})

    def _is_key(self, at: int) -> bool:
        return self._tokens[at + 1].lstrip().startswith(b":")

    def _find_steps(self, text: bytes, replaced: dict[tuple[int, int], int]) -> None:
        """Set the steps for texts like this. `replaced`: for each span, the number of the edit that replaces it."""
        ends = [*accumulate(map(len, self._tokens))]
        tokens = set(zip(ends[::2], ends[1::2], strict=False))
        varying = [(ends[at - 1], ends[at]) for at in sorted(self._varying)]
        begin = 0
        for start, end in sorted({*varying, *replaced}):
            if start < begin:
                continue  # within a value that is replaced
            literals = _TOKEN_ONLY
            if (start, end) not in tokens:
                edges = [start, *(edge for span in varying if start < span[0] < end for edge in span), end]
                literals = [text[one:other] for one, other in zip(edges[::2], edges[1::2], strict=True)]
            self._steps.append((text[begin:start], literals, replaced.get((start, end), _KEPT)))
            begin = end
        self._tail = text[begin:]


def _end_of(text: bytes, start: int, literals: Sequence[bytes]) -> int:
    """Return the end of a value of these literals, with a token between each two; 0 if the value is different."""
    end = start
    for at, literal in enumerate(literals):
        if at:
            match = _TOKEN.match(text, end)
            if match is None:
                return 0
            end = match.end()
        if not text.startswith(literal, end):
            return 0
        end += len(literal)
    return end
