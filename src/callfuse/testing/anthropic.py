"""Imitate Anthropic's messages API: read requests, write answers as streams and as bodies.

Input: a `Turn`. Output: frames or a body, with every field that the official SDK's types require.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, signature_for, texts

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicVendor:
    """`POST .../v1/messages`, and Bedrock's `/model/{id}/invoke`."""

    name = "anthropic"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/v1/messages`, or like Bedrock's, under any prefix."""
        return path.endswith(("/v1/messages", "/invoke"))

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        messages = objects(body.get("messages"))
        end = len(messages)
        while end and messages[end - 1].get("role") == "user":
            end -= 1
        blocks = [block for message in messages[end:] for block in objects(message.get("content"))]
        results = tuple(texts(block.get("content")) for block in blocks if block.get("type") == "tool_result")
        start = end
        while start and messages[start - 1].get("role") == "assistant":
            start -= 1
        calls = tuple(
            Call(str(block.get("name")), orjson.dumps(block.get("input")).decode(), str(block.get("id")))
            for message in messages[start:end]
            for block in objects(message.get("content"))
            if block.get("type") == "tool_use"
        )
        return (calls if results else ()), results

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events from `message_start` to `message_stop`, with a ping, as the vendor does."""
        (answer,) = turn.choices
        usage = _usage(turn.usage)
        message = _message(turn) | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        yield _event({"type": "message_start", "message": message})
        for index, (opening, deltas) in enumerate(_stream_blocks(turn, answer)):
            yield _event({"type": "content_block_start", "index": index, "content_block": opening})
            if index == 0:
                yield _event({"type": "ping"})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta})
            yield _event({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": _finish(answer), "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": delta, "usage": usage})
        yield _event({"type": "message_stop"})

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as a `message`."""
        (answer,) = turn.choices
        content = list(_whole_blocks(turn, answer))
        return _message(turn) | {"content": content, "stop_reason": _finish(answer), "usage": _usage(turn.usage)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return Anthropic's error envelope."""
        return {"type": "error", "error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}}

    def error_frame(self, message: str) -> bytes:
        """Return an `error` event, as the vendor sends it if it is overloaded during an answer."""
        return _event(self.error(529, message))

    def malformed_frame(self) -> bytes:
        """Return an event that breaks off in the middle of its JSON."""
        return b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"ty\n\n'


def _event(payload: dict[str, Any]) -> bytes:
    return b"event: " + str(payload["type"]).encode() + b"\ndata: " + dumps(payload) + b"\n\n"


def _message(turn: Turn) -> dict[str, Any]:
    return {
        "id": _message_id(turn),
        "type": "message",
        "role": "assistant",
        "model": turn.request.model,
        "stop_sequence": None,
    }


def _message_id(turn: Turn) -> str:
    return f"msg_scripted_{turn.request.number}"


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_use" if answer.calls else "end_turn")


def _whole_blocks(turn: Turn, answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.thinking:
        yield {"type": "thinking", "thinking": answer.thinking, "signature": _signature(turn, answer)}
    if answer.text:
        yield {"type": "text", "text": answer.text}
    for place, call in enumerate(answer.calls):
        yield _opening_block(turn, place, call) | {"input": orjson.loads(call.text or "{}")}


def _stream_blocks(turn: Turn, answer: Answer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each block in its opening form, with the deltas that fill it."""
    if answer.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in turn.pieces(answer.thinking)]
        signed = {"type": "signature_delta", "signature": _signature(turn, answer)}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if answer.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in turn.pieces(answer.text)],
        )
    for place, call in enumerate(answer.calls):
        pieces = ["", *turn.pieces(call.text)]  # the vendor's first piece is empty
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield _opening_block(turn, place, call), deltas


def _opening_block(turn: Turn, place: int, call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": turn.call_id("toolu_", 0, place, call), "name": call.name, "input": {}}


def _signature(turn: Turn, answer: Answer) -> str:
    return signature_for(_message_id(turn), answer.thinking)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }
