"""A request that the vendor has refused for what callfuse withheld, put right by the vendor's own word.

A body and the error that it got enter; a body to be sent once more leaves, or nothing where the error is another.
"""

import re
from typing import Any, Final

from callfuse.dialects.openai_responses.items import CALLS
from callfuse.model import MARKER
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, NotJSON, apply, dumps, loads

UNKNOWN_RESULT: Final = f"{MARKER} This call was not run."

_NO_OUTPUT: Final = re.compile(r"No tool output found for (?P<kind>(?:[a-z]+ )*call) (?P<id>[\w-]+)")
_NO_FOLLOWING: Final = re.compile(
    r"Item '(?P<id>[\w-]+)' of type 'reasoning' was provided without its required following"
)
_NO_REASONING: Final = re.compile(r"Item '(?P<id>[\w-]+)' of type '\w+' was provided without its required 'reasoning'")


def mended(body: bytes, error: bytes) -> bytes | None:
    """The body that the vendor may take."""
    try:
        payload, refusal = loads(body), loads(error)
    except NotJSON:
        return None
    said = refusal.get("error") if isinstance(refusal, dict) else None
    message = str(said.get("message")) if isinstance(said, dict) else ""
    if not isinstance(payload, dict):
        return None
    edits = _edits(payload, message)
    return apply(body, edits) if edits else None


def _edits(payload: Payload, message: str) -> list[Edit]:
    items = payload.get("input")
    if missing := _NO_OUTPUT.search(message):
        result = dumps(_result(missing["kind"].replace(" ", "_"), missing["id"]))
        return [Edit(("input",), lambda old: _first(result, old))]
    if lone := _NO_FOLLOWING.search(message):
        return [Edit(("input", at), None) for at in _places(items, lone["id"])]
    if lone := _NO_REASONING.search(message):
        return [Edit(("input", at, "id"), None) for at in _places(items, lone["id"])]
    return []


def _result(kind: str, call_id: str) -> Payload:
    """A result for a call of which nothing else is known."""
    known = CALLS.get(kind) or CALLS["function_call"]
    said = known.answer(UNKNOWN_RESULT) if known.answer else {"output": UNKNOWN_RESULT}
    return {"type": known.result, "call_id": call_id} | said


def _first(result: bytes, old: bytes) -> bytes:
    """An input with a result put first."""
    if not old.startswith(b"["):
        return b"[" + result + b',{"role":"user","content":' + (old or b'""') + b"}]"
    return b"[" + result + (b"," if old[1:-1].strip() else b"") + old[1:]


def _places(items: Any, id_: str) -> list[int]:
    """Where an item with this id stands."""
    listed = items if isinstance(items, list) else []
    return [at for at, item in enumerate(listed) if isinstance(item, dict) and item.get("id") == id_]
