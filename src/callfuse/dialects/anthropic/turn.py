"""The model's own turn, as an assistant message of the next request: every block as it came, signatures included."""

from collections.abc import Sequence
from typing import Any

import orjson

from callfuse.dialects.base import AskError
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, loads_exact, span, spans


def turn(payloads: Sequence[Payload]) -> bytes:
    """The assistant message that the events come to; raises AskError for a delta that cannot be applied."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    for payload in payloads:
        index = payload.get("index", 0)
        if payload.get("type") == "content_block_start":
            blocks[index] = dict(payload["content_block"])
        elif payload.get("type") == "content_block_delta":
            delta = payload["delta"]
            if delta.get("type") == "input_json_delta":
                inputs.setdefault(index, []).append(delta.get("partial_json") or "")
            else:
                _grow(blocks[index], delta)
    for index, pieces in inputs.items():
        blocks[index]["input"] = _raw_object("".join(pieces))
    return _message([_encoded(block) for block in blocks.values() if block.get("text") != ""])


def turn_of_whole(body: bytes) -> bytes:
    """The content of a whole answer as an assistant message."""
    place = span(body, ("content",))
    if place is None:
        raise AskError("content")
    return _message([body[block.value : block.end] for block in spans(body, place[0])])


def _grow(block: dict[str, Any], delta: Payload) -> None:
    """Apply one delta to its block."""
    kind = delta.get("type")
    if kind in ("text_delta", "thinking_delta"):
        key = kind.removesuffix("_delta")
        block[key] = (block.get(key) or "") + delta[key]
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
    else:
        raise AskError(f"{kind}")


def _raw_object(text: str) -> Any:
    """An input as its raw text, so that no digit is lost; raises AskError where it is no object."""
    if not text.strip():
        return {}
    try:
        is_object = isinstance(loads_exact(text), dict)
    except NotJSON:
        is_object = False
    if not is_object:
        raise AskError("input_json_delta")
    return orjson.Fragment(text)


def _encoded(block: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(block)
    except orjson.JSONEncodeError:
        raise AskError(f"{block.get('type')}") from None


def _message(blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"
