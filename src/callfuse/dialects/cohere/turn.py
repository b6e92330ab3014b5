"""The model's own turn, as an assistant message of the next request: plan, content and calls as they came.

Citations of a text that goes back are left out: they are no part of what the model reads.
"""

from collections.abc import Sequence
from typing import Any

from callfuse.dialects.base import AskError
from callfuse.dialects.cohere.read import ChatReader, message_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, span


def turn(payloads: Sequence[Payload]) -> bytes:
    """The assistant message that the events come to."""
    reader = ChatReader()
    plan = ""
    blocks: dict[int, Payload] = {}
    for payload in payloads:
        reader.read(payload)
        kind, index, message = payload.get("type"), payload.get("index", 0), message_of(payload)
        if kind == "tool-plan-delta":
            plan += message.get("tool_plan") or ""
        elif kind == "content-start":
            blocks[index] = dict(_content(message))
        elif kind == "content-delta":
            _grow(blocks[index], _content(message))
    message = {"role": "assistant"}
    message |= {"tool_plan": plan} if plan else {}
    content = [block for block in blocks.values() if block.get(str(block.get("type"))) != ""]
    message |= {"content": content} if content else {}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reader.calls
    ]
    return dumps(message | {"tool_calls": calls})


def turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """The message of a whole answer, without the keys that say nothing."""
    place = span(body, ("message",))
    if place is None:
        raise AskError("message")
    empty = [
        Edit((key,), None) for key, value in payload["message"].items() if value in (None, [], "") or key == "citations"
    ]
    return apply(body[place[0] : place[1]], empty)


def _content(message: Payload) -> Payload:
    content = message.get("content")
    if not isinstance(content, dict):
        raise AskError("content")
    return content


def _grow(block: Payload, delta: Payload) -> None:
    """Add a delta to its block."""
    for key, value in delta.items():
        before: Any = block.get(key, "")
        if not isinstance(value, str) or not isinstance(before, str):
            raise AskError(f"content.{key}")
        block[key] = before + value
