"""Edits of frames and bodies that several dialects share. All bytes that they do not change stay the same."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import orjson

from callfuse.dialects.ask_again import CannotReplay
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, NotJSON, Path, apply, dumps, loads, loads_exact, span, spans
from callfuse.wire.values import is_too_much_inside


def raw_at(body: bytes, path: Path) -> bytes:
    """Return the JSON text of the value at a path; empty if there is none."""
    start, end = span(body, path) or (0, 0)
    return body[start:end]


def raw_elements(body: bytes, path: Path) -> list[bytes]:
    """Return the JSON texts of the elements of the list at a path; empty if there is no list."""
    place = span(body, path)
    return [body[part.value : part.end] for part in spans(body, place[0])] if place else []


def raw_list(elements: Iterable[bytes]) -> bytes:
    """Return a list of these JSON texts."""
    return b"[" + b",".join(elements) + b"]"


def remove_elements(path: Path, gone: Collection[int], length: int) -> list[Edit]:
    """Return the edits that remove elements of the list at `path`, or the whole list if none is left."""
    if gone and len(gone) == length:
        return [Edit(path, None)]
    return [Edit((*path, place), None) for place in gone]


def index_without(index: int, gone: Sequence[int]) -> int | None:
    """Return an element's index once those at `gone` (sorted) are removed; None if the element is removed."""
    before = bisect_left(gone, index)
    return None if before < len(gone) and gone[before] == index else index - before


def lower_index(by: int) -> Callable[[bytes], bytes]:
    """Return an edit function that subtracts `by` from an index. Other values stay, and a missing one becomes null."""
    return lambda old: str(int(old) - by).encode() if old.isdigit() else old or b"null"


def break_before(text: bytes) -> bytes:
    """Return a JSON string with a blank line put in front; return any other value unchanged."""
    return b'"\\n\\n' + text[1:] if text.startswith(b'"') else text


def append_to_string(text: str, encode: Callable[[Any], bytes] = dumps) -> Callable[[bytes], bytes]:
    """Return an edit function that appends a text to a JSON string, after a blank line. The text replaces an empty
    string or a value of another type."""
    return lambda old: old[:-1] + encode(f"\n\n{text}")[1:] if _is_filled_string(old) else encode(text)


def prepend_to_string(text: str) -> Callable[[bytes], bytes]:
    """Return an edit function that puts a text in front of a JSON string, before a blank line. The text replaces an
    empty string or a value of another type."""
    return lambda old: dumps(f"{text}\n\n")[:-1] + old[1:] if _is_filled_string(old) else dumps(text)


def _is_filled_string(raw: bytes) -> bool:
    return raw.startswith(b'"') and raw != b'""'


def message_at(body: bytes, path: Path, *, without: Collection[str] = ()) -> bytes:
    """Return the model's message at `path` of a whole answer, without empty keys and without the keys in `without`.
    Raises CannotReplay if there is no message."""
    raw = raw_at(body, path)
    if not raw:
        raise CannotReplay("message")
    message: Payload = loads(raw)
    empty = [key for key, value in message.items() if key in without or (value in (None, [], "") and key != "content")]
    return apply(raw, [Edit((key,), None) for key in empty])


def encoded(value: Payload, part: str) -> bytes:
    """Encode a part of a turn as JSON, including raw JSON in it (see `raw_object`). Raises CannotReplay with the name
    of this part if that fails."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise CannotReplay(part) from None


def raw_object(text: str, part: str) -> Any:
    """Return arguments as raw JSON, so that no digit is lost; an empty object for an empty text. Raises CannotReplay
    with the name of this part if the arguments are not an object, or are too large."""
    if not text.strip():
        return {}
    try:
        is_object = not is_too_much_inside(text) and isinstance(loads_exact(text), dict)
    except NotJSON:
        is_object = False
    if not is_object:
        raise CannotReplay(part)
    return orjson.Fragment(text)
