"""Reasoning details of chat completions: how they grow, and which of them belong to a call.

OpenRouter sends Gemini's signature of a call not in the call but in a detail of its own, whose `id` is the call's. In a
stream it comes in a chunk before the call. A detail is delivered or withheld together with its call.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.edits import remove_elements
from callfuse.dialects.pieces import Pieces, grow
from callfuse.dialects.shapes import object_of, plain_text_of
from callfuse.dialects.thought_signatures import STAND_IN
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, Path, dumps

KEY: Final = "reasoning_details"
MARK: Final = b"encrypted"
"""Bytes that occur in every chunk with a detail of a call."""

_GROWING: Final = frozenset({"text", "summary", "data"})
"""Strings of a detail that come in pieces."""


def call_id_of(detail: Any) -> str:
    """Return the id of the call whose signature a detail has; empty if it has none. Details of other vendors have other
    ids (OpenAI's begin with `rs_`)."""
    if type(detail) is not dict or detail.get("type") != "reasoning.encrypted":
        return ""
    id_ = detail.get("id")
    if type(id_) is not str:
        return ""
    return id_ if id_.startswith("tool_") or str(detail.get("format")).startswith("google") else ""


def call_ids(message: Payload) -> list[str]:
    """Return the ids of the calls whose signatures are in the details of a delta or message."""
    details = message.get(KEY)
    return [id_ for one in details if (id_ := call_id_of(one))] if type(details) is list else []


def without_details(message: Payload, path: Path, gone: Collection[str], heir: str = "") -> Iterator[Edit]:
    """Yield the edits that remove the details of calls with these ids from the delta or message at `path`. `heir`: the
    id of the call that gets the stand-in for the first signature removed."""
    details = message.get(KEY)
    if type(details) is not list:
        return
    lost = {id_ for id_ in gone if id_}
    places = [at for at, one in enumerate(details) if plain_text_of(object_of(one).get("id")) in lost]
    place = next((at for at in places if call_id_of(details[at])), None) if heir else None
    if place is not None:
        yield Edit((*path, KEY, place, "id"), dumps(heir))
        yield Edit((*path, KEY, place, "data"), dumps(STAND_IN))
        places.remove(place)
    yield from remove_elements((*path, KEY), places, len(details))


def without_loose_details(delta: Payload, path: Path) -> Iterator[Edit]:
    """Yield the edits that remove all details from a delta except those of calls."""
    details = delta.get(KEY)
    listed = details if type(details) is list else ()
    loose = [at for at, one in enumerate(listed) if not call_id_of(one)]
    yield from remove_elements((*path, KEY), loose, len(listed)) if listed else (Edit((*path, KEY), None),)


def add_detail(details: list[Payload], new: Any) -> None:
    """Add a detail to the last one if both have the same index and type, else append it. Its texts stay in pieces.
    Raises CannotReplay if the detail is not an object."""
    if not isinstance(new, dict):
        raise CannotReplay(f"delta.{KEY}")
    last = details[-1] if details else None
    if last is None or not _is_same(last, new):
        details.append(dict(new))
        return
    for key, value in new.items():
        if key in _GROWING and isinstance(value, str) and isinstance(last.get(key), str | Pieces):
            grow(last, key, value)
        elif value is not None:
            last[key] = value


def _is_same(last: Payload, new: Payload) -> bool:
    same = ("index", "type", "id") if "index" not in new else ("index", "type")
    two_ids = last.get("id") and new.get("id") and last["id"] != new["id"]
    return not two_ids and all(last.get(key) == new.get(key) for key in same)
