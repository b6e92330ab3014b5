"""Whole Cohere answers: without withheld calls, and two as one. Bytes that need no change keep theirs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from callfuse.dialects.base import Block
from callfuse.dialects.cohere.usage import NestedUsage
from callfuse.dialects.cohere.write import OWN_REASONS, THINKING, finish_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads, span, spans


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
    """The answer without the calls at (choice, place); a blocked one says why."""
    payload: Payload = loads(body)
    message = payload["message"]
    gone = [place for _, place in withheld]
    if gone and len(gone) == len(message["tool_calls"]):
        edits = [Edit(("message", "tool_calls"), None)]
    else:
        edits = [Edit(("message", "tool_calls", place), None) for place in gone]
    if block := blocks.get(0):
        said = dumps({"type": "text", "text": block.text})
        if isinstance(message.get("content"), list):
            edits.append(Edit(("message", "content", END), said))
        else:
            edits.append(Edit(("message", "content"), _listed([said])))
        if payload.get("finish_reason") in OWN_REASONS:
            edits.append(Edit(("finish_reason",), dumps(finish_of(block))))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool) -> bytes:
    """The second answer with the first one's id, its plan and content in front, and the usage of both."""
    if foreign:
        second = _without_thinking(second)
    one: Payload = loads(first)
    other: Payload = loads(second)
    edits = [Edit(("id",), dumps(one["id"]))] if "id" in one and "id" in other else []
    if plan := one["message"].get("tool_plan"):
        edits.append(Edit(("message", "tool_plan"), partial(_behind, plan)))
    before = _parts(first, "content")
    if before:
        edits.append(Edit(("message", "content"), _listed(before + _parts(second, "content"))))
    cited = _parts(first, "citations")
    if cited or (before and other["message"].get("citations")):
        shifted = [_counted_on(raw, len(before)) for raw in _parts(second, "citations")]
        edits.append(Edit(("message", "citations"), _listed(cited + shifted)))
    usage = NestedUsage(summed=summed)
    usage.see(one.get("usage"))
    usage.next_answer()
    if total := usage.see(other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def _without_thinking(body: bytes) -> bytes:
    """An answer without its thinking, and without what is cited in it; other citations count anew."""
    message = loads(body)["message"]
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    gone = {at for at, block in enumerate(blocks) if isinstance(block, dict) and block.get("type") == THINKING}
    edits = [Edit(("message", "content", at), None) for at in gone]
    if gone and len(gone) == len(blocks):
        edits = [Edit(("message", "content"), None)]
    for at, citation in enumerate(message.get("citations") or () if gone else ()):
        about = citation.get("content_index") or 0
        place = ("message", "citations", at)
        left = dumps(about - sum(other < about for other in gone))
        edits.append(Edit(place, None) if about in gone else Edit((*place, "content_index"), left))
    return apply(body, edits)


def _parts(body: bytes, key: str) -> list[bytes]:
    """The raw elements of a list in the message; none where there is none."""
    place = span(body, ("message", key))
    return [body[part.value : part.end] for part in spans(body, place[0])] if place else []


def _listed(parts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _counted_on(citation: bytes, blocks: int) -> bytes:
    """A citation of the second answer: its content stands behind so many blocks."""
    index = loads(citation).get("content_index") or 0
    return apply(citation, [Edit(("content_index",), dumps(index + blocks))])


def _behind(before: str, old: bytes) -> bytes:
    """A plan with another one's text before it."""
    text: Any = loads(old) if old else None
    return dumps(f"{before}\n\n{text}" if isinstance(text, str) and text else before)
