"""Reading Anthropic streams a second way: what a client has at the end, and the rules of a valid stream.

In: bodies. Out: views and faults. The rules are those that the vendor keeps itself: one message, blocks one after
another and numbered from 0, each opened, filled and closed, then one `message_delta` and one `message_stop`.
"""

import json
from collections.abc import Iterable
from typing import Any

from tests.support.model import SeenCall, View, canonical
from tests.support.wire import events

DELTA_OF = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but pings."""
    found = [json.loads(event.data) for event in events(body)]
    return [part for part in found if part["type"] != "ping"]


def read_stream(body: bytes) -> View:
    """A stream put together."""
    blocks: dict[int, dict[str, Any]] = {}
    finish = None
    for part in payloads(body):
        match part["type"]:
            case "content_block_start":
                blocks[part["index"]] = {**part["content_block"], "json": ""}
            case "content_block_delta":
                _extend(blocks[part["index"]], part["delta"])
            case "message_delta":
                finish = part["delta"].get("stop_reason")
            case _:
                continue
    return _view([blocks[at] for at in sorted(blocks)], finish)


def _extend(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "input_json_delta":
            block["json"] += delta["partial_json"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case other:
            raise ValueError(f"no delta is called {other}")


def read_whole(body: dict[str, Any]) -> View:
    """A whole answer."""
    blocks = [{**block, "json": json.dumps(block.get("input"))} for block in body["content"]]
    return _view(blocks, body["stop_reason"])


def _view(blocks: list[dict[str, Any]], finish: str | None) -> View:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    made = [block for block in blocks if block["type"] == "tool_use"]
    calls = tuple(SeenCall(block["id"], block["name"], canonical(block["json"])) for block in made)
    return View(text, thinking, calls, finish)


def check(body: bytes) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    named = [event.name for event in events(body)]
    typed = [json.loads(event.data)["type"] for event in events(body)]
    faults = [] if named == typed else ["an event's name is not its type"]
    parts = payloads(body)
    return [*faults, *_outline(parts), *_blocks(parts), *_finish(parts)]


def _outline(parts: list[dict[str, Any]]) -> Iterable[str]:
    kinds = [part["type"] for part in parts]
    calls = any(part.get("content_block", {}).get("type") == "tool_use" for part in parts)
    if calls and "message_delta" not in kinds:
        kinds.insert(-1, "message_delta")  # some vendors leave it out behind calls
    if kinds[:1] != ["message_start"] or kinds.count("message_start") != 1:
        yield "not one message_start at the front"
    if kinds[-2:] != ["message_delta", "message_stop"]:
        yield f"ends in {kinds[-2:]}"
    if kinds.count("message_delta") != 1 or kinds.count("message_stop") != 1:
        yield "not one message_delta and one message_stop"


def _blocks(parts: list[dict[str, Any]]) -> Iterable[str]:
    current: dict[str, Any] | None = None
    opened, called = 0, False
    for part in parts:
        kind = part["type"]
        if kind == "content_block_start":
            block = part["content_block"]
            if current is not None or part["index"] != opened:
                yield f"block {part['index']} opens out of turn (the next is {opened})"
            if called and block["type"] != "tool_use":
                yield f"{block['type']} after tool_use"
            current, opened, called = part, opened + 1, called or block["type"] == "tool_use"
        elif kind.startswith("content_block"):
            if current is None or part["index"] != current["index"]:
                yield f"{kind} for block {part['index']}, which is not open"
            elif kind == "content_block_stop":
                current = None
            elif part["delta"]["type"] not in DELTA_OF[current["content_block"]["type"]]:
                yield f"{part['delta']['type']} in a {current['content_block']['type']} block"
        elif kind == "message_delta" and current is not None:
            yield "message_delta within a block"


def _finish(parts: list[dict[str, Any]]) -> Iterable[str]:
    blocks = [part["content_block"]["type"] for part in parts if part["type"] == "content_block_start"]
    deltas = [part for part in parts if part["type"] == "message_delta"]
    wanted = "tool_use" if "tool_use" in blocks else "end_turn"
    for delta in deltas:
        if delta["delta"].get("stop_reason") != wanted:
            yield f"stop_reason {delta['delta'].get('stop_reason')} where {wanted} belongs"
        if "output_tokens" not in delta["usage"] or "stop_sequence" not in delta["delta"]:
            yield "message_delta lacks a field that the SDK's type requires"
    if "thinking" in blocks[1:] and blocks[0] != "thinking":
        yield "thinking does not come first"
