"""Whole Converse answers: without withheld calls, and two as one. Blocks that stay keep their bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.base import Block
from callfuse.dialects.bedrock.read import calls_in, content_of
from callfuse.dialects.usage import Usage
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads, span, spans

OWN_REASONS: Final = frozenset({"tool_use", "end_turn"})
"""Stop reasons that a block replaces; `max_tokens` and the like stay."""
CONTENT: Final = ("output", "message", "content")


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
    """The answer without the calls at (choice, place); a blocked one says why, and ends its turn."""
    payload = loads(body)
    places = [at for at, _ in calls_in(content_of(payload))]
    edits = [Edit((*CONTENT, places[place]), None) for _, place in withheld]
    if block := blocks.get(0):
        edits.append(Edit((*CONTENT, END), dumps({"text": block.text})))
        if payload.get("stopReason") in OWN_REASONS:
            edits.append(Edit(("stopReason",), b'"end_turn"'))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool) -> bytes:
    """The second answer with the first one's blocks in front, and the usage of both. Reasoning of two answers never
    stands in one message, nor that of another model."""
    one, other = loads(first), loads(second)
    blocks = _blocks(first)
    may_reason = not (blocks or foreign)
    for raw, block in zip(_blocks(second), content_of(other) or (), strict=True):
        if may_reason or not reasons(block):
            blocks.append(raw)
    edits = [Edit(CONTENT, b"[" + b",".join(blocks) + b"]")]
    counts = Usage("inputTokens", "outputTokens", "totalTokens", summed=summed)
    counts.see(one.get("usage"))
    counts.next_answer()
    if total := counts.see(other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def reasons(block: Any) -> bool:
    """Whether a content block is reasoning, with a signature that holds for one model only."""
    return isinstance(block, dict) and "reasoningContent" in block


def _blocks(body: bytes) -> list[bytes]:
    """The raw content blocks of an answer."""
    place = span(body, CONTENT)
    return [body[block.value : block.end] for block in spans(body, place[0])] if place else []
