"""Reads JSON that strict parsers refuse, and edits JSON text so that every other byte stays.

`loads` and `dumps` are fast, and fall back to the lenient reader for what orjson refuses: lone surrogates, NaN, 1e400
and deep nesting, all of which models and clients send.

`apply` takes a valid JSON text (UTF-8) and edits, each a path and new raw text, and returns the text with just those
spans replaced. A path is a sequence of object keys and array indexes. Big numbers, key order, escapes and white space
elsewhere stay.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson

Path = tuple[str | int, ...]
_Tree = dict[str | int, Any]
_Patch = tuple[int, int, bytes]

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")
_NESTING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""Matches strings (an unclosed one up to the end of the text) and brackets."""
_LETTER_ESCAPED = re.compile(rb"\\u00[4-7]")
BACKSLASH: Final = 0x5C
"""Without this byte a JSON text has no escape: a fast test before `may_hide_letters`."""
_MOST_DIGITS: Final = 500
"""The most digits of an integer that is read. Reading takes time quadratic in the digits: 65 us for 4,000. Nothing else
runs meanwhile, so a long body of such integers would block the event loop for a second."""


class NotJSON(ValueError):
    """Raised for text that neither the fast nor the lenient parser reads."""


class UnreadableJSON(NotJSON):
    """Raised for text that callfuse does not read but that some client may read: nested too deep, an integer too long,
    too many values, or bytes that are not UTF-8."""


class NotFramed(NotJSON):
    """Raised for a frame after which no other frame can be found, because the stream has left its format."""


def as_utf8(text: bytes) -> bytes:
    """Return a JSON text in UTF-8 without a byte order mark, from any encoding that Python's `json` reads: UTF-8,
    UTF-16 or UTF-32, with or without a mark. Text that needs no change is returned unchanged. Raises `NotJSON`."""
    encoding = json.detect_encoding(text)
    if encoding == "utf-8":
        return text
    try:
        return text.decode(encoding).encode()
    except UnicodeError as error:
        raise UnreadableJSON(str(error)) from None


def loads(text: bytes | str) -> Any:
    """Parse a JSON text; raises `NotJSON`. Integers beyond 64 bits become floats (see `loads_exact`)."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return loads_exact(text)


def loads_exact(text: bytes | str) -> Any:
    """Parse as `loads` does, more slowly, and keep every digit of every integer. Raises `NotJSON`."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text, parse_int=_integer)
    except NotJSON:
        raise
    except (UnicodeError, RecursionError) as error:
        raise UnreadableJSON(str(error)) from None
    except ValueError as error:
        raise NotJSON(str(error)) from None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise UnreadableJSON(f"an integer of {len(digits)} digits")
    return int(digits)


