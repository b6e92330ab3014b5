"""Arguments that come in pieces by JSONPath, put together.

In: the `partialArgs` of one call in order, and the arguments that it opened with. Out: the object. A string goes on
growing at its path as long as its piece says that it will continue.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from callfuse.framing import Payload

_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]\s'"*]+)|\[(?P<index>\d{1,6})\]|\['(?P<single>(?:[^'\\]|\\.)*)'\]|\["(?P<double>(?:[^"\\]|\\.)*)"\]"""
)
_ESCAPE: Final = re.compile(r"\\(.)")
_MOST_ELEMENTS: Final = 100_000
"""An index beyond this is not believed."""

Path = tuple[str | int, ...]


class UnknownPieceError(ValueError):
    """A piece of arguments whose place or value is of no known kind."""


def built(opening: Any, pieces: Iterable[Payload]) -> Payload:
    """The arguments; raises UnknownPieceError."""
    root: Payload = dict(opening) if isinstance(opening, dict) else {}
    growing: set[Path] = set()
    for piece in pieces:
        path = _path(piece.get("jsonPath"))
        holder = _holder(root, path)
        value = _value(piece)
        if path in growing and isinstance(value, str):
            value = f"{holder[path[-1]]}{value}"
        holder[path[-1]] = value
        (growing.add if piece.get("willContinue") else growing.discard)(path)
    return root


def _path(text: Any) -> Path:
    """The steps of a JSONPath that names one place below the root."""
    if not isinstance(text, str) or not text.startswith("$"):
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
