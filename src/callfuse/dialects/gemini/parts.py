"""Reads and edits the parts of Gemini's contents: calls and their arguments, thoughts and signatures.

Requests may have keys in camelCase or snake_case; answers have camelCase. Arguments may come in pieces by JSONPath
(`partialArgs`). Thoughts and signatures are valid for one model only.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.pieces import Pieces
from callfuse.dialects.shapes import list_of, object_of
from callfuse.dialects.thought_signatures import STAND_IN, are_demanded
from callfuse.memo import remembered
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, Path, dumps

FUNCTION_CALL: Final = "functionCall"
FUNCTION_RESPONSE: Final = "functionResponse"
SIGNATURE: Final = "thoughtSignature"

_HUMP: Final = re.compile(r"(?<=[a-z])([A-Z])")
_BARE: Final = frozenset({"text", SIGNATURE, "thought_signature"})
_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]\s'"*]+)|\[(?P<index>\d{1,6})\]|\['(?P<single>(?:[^'\\]|\\.)*)'\]|\["(?P<double>(?:[^"\\]|\\.)*)"\]"""
)
_ESCAPE: Final = re.compile(r"\\(.)")
_MAX_INDEX: Final = 100_000
"""The highest array index in paths: a small piece with a large index would make callfuse build a large array."""
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")


@remembered(entries=256, longest=64)
def _snake(name: str) -> str:
    return _HUMP.sub(lambda match: "_" + match.group(1).lower(), name)


def key(holder: Any, name: str) -> str:
    """Return the spelling of the key `name` (given in camelCase) in an object; `name` itself if it has neither."""
    if not isinstance(holder, dict) or name in holder or _snake(name) not in holder:
        return name
    return _snake(name)


def get(holder: Any, name: str) -> Any:
    """Return the value of a key in either spelling; None if the holder is not an object or lacks the key."""
    if not isinstance(holder, dict):
        return None
    return holder[name] if name in holder else holder.get(_snake(name))


def is_answer_text(part: Payload) -> bool:
    """Whether a part is text of the answer itself, not a thought."""
    text = part.get("text")
    return isinstance(text, str) and text != "" and not part.get("thought")


def thoughts(parts: Sequence[Any]) -> list[int]:
    """Return the indexes of parts that are thoughts or contain only a signature. A call is neither, however marked."""
    no_calls = [
        (at, part) for at, part in enumerate(parts) if isinstance(part, dict) and get(part, FUNCTION_CALL) is None
    ]
    return [at for at, part in no_calls if part.get("thought") or _is_bare(part)]


def _is_bare(part: Payload) -> bool:
    return part.keys() <= _BARE and not part.get("text") and get(part, SIGNATURE) is not None


def replace_signatures(parts: Sequence[Any], path: Path, reader: str, *, begins: bool = True) -> Iterator[Edit]:
    """Yield the edits that prepare the signatures of the parts at `path` for another model, `reader`.

    All signatures are removed; the first call of an answer gets Google's documented stand-in if the model demands one.
    `begins`: the first call in these parts is the first of its answer.
    """
    wanted = begins and are_demanded(reader, in_use=True)
    gone = set(thoughts(parts))
    for at, part in enumerate(parts):
        place = (*path, at, key(part, SIGNATURE))
        if wanted and get(part, FUNCTION_CALL) is not None:
            wanted = False
            yield Edit(place, dumps(STAND_IN))
        elif get(part, SIGNATURE) is not None and at not in gone:
            yield Edit(place, None)


def remove_thoughts(parts: Sequence[Any], content: Path, reader: str) -> Iterator[Edit]:
    """Yield the edits that prepare the content at the path `content` for another model, `reader`. A content of a
    history (its path is not empty) with nothing but thoughts is removed."""
    gone = thoughts(parts)
    if content and gone and len(gone) == len(parts):
        yield Edit(content, None)
        return
    yield from (Edit((*content, "parts", at), None) for at in gone)
    yield from replace_signatures(parts, (*content, "parts"), reader)


def arguments_of(function: Payload) -> Any:
    """Return the arguments of a complete call: an object, an empty text for no arguments, or the pieces if they cannot
    be joined."""
    arguments = function.get("args")
    if pieces := list_of(function.get("partialArgs")):
        return join_or_keep(arguments, pieces)
    return "" if arguments is None else arguments


def join_or_keep(opening: Any, pieces: Sequence[Payload]) -> Any:
    """Join pieces as `join_pieces` does, or return them unchanged if they cannot be joined."""
    try:
        return join_pieces(opening, pieces)
    except UnknownPieceError:
        return pieces


class UnknownPieceError(ValueError):
    """Raised for a piece of arguments with a place or value of an unknown kind."""


def join_pieces(opening: Any, pieces: Iterable[Payload]) -> Payload:
    """Return the arguments of one call: its first arguments, completed by its `partialArgs` in order.

    Pieces of a string are joined as long as they have `willContinue`. Raises UnknownPieceError.
    """
    root: Payload = dict(opening) if isinstance(opening, dict) else {}
    paths: dict[str, Path] = {}
    growing: dict[Path, Pieces] = {}
    texts: list[tuple[Any, str | int, Pieces]] = []
    for piece in pieces:
        place = object_of(piece).get("jsonPath")
        if not isinstance(place, str):
            raise UnknownPieceError("jsonPath")
        path = paths.get(place) or paths.setdefault(place, _parse_path(place))
        value = _value(piece)
        text = growing.pop(path, None)
        continues = isinstance(value, str) and bool(piece.get("willContinue"))
        if text is None or not isinstance(value, str):
            text = Pieces() if continues else None
            holder, step = _holder(root, path), path[-1]
            holder[step] = value if text is None else text
            if text is not None:
                texts.append((holder, step, text))
        if text is not None:
            text.append(value)
            if continues:
                growing[path] = text
    for holder, step, text in texts:
        if holder[step] is text:
            holder[step] = "".join(text)
    return root


def _parse_path(text: str) -> Path:
    """Return the steps of a JSONPath to one place below the root. Raises UnknownPieceError."""
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
    if not text.startswith("$") or not steps or not isinstance(steps[0], str):
        raise UnknownPieceError("jsonPath")
    return tuple(steps)


def _holder(root: Payload, path: Path) -> Any:
    """Return the object or array that contains the last step of a path; created with all its parents if missing."""
    holder: Any = root
    for step, following in zip(path, (*path[1:], None), strict=True):
        if isinstance(step, int):
            if not isinstance(holder, list) or step > _MAX_INDEX:
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
    """Return the value of a piece. Raises UnknownPieceError."""
    for name in _VALUES:
        if name in piece:
            return None if name == "nullValue" else piece[name]
    raise UnknownPieceError("partialArgs")
