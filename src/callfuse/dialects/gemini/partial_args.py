"""Arguments that come in pieces by JSONPath, put together.

In: the `partialArgs` of one call in order, and the arguments that it opened with. Out: the object. A string goes on
growing at its path as long as its piece says that it will continue.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from callfuse.wire import Payload

_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]\s'"*]+)|\[(?P<index>\d{1,6})\]|\['(?P<single>(?:[^'\\]|\\.)*)'\]|\["(?P<double>(?:[^"\\]|\\.)*)"\]"""
)
_ESCAPE: Final = re.compile(r"\\(.)")
_MOST_ELEMENTS: Final = 100_000
"""An index beyond this is not believed."""

Path = tuple[str | int, ...]


class UnknownPieceError(ValueError):
    """A piece of arguments whose place or value is of no known kind."""


class _Text(NamedTuple):
    """A string that grows: it stands at its place until the object is complete."""

    pieces: list[str]


def built(opening: Any, pieces: Iterable[Payload]) -> Payload:
    """The arguments; raises UnknownPieceError."""
    root: Payload = dict(opening) if isinstance(opening, dict) else {}
    paths: dict[str, Path] = {}
    texts: list[tuple[Any, str | int, _Text]] = []
    growing: dict[Path, _Text] = {}
    for piece in pieces:
        place = piece.get("jsonPath")
        if not isinstance(place, str):
            raise UnknownPieceError("jsonPath")
        path = paths.get(place) or paths.setdefault(place, _path(place))
        value = _value(piece)
        goes_on = bool(piece.get("willContinue"))
        if path in growing and isinstance(value, str):
            growing[path].pieces.append(value)
        else:
            growing.pop(path, None)
            holder, step = _holder(root, path), path[-1]
            holder[step] = value
            if goes_on and isinstance(value, str):
                holder[step] = growing[path] = _Text([value])
                texts.append((holder, step, growing[path]))
        if not goes_on:
            growing.pop(path, None)
    for holder, step, text in texts:
        if holder[step] is text:
            holder[step] = "".join(text.pieces)
    return root


def _path(text: str) -> Path:
    """The steps of a JSONPath that names one place below the root."""
    if not text.startswith("$"):
        raise UnknownPieceError("jsonPath")
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise UnknownPieceError("jsonPath")
        quoted = match["single"] if match["single"] is not None else match["double"]
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(match["name"] if quoted is None else _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    if not steps or not isinstance(steps[0], str):
        raise UnknownPieceError("jsonPath")
    return tuple(steps)


def _holder(root: Payload, path: Path) -> Any:
    """The object or array that holds the last step, with room for it; made where it is not there."""
    holder: Any = root
    for step, following in zip(path, (*path[1:], None), strict=True):
        if isinstance(step, int):
            if not isinstance(holder, list) or step > _MOST_ELEMENTS:
                raise UnknownPieceError("jsonPath")
            holder += [None] * (step + 1 - len(holder))
        elif not isinstance(holder, dict):
            raise UnknownPieceError("jsonPath")
        if following is None:
            break
        here = holder[step] if isinstance(step, int) else holder.get(step)
        if here is None:
            here = holder[step] = [] if isinstance(following, int) else {}
        holder = here
    return holder


def _value(piece: Payload) -> Any:
    """The value that a piece brings."""
    if "stringValue" in piece:
        return piece["stringValue"]
    if "numberValue" in piece:
        return piece["numberValue"]
    if "boolValue" in piece:
        return piece["boolValue"]
    if "nullValue" in piece:
        return None
    raise UnknownPieceError("partialArgs")