class ExactValues:
    """Reads single values of a valid JSON text again, with all digits of their integers.

    Keeps the text and the places of values in it, nothing parsed. Each object and array is walked once, however many
    values are read.
    """

    __slots__ = ("_places", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._places: dict[tuple[str | int, ...], dict[str | int, tuple[int, int]]] = {}

    def read(self, *path: str | int) -> Any:
        """Return the value at a path, as `loads_exact` reads it; None if the path leads to no value."""
        place = self._place(path)
        return loads_exact(self._text[slice(*place)]) if place else None

    def _place(self, path: tuple[str | int, ...]) -> tuple[int, int] | None:
        """Return the start and the end of the value at a path."""
        if not path:
            return 0, len(self._text)
        holder = path[:-1]
        if holder not in self._places:
            place = self._place(holder)
            members = spans(self._text, place[0]) if place else ()
            self._places[holder] = {member.key: (member.value, member.end) for member in members}
        return self._places[holder].get(path[-1])


def dumps(value: Any) -> bytes:
    """Write compact UTF-8 JSON. What orjson refuses (lone surrogates, integers beyond 64 bits) is written as ASCII."""
    try:
        return b"%b" % orjson.dumps(value)  # a copy: orjson's own keeps a buffer of 4 KB, or of 10 times its length
    except TypeError:
        return dumps_ascii(value)


def dumps_ascii(value: Any) -> bytes:
    """Write compact ASCII JSON, for clients that end lines at other characters, too (google-genai at U+2028)."""
    return json.dumps(value, separators=(",", ":")).encode()


def may_hide_letters(text: bytes) -> bool:
    """Whether a JSON text (or several) may escape an ASCII letter or underscore, so that a search for a key or name in
    its bytes may miss it."""
    return b"\\u00" in text and _LETTER_ESCAPED.search(text) is not None


END: Final = -1
"""The last step of a path for appending to an array."""


class Edit(NamedTuple):
    """Replace the value at `path` by `raw`, or by the result of `raw(old text)`; None removes the member or element.

    If the last step does not exist, a key is added at the end of the object, or an element at that of the array
    (`END`); a function then gets empty text. All other steps must exist. No edit may lie inside another.
    """

    path: Path
    raw: bytes | Callable[[bytes], bytes] | None


class Member(NamedTuple):
    """A member of an object or an element of an array: key or index, start of the key, start and end of the value."""

    key: str | int
    start: int
    value: int
    end: int


def span(text: bytes, path: Path, start: int = 0) -> tuple[int, int] | None:
    """Find the value at `path`: (start, end) in bytes, or None. Of repeated keys the last one counts, as in parsers."""
    start = _blank(text, start)
    for step in path:
        found = None
        for member in spans(text, start):
            if member.key == step:
                found = member
        if found is None:
            return None
        start = found.value
    return start, value_end(text, start)


def spans(text: bytes, start: int = 0) -> Iterator[Member]:
    """Yield the members of the object, or elements of the array, that begins at `start`; none for a scalar."""
    start = _blank(text, start)
    opening = text[start : start + 1]
    if opening not in (b"{", b"["):
        return
    position = _blank(text, start + 1)
    index = 0
    while text[position : position + 1] not in (b"}", b"]"):
        begin = position
        key: str | int = index
        if opening == b"{":
            end = value_end(text, position)
            key = str(loads(text[position:end]))
            position = _blank(text, _blank(text, end) + 1)
        value = position
        end = value_end(text, value)
        yield Member(key, begin, value, end)
        index += 1
        position = _blank(text, end)
        if text[position : position + 1] == b",":
            position = _blank(text, position + 1)


def apply(text: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply all edits in one pass. Raises KeyError if a step before the last is missing, or if the last step is a key
    and its container is not an object, or an index and it is not an array."""
    tree = _tree(edits)
    if not tree:
        return text
    pieces: list[bytes] = []
    position = 0
    for start, end, raw in sorted(_patches(text, _blank(text, 0), tree)):
        pieces += (text[position:start], raw)
        position = end
    pieces.append(text[position:])
    return b"".join(pieces)


def replaced_spans(text: bytes, edits: Sequence[Edit]) -> list[tuple[int, int]]:
    """Return the spans of the values that the edits replace, in order; empty if any edit adds or removes a value."""
    numbered = [Edit(edit.path, b"%d" % at) for at, edit in enumerate(edits)]
    patches = {raw: (start, end) for start, end, raw in _patches(text, _blank(text, 0), _tree(numbered))}
    if any(edit.raw is None for edit in edits):
        return []
    found = [patches.get(b"%d" % at) for at in range(len(edits))]
    return [span for span in found if span is not None] if None not in found else []


def _tree(edits: Iterable[Edit]) -> _Tree:
    """Arrange edits as a tree, by the steps of their paths."""
    tree: _Tree = {}
    for edit in edits:
        node = tree
        for step in edit.path[:-1]:
            node = node.setdefault(step, {})
        node[edit.path[-1]] = edit
    return tree


def _patches(text: bytes, start: int, tree: _Tree) -> Iterator[_Patch]:
    """Turn the edits of a container into patches: start, end and new bytes."""
    members = list(spans(text, start))
    last = {member.key: member for member in members}
    removed: set[str | int] = set()
    added: list[bytes] = []
    for key, node in tree.items():
        member = last.get(key)
        if not isinstance(node, Edit):
            if member is None:
                raise KeyError(key)
            yield from _patches(text, member.value, node)
        elif node.raw is None:
            removed.add(key)
        else:
            old = text[member.value : member.end] if member else b""
            raw = node.raw if isinstance(node.raw, bytes) else node.raw(old)
            if member:
                yield member.value, member.end, raw
            elif text[start : start + 1] != (b"[" if isinstance(key, int) else b"{"):
                raise KeyError(key)
            else:
                added.append(raw if isinstance(key, int) else orjson.dumps(key) + b":" + raw)
    yield from _patch_members(text, start, members, removed & last.keys(), added)


def _patch_members(
    text: bytes, start: int, members: list[Member], removed: set[str | int], added: list[bytes]
) -> Iterator[_Patch]:
    """Patch a container: remove members with their commas, and append others at its end."""
    kept = [member for member in members if member.key not in removed]
    if not kept:
        if removed or added:
            yield start + 1, members[-1].end if members else start + 1, b",".join(added)
        return
    if kept[0] is not members[0]:
        yield members[0].start, kept[0].start, b""
    neighbours = {after.start: before for before, after in pairwise(members)}
    for before, after in pairwise(kept):
        if (gone := neighbours[after.start]) is not before:
            yield before.end, gone.end, b""
    if added or kept[-1] is not members[-1]:
        yield kept[-1].end, members[-1].end, b"".join(b"," + raw for raw in added)


def _blank(text: bytes, position: int) -> int:
    """Return the first position, from `position` on, that is not white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def value_end(text: bytes, start: int) -> int:
    """Return the end of the value that begins at `start`. Raises ValueError if no value begins there."""
    first = text[start : start + 1]
    if first == b'"':
        match = _STRING.match(text, start)
    elif first in (b"{", b"["):
        depth = 0
        for match in _NESTING.finditer(text, start):
            token = match.group()
            if token in (b"{", b"["):
                depth += 1
            elif token in (b"}", b"]"):
                depth -= 1
                if not depth:
                    return match.end()
        match = None
    else:
        match = _SCALAR.match(text, start)
    if match is None:
        raise ValueError(f"not a JSON value at byte {start}")
    return match.end()
