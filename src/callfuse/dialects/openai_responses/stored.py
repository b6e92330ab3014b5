"""Adapts requests to what the vendor has stored of a conversation, after calls were withheld.

The vendor stores responses and their items by id (`store` is on by default). Once calls were withheld, its version and
the client's differ: it does not know callfuse's own messages, withheld calls wait for results, a reasoning item is
valid only with the item that followed it, and an item with an id only with the reasoning before it.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.openai_responses.items import CALLS, OWN_ID, RESULTS, is_reasoning, user_item
from callfuse.dialects.shapes import is_one_of, object_of, plain_text_of
from callfuse.dialects.stateful import Continuation
from callfuse.model import MARKER
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, NotJSON, apply, dumps, loads

LEFT_OUT: Final = b""
"""Represents an item that is left out of later requests."""
UNKNOWN_RESULT: Final = f"{MARKER} This call was not run."

_NO_OUTPUT: Final = re.compile(r"No tool output found for (?P<kind>(?:[a-z]+ )*call) (?P<id>[\w-]+)")
_NO_CALL: Final = re.compile(r"No tool call found for (?:[a-z]+ )*output with call_id (?P<id>[\w-]+)")
_NO_FOLLOWING: Final = re.compile(
    r"Item '(?P<id>[\w-]+)' of type 'reasoning' was provided without its required following"
)
_NO_REASONING: Final = re.compile(r"Item '(?P<id>[\w-]+)' of type '\w+' was provided without its required 'reasoning'")


class Trail:
    """Collects the items of one exchange that later requests must change.

    `items`: by id, what to send instead of the item: the item without its id, or LEFT_OUT. `stored`: the vendor stores
    its items by id.
    """

    def __init__(self, *, stored: bool) -> None:
        self.items: dict[str, bytes] = {}
        self._stored = stored

    def note_own(self, item: Payload) -> None:
        """Note a message by callfuse, whose id the vendor does not know."""
        self.items[item["id"]] = _without_id(item)

    def note_withheld(self, items: Sequence[Any], withheld: Collection[int]) -> None:
        """Note the items of one answer, in order. `withheld`: indexes of those that the client does not get."""
        if not self._stored:
            return
        bare = False
        for at, item in enumerate(map(object_of, items)):
            if at in withheld:
                bare |= is_reasoning(item)
            elif not plain_text_of(item.get("id")):
                continue
            elif is_reasoning(item) and at + 1 in withheld:
                self.items[item["id"]] = LEFT_OUT
                bare = True
            elif bare:
                self.items[item["id"]] = _without_id(item)


def _without_id(item: Payload) -> bytes:
    return dumps({key: value for key, value in item.items() if key != "id"})


def without_reasoning(items: Sequence[Any]) -> Iterator[Edit]:
    """Yield the edits that remove reasoning from an input, for another model. Raises CannotReplay for a reference."""
    parted = False
    for at, item in enumerate(items):
        if is_reasoning(item):
            parted = True
            yield Edit(("input", at), None)
        elif isinstance(item, dict) and item.get("type") == "item_reference":
            raise CannotReplay("item_reference")
        elif parted and isinstance(item, dict) and "id" in item:
            yield Edit(("input", at, "id"), None)


def resume(body: bytes, payload: Payload, known: Continuation) -> bytes:
    """Return the body in a form that the vendor accepts, with the fewest changes; the same bytes if none is needed.

    A chain continues the last stored answer, with a result for each call that the client did not get.
    """
    edits: list[Edit] = []
    if known.go_on and payload.get("previous_response_id"):
        edits.append(Edit(("previous_response_id",), dumps(known.go_on)))
    spoken = payload.get("input")
    for at, item in enumerate(spoken if isinstance(spoken, list) else ()):
        if type(item) is dict and type(id_ := item.get("id")) is str:
            edits += _replace(at, item, id_, known)
    body = apply(body, edits)
    if not known.unanswered:
        return body
    return apply(body, [Edit(("input",), partial(_put_first, b",".join(known.unanswered)))])


def _replace(at: int, item: Payload, id_: str, known: Continuation) -> list[Edit]:
    """Return the edit for an item of the input, if it needs one."""
    is_own = id_.startswith(OWN_ID)
    if id_ not in known.items and not is_own:
        return []
    stand_in = known.items.get(id_, LEFT_OUT)
    if item.get("type") == "item_reference":
        return [Edit(("input", at), stand_in or None)]
    if stand_in == LEFT_OUT and not is_own:
        return [Edit(("input", at), None)]
    return [Edit(("input", at, "id"), None)]


def _put_first(items: bytes, spoken: bytes) -> bytes:
    """Return the JSON text of an input (a list, a text, or empty for no input) with items put first."""
    if spoken.startswith(b"["):
        return b"[" + items + (b"," + spoken[1:] if spoken[1:-1].strip() else b"]")
    return b"[" + items + (b"," + user_item(spoken) if spoken else b"") + b"]"


def repair(body: bytes, error: bytes) -> bytes | None:
    """Repair a body that the vendor refused because of withheld calls, by the words of the error: it names a call
    without a result, a result (of callfuse's) without a call, or an item whose neighbour is missing. None for any other
    error."""
    try:
        payload, refusal = loads(body), loads(error)
    except NotJSON:
        return None
    said = refusal.get("error") if isinstance(refusal, dict) else None
    message = str(said.get("message")) if isinstance(said, dict) else ""
    if not isinstance(payload, dict):
        return None
    edits = _repairs(payload.get("input"), message)
    return apply(body, edits) if edits else None


def _repairs(items: Any, message: str) -> list[Edit]:
    if missing := _NO_OUTPUT.search(message):
        kind = CALLS.get(missing["kind"].replace(" ", "_")) or CALLS["function_call"]
        said = kind.answer(UNKNOWN_RESULT) if kind.answer else {"output": UNKNOWN_RESULT}
        result = {"type": kind.result, "call_id": missing["id"]} | said
        return [Edit(("input",), partial(_put_first, dumps(result)))]
    if unwanted := _NO_CALL.search(message):
        return [Edit(("input", at), None) for at in _own_outputs(items, unwanted["id"])]
    if lone := _NO_FOLLOWING.search(message):
        return [Edit(("input", at), None) for at in _places(items, lone["id"])]
    if lone := _NO_REASONING.search(message):
        return [Edit(("input", at, "id"), None) for at in _places(items, lone["id"])]
    return []


def _own_outputs(items: Any, id_: str) -> list[int]:
    """Return the indexes of the results that callfuse has given for the call with this id."""
    listed = items if isinstance(items, list) else []
    return [at for at, item in enumerate(listed) if _is_own_output(item, id_)]


def _is_own_output(item: Any, id_: str) -> bool:
    if not isinstance(item, dict) or not is_one_of(item.get("type"), RESULTS) or item.get("call_id") != id_:
        return False
    output = item.get("output")
    if isinstance(output, list) and output and isinstance(output[0], dict):
        output = output[0].get("stderr")
    return isinstance(output, str) and output.startswith(MARKER)


def _places(items: Any, id_: str) -> list[int]:
    """Return the indexes of the items with this id."""
    listed = items if isinstance(items, list) else []
    return [at for at, item in enumerate(listed) if isinstance(item, dict) and item.get("id") == id_]
