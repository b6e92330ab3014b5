"""Whole Anthropic messages: without withheld calls, and two as one. Blocks that stay keep their bytes."""

from collections.abc import Mapping, Sequence

from callfuse.dialects.anthropic.read import is_client_call
from callfuse.dialects.anthropic.reasoning import thinks
from callfuse.dialects.anthropic.write import OWN_REASONS, usage_of
from callfuse.dialects.base import Block
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads, span, spans


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
    """The message without the calls at (choice, place); a blocked one says why, and ends its turn."""
    payload = loads(body)
    calls = [at for at, block in enumerate(payload["content"]) if is_client_call(block)]
    edits = [Edit(("content", calls[place]), None) for _, place in withheld]
    if block := blocks.get(0):
        edits.append(Edit(("content", END), dumps({"type": "text", "text": block.text})))
        if payload.get("stop_reason") in OWN_REASONS:
            edits.append(Edit(("stop_reason",), b'"end_turn"'))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool) -> bytes:
    """The second message with the first one's id and model, its blocks in front, and the usage of both."""
    one, other = loads(first), loads(second)
    edits = [Edit((key,), dumps(one[key])) for key in ("id", "model") if key in one and key in other]
    blocks = _blocks(first)
    may_think = not (blocks or foreign)
    blocks += [
        raw for raw, block in zip(_blocks(second), other["content"], strict=True) if may_think or not thinks(block)
    ]
    edits.append(Edit(("content",), b"[" + b",".join(blocks) + b"]"))
    counts = usage_of(summed=summed)
    counts.see(one.get("usage"))
    counts.next_answer()
    if total := counts.see(other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def _blocks(body: bytes) -> list[bytes]:
    """The raw content blocks of a message."""
    place = span(body, ("content",))
    return [body[block.value : block.end] for block in spans(body, place[0])] if place else []
