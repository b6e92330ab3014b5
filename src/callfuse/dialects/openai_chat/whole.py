"""Whole chat completions: without withheld calls, and two as one. Bytes that need no change keep theirs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from callfuse.dialects.base import Block
from callfuse.dialects.openai_chat.reasoning import KEYS, is_signed, stood_in, without_reasoning
from callfuse.dialects.openai_chat.write import HEAD, OWN_REASONS
from callfuse.dialects.thought_signatures import survivor_without
from callfuse.dialects.usage import Usage
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, loads, span


def thin_whole(
    body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block], *, structured: bool
) -> bytes:
    """The answer without the calls at (choice, place); a blocked choice says why, and stops."""
    edits: list[Edit] = []
    payload = loads(body)
    for at, choice in enumerate(payload["choices"]):
        path = ("choices", at)
        message = choice["message"]
        calls = message.get("tool_calls") or ()
        listed = len(calls)
        gone = [place for where, place in withheld if where == at]
        if gone and len([place for place in gone if place < listed]) == listed > 0:
            edits.append(Edit((*path, "message", "tool_calls"), None))
        else:
            edits += [Edit((*path, "message", "tool_calls", place), None) for place in gone if place < listed]
            signed, withheld_here = [is_signed(call) for call in calls], [place in gone for place in range(listed)]
            chosen = survivor_without(signed, withheld_here, str(payload.get("model") or ""))
            if chosen is not None:
                edits.append(Edit((*path, "message", "tool_calls", chosen, "extra_content"), stood_in))
        if any(place >= listed for place in gone):
            edits.append(Edit((*path, "message", "function_call"), None))
        if block := blocks.get(at):
            key = "refusal" if structured else "content"
            edits.append(Edit((*path, "message", key), partial(_with_text, block.text)))
            if choice.get("finish_reason") in OWN_REASONS:
                edits.append(Edit((*path, "finish_reason"), dumps(block.finish or "stop")))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, foreign: bool) -> bytes:
    """The second answer with the first one's identity, its text in front, and the usage of both."""
    one: Payload = loads(first)
    if foreign:
        second = _reasoned(first, second, str(one.get("model") or ""))
    other: Payload = loads(second)
    edits = [Edit((key,), _raw(first, key)) for key in HEAD if key in one and key in other]
    content = one["choices"][0]["message"].get("content")
    if isinstance(content, str) and content:
        edits.append(Edit(("choices", 0, "message", "content"), partial(_behind, content)))
    counts = Usage("prompt_tokens", "completion_tokens", "total_tokens", summed=summed)
    counts.see(one.get("usage"))
    counts.next_answer()
    if total := counts.see(other.get("usage")):
        edits.append(Edit(("usage",), dumps(total)))
    return apply(second, edits)


def _reasoned(first: bytes, second: bytes, reader: str) -> bytes:
    """The second answer, another model's, with the reasoning of the first in place of its own."""
    path = ("choices", 0, "message")
    edits = [*without_reasoning(loads(second)["choices"][0]["message"], path, reader)]
    edits += [Edit((*path, key), raw) for key in KEYS if (raw := _raw(first, *path, key))]
    return apply(second, edits)


def _raw(body: bytes, *path: str | int) -> bytes:
    start, end = span(body, path) or (0, 0)
    return body[start:end]


def _with_text(text: str, old: bytes) -> bytes:
    """A message's content with a text after it."""
    before: Any = loads(old) if old else None
    return dumps(f"{before}\n\n{text}" if isinstance(before, str) and before else text)


def _behind(before: str, old: bytes) -> bytes:
    """A message's content with another one's text before it."""
    text: Any = loads(old) if old else None
    return dumps(f"{before}\n\n{text}" if isinstance(text, str) and text else before)
