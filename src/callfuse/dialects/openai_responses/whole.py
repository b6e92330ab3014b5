"""Whole responses: without withheld calls, and two as one. Items that stay keep their bytes."""

from collections.abc import Mapping, Sequence

from callfuse.dialects.base import Block
from callfuse.dialects.openai_responses.items import is_client_call
from callfuse.dialects.openai_responses.message import OwnMessage, own_id
from callfuse.dialects.openai_responses.reasoning import is_reasoning
from callfuse.dialects.openai_responses.trail import Trail
from callfuse.dialects.openai_responses.write import head_edits, usage_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads, span, spans


def thin_whole(
    body: bytes,
    withheld: Sequence[tuple[int, int]],
    blocks: Mapping[int, Block],
    *,
    structured: bool,
    trail: Trail,
) -> bytes:
    """The response without the calls at (choice, place); a block's message stands at the end of its output."""
    payload: Payload = loads(body)
    output = payload["output"]
    calls = [at for at, item in enumerate(output) if is_client_call(item)]
    gone = {calls[place] for _, place in withheld}
    trail.lost(output, gone)
    edits = [Edit(("output", at), None) for at in gone]
    if block := blocks.get(0):
        phase = any(isinstance(item, dict) and item.get("phase") for item in output)
        id_ = own_id(str(payload.get("id") or ""), len(output) - len(gone))
        item = OwnMessage(id_, block.text, refuses=structured, phase=phase).item()
        trail.wrote(item)
        edits.append(Edit(("output", END), dumps(item)))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, trail: Trail | None) -> bytes:
    """The second response with the first one's identity, its items in front, and the usage of both.

    `trail`: the second is another model's, and goes without its reasoning.
    """
    one, other = loads(first), loads(second)
    if trail is not None:
        gone = [at for at, item in enumerate(other["output"]) if is_reasoning(item)]
        trail.lost(other["output"], gone)
        second = apply(second, [Edit(("output", at), None) for at in gone])
    edits = head_edits(one, other)
    edits.append(Edit(("output",), b"[" + b",".join((*_items(first), *_items(second))) + b"]"))
    counts = usage_of(summed=summed)
    counts.see(one.get("usage"))
    counts.next_answer()
    if total := counts.see(other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def _items(body: bytes) -> list[bytes]:
    """The raw items of a response."""
    place = span(body, ("output",))
    return [body[item.value : item.end] for item in spans(body, place[0])] if place else []
