"""A request as a vendor can take it that stores responses and has not stored what the client remembers.

Items that callfuse wrote lose their ids, a reference to one becomes the item; items that the vendor would refuse
without others that were withheld are left out, or lose their ids; a chain goes on from the last answer that was stored,
with a result for each call of it that the client was not given.
"""

from typing import Any

from callfuse.dialects.base import Continuation
from callfuse.dialects.openai_responses.items import OWN_ID
from callfuse.dialects.openai_responses.trail import LEFT_OUT
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps


def resumed(body: bytes, payload: Payload, known: Continuation) -> bytes:
    """The body with the fewest changes that these differences need; the same bytes where they need none."""
    edits: list[Edit] = []
    if known.go_on and payload.get("previous_response_id"):
        edits.append(Edit(("previous_response_id",), dumps(known.go_on)))
    spoken = payload.get("input")
    if not isinstance(spoken, list):
        return apply(body, edits + _listed(payload, known))
    for at, item in enumerate(spoken):
        edits += _changed(at, item, known)
    before = b",".join(known.unanswered)
    if before and not spoken:
        edits.append(Edit(("input",), b"[" + before + b"]"))
    elif before:
        body = apply(body, edits)
        edits = [Edit(("input",), lambda old: b"[" + before + (b"," if old[1:-1].strip() else b"") + old[1:])]
    return apply(body, edits)


def _listed(payload: Payload, known: Continuation) -> list[Edit]:
    """The edit that puts results before an input that is a plain text."""
    if not known.unanswered:
        return []
    user = dumps({"role": "user", "content": payload.get("input")})
    return [Edit(("input",), b"[" + b",".join((*known.unanswered, user)) + b"]")]


def _changed(at: int, item: Any, known: Continuation) -> list[Edit]:
    """The edit that an item needs, if it needs one."""
    id_ = item.get("id") if isinstance(item, dict) else None
    if not isinstance(id_, str):
        return []
    is_own = id_.startswith(OWN_ID)
    if id_ not in known.items and not is_own:
        return []
    stand_in = known.items.get(id_, LEFT_OUT)
    if item.get("type") == "item_reference":
        return [Edit(("input", at), stand_in or None)]
    if stand_in == LEFT_OUT and not is_own:
        return [Edit(("input", at), None)]
    return [Edit(("input", at, "id"), None)]
