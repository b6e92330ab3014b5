"""Whole Ollama answers: without withheld calls, and two as one. Bytes that need no change keep theirs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from callfuse.dialects.base import Block
from callfuse.dialects.ollama.write import OWN_REASONS, TEXTS, counts_of, usage_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, loads, span


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
    """The answer without the calls at (choice, place); a blocked one says why."""
    payload: Payload = loads(body)
    gone = [place for _, place in withheld]
    if gone and len(gone) == len(payload["message"]["tool_calls"]):
        edits = [Edit(("message", "tool_calls"), None)]
    else:
        edits = [Edit(("message", "tool_calls", place), None) for place in gone]
        edits += _renumbered(payload["message"].get("tool_calls") or (), gone)
    if block := blocks.get(0):
        edits.append(Edit(("message", "content"), partial(_with_text, block.text)))
        if payload.get("done_reason", "stop") in OWN_REASONS:
            edits.append(Edit(("done_reason",), dumps(block.finish or "stop")))
    return apply(body, edits)


def _renumbered(calls: Sequence[Any], gone: Sequence[int]) -> list[Edit]:
    """The edits that count the calls that stay, where they are counted."""
    edits = []
    for place, call in enumerate(calls):
        shift = sum(other < place for other in gone)
        if shift and place not in gone and isinstance((call.get("function") or {}).get("index"), int):
            index = call["function"]["index"] - shift
            edits.append(Edit(("message", "tool_calls", place, "function", "index"), dumps(index)))
    return edits


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool) -> bytes:
    """The second answer with the first one's model, its texts in front, and the counts of both. Of one that is
    `foreign`, another model's, the thinking is left out."""
    if foreign:
        second = apply(second, [Edit(("message", "thinking"), None)])
    one: Payload = loads(first)
    other: Payload = loads(second)
    edits = []
    if "model" in one and "model" in other:
        start, end = span(first, ("model",)) or (0, 0)
        edits.append(Edit(("model",), first[start:end]))
    for key in TEXTS:
        before = one["message"].get(key)
        if isinstance(before, str) and before:
            edits.append(Edit(("message", key), partial(_behind, before)))
    counts = usage_of(summed=summed)
    counts.see(counts_of(one))
    counts.next_answer()
    total = counts.see(counts_of(other))
    edits += [Edit((key,), dumps(value)) for key, value in total.items() if other.get(key) != value]
    return apply(second, edits)


def _with_text(text: str, old: bytes) -> bytes:
    """A message's content with a text after it."""
    before: Any = loads(old) if old else None
    return dumps(f"{before}\n\n{text}" if isinstance(before, str) and before else text)


def _behind(before: str, old: bytes) -> bytes:
    """A message's text with another one's before it."""
    text: Any = loads(old) if old else None
    return dumps(f"{before}\n\n{text}" if isinstance(text, str) and text else before)
