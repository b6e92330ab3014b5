"""Parses a JSON text that repeats an earlier text and adds elements to one of its lists: only these are parsed.

Agents send their whole conversation again with each request: the same bytes, a few more messages, the same bytes.

A place is a position directly after an element of the list. It is proven, not guessed: with a mark inserted there as
one more element, the text is still JSON, and the parser finds the mark in the right list, whatever strings, nested
lists and equal keys the text has. (So the author of the text must not know the mark.) If other elements are inserted at
a place, the JSON stays valid, and the parser finds them in that list. The bytes between a place and the known rest are
such elements if they parse as a list with `[0` before and `]` after them.

Results depend only on the bytes: they are what the parser returns for the whole text, or None.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from callfuse.wire.values import MOST_VALUES, separators

BYTES_A_VALUE: Final = 100
"""About how many bytes a parsed value takes beside its text: a short string 50, an object 200."""
LAST_PLACES: Final = 4
"""How many places at the end of a text are kept at least. Claude Code marks its two newest messages for the vendor's
cache and removes the marks from older ones: a text equals its predecessor up to the third place from its end."""
MOST_PARTS: Final = 32
"""The most parts of a text. If there are more, the first are joined. For 300 KB this copy takes as long as all else."""

_BETWEEN: Final = (b'},{"role"', b'}, {"role"')
"""The bytes between two messages, as JavaScript and Python write them. They cannot be in a string, where quotes are
escaped; if they are in another list, the parser does not find the mark in the right one."""
_BLANKS: Final = b" \t\n\r"
NO_PLACE: Final = -1


class KnownText(NamedTuple):
    """A parsed text, in parts that end at its places, and the `rest` after the last place.

    `counts`: how many elements the list has up to each place; empty if no place is proven, and then there is no
    `payload`. `values`: an upper bound of the text's number of values, or `NO_PLACE` if the guessed last place was
    wrong. `size`: about how much memory text and payload take.
    """

    parts: tuple[bytes, ...]
    counts: tuple[int, ...]
    rest: bytes
    payload: Any
    values: int
    size: int


class Shared(NamedTuple):
    """What a text has in common with a known text: all but the bytes from `begin` (place number `place`) to `end`."""

    known: KnownText
    place: int
    begin: int
    end: int

    @property
    def is_proven(self) -> bool:
        """Whether only the bytes between `begin` and `end` need to be parsed."""
        return bool(self.known.counts)


class NewText(NamedTuple):
    """What the parser returns for a text, and what to keep of the text; None if no later text can continue it."""

    payload: Any
    known: KnownText | None


def compare(text: bytes, known: KnownText) -> Shared | None:
    """Return what a text has in common with a known text; None if they do not share at least one place and the rest."""
    end = len(text) - len(known.rest)
    begin, place = 0, -1
    if end >= len(known.parts[0]) and text.endswith(known.rest):
        for part in known.parts:
            behind = begin + len(part)
            if behind > end or not text.startswith(part, begin):
                break
            begin, place = behind, place + 1
    return Shared(known, place, begin, end) if place >= 0 else None


def parse_new(text: bytes, key: str, shared: Shared, mark: str) -> NewText | None:
    """Parse only the new bytes of a text; the places of the known text are proven. Return None if these bytes are
    anything but elements of the list under `key`, or if the text may have too many values."""
    known, place, begin, end = shared
    new = text[begin:end]
    values = known.values + separators(new)
    if values > MOST_VALUES or (new and new.lstrip(_BLANKS)[:1] != b","):
        return None
    at = _places_in(new)
    found = _parse_elements(_with_marks(new, at, mark))
    counts = None if found is None else _take_marks(found, len(at), mark)
    if counts is None and at:
        at, counts, found = [], [], _parse_elements(new)
    if found is None or counts is None:
        return None
    before = known.counts[place]
    elements = [*known.payload[key][:before], *found]
    payload = {**known.payload, key: elements}
    parts, counts = known.parts[: place + 1], [*known.counts[: place + 1], *[before + one for one in counts]]
    if found:
        parts, counts = (*parts, *_cut(new, at)), [*counts, len(elements)]
    size = known.size + _size(new, values - known.values)
    return NewText(payload, _known(parts, counts, known.rest, payload, values, size))


def parse_whole(text: bytes, key: str, shared: Shared | None, mark: str) -> NewText | None:
    """Parse a text whose places are not proven. Return None if the fast parser refuses the text. `shared`: what the
    text has in common with a known text; the places of these bytes are proven now."""
    if shared is not None and shared.known.values != NO_PLACE:
        at = [*_places_in(text[: shared.end]), shared.end]
        try:
            payload = orjson.loads(_with_marks(text, at, mark))
        except orjson.JSONDecodeError:
            payload = None
        elements = payload.get(key) if type(payload) is dict else None
        if type(elements) is list and (counts := _take_marks(elements, len(at), mark)):
            values = separators(text)
            parts, rest = _cut(text[: shared.end], at[:-1]), shared.known.rest
            return NewText(payload, _known(parts, counts, rest, payload, values, _size(text, values)))
    try:
        payload = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    end = _likely_end(text, payload, key) if shared is None else shared.end
    if end is None:
        return NewText(payload, None)
    begin = text[:end]
    values = 0 if shared is None else NO_PLACE
    return NewText(payload, KnownText(_cut(begin, _places_in(begin)), (), text[end:], None, values, len(text)))


def _size(text: bytes, values: int) -> int:
    """Return about how much memory a text and its parsed values take. One character outside ASCII widens its string."""
    return len(text) * (2 if text.isascii() else 5) + BYTES_A_VALUE * values


def _known(
    parts: tuple[bytes, ...], counts: Sequence[int], rest: bytes, payload: Any, values: int, size: int
) -> KnownText:
    """Return a known text with these parts, all places proven. If there are too many parts, the first are joined."""
    joined = len(parts) - LAST_PLACES
    if len(parts) > MOST_PARTS:
        parts, counts = (b"".join(parts[: joined + 1]), *parts[joined + 1 :]), counts[joined:]
    return KnownText(parts, tuple(counts), rest, payload, values, size)


def _cut(text: bytes, at: Sequence[int]) -> tuple[bytes, ...]:
    """Split a text at these positions."""
    return tuple([text[begin:end] for begin, end in zip((0, *at), (*at, len(text)), strict=True)])


def _places_in(text: bytes) -> list[int]:
    """Return the likely places between the last messages of a text, in order; at most `LAST_PLACES - 1`."""
    for between in _BETWEEN:
        found: list[int] = []
        end = len(text)
        while len(found) < LAST_PLACES - 1 and (at := text.rfind(between, 0, end)) >= 0:
            found.insert(0, at + 1)
            end = at + 1
        if found:
            return found
    return []


def _with_marks(text: bytes, at: Sequence[int], mark: str) -> bytes:
    """Return a text with the mark inserted at these positions."""
    return (b',"%b"' % mark.encode()).join(_cut(text, at)) if at else text


def _take_marks(elements: list[Any], number: int, mark: str) -> list[int] | None:
    """Remove `number` marks from a list; return how many elements precede each. None if there are more or fewer."""
    if elements.count(mark) != number:
        return None
    counts: list[int] = []
    for _ in range(number):
        at = elements.index(mark, counts[-1] if counts else 0)
        del elements[at]
        counts.append(at)
    return counts


def _parse_elements(new: bytes) -> list[Any] | None:
    """Parse a text of elements, each after a comma; return None if the text is anything else. The elements are nested
    as deep as in the original text, because the parser limits the depth."""
    try:
        outer = orjson.loads(b"[[0%b]]" % new)
    except orjson.JSONDecodeError:
        return None
    if len(outer) != 1:  # the text closes the list and opens another
        return None
    elements: list[Any] = outer[0]
    del elements[0]
    return elements


def _likely_end(text: bytes, payload: Any, key: str) -> int | None:
    """Guess where the list under a key ends, without parsing. The guess is proven when the text comes again, with more
    elements there. None if no guess is possible."""
    if type(payload) is not dict or not isinstance(payload.get(key), list) or not payload[key]:
        return None
    keys = [*payload]
    after = keys.index(key) + 1
    if after == len(keys):
        closed = text.rstrip()
        return len(closed) - 2 if closed.endswith(b"]}") else None
    following = orjson.dumps(keys[after])
    ends = (text.rfind(b"]," + following), text.rfind(b"], " + following))
    return max(ends) if max(ends) > 0 else None
