"""Imitate Bedrock: Converse, and Anthropic's messages by `/invoke-with-response-stream`.

Input: a `Turn`. Output: frames or a body.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from callfuse.testing.anthropic import AnthropicVendor
from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import Turn, dumps, objects, signature_for, texts
from callfuse.wire import sse
from callfuse.wire.aws_events import MEDIA_TYPE, chunk, event, exception

PATH = re.compile(r"/model/.+/converse(-stream)?")
METRICS = {"latencyMs": 1}


class BedrockVendor:
    """`POST .../model/{id}/converse` and `/converse-stream`."""

    name = "bedrock-converse"
    stream_type = MEDIA_TYPE

    def serves(self, path: str) -> bool:
        """Whether the path ends like Converse's, under any prefix."""
        found = list(PATH.finditer(path))
        return bool(found) and found[-1].end() == len(path)

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        before, last = [{}, {}, *objects(body.get("messages"))][-2:]
        results = tuple(texts(result.get("content")) for result in parts(last, "toolResult"))
        calls = tuple(
            Call(str(use.get("name")), dumps(use.get("input")).decode(), str(use.get("toolUseId")))
            for use in parts(before, "toolUse")
        )
        return (calls if results else ()), results

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield events from `messageStart` to `metadata`."""
        (answer,) = turn.choices
        yield event({"messageStart": {"role": "assistant"}})
        for index, (opening, deltas) in enumerate(_stream_blocks(turn, answer)):
            at = {"contentBlockIndex": index}
            if opening:
                yield event({"contentBlockStart": at | {"start": opening}})
            for delta in deltas:
                yield event({"contentBlockDelta": at | {"delta": delta}})
            yield event({"contentBlockStop": at})
        yield event({"messageStop": {"stopReason": _finish(answer)}})
        yield event({"metadata": {"usage": _usage(turn.usage), "metrics": METRICS}})

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as one object."""
        (answer,) = turn.choices
        content: list[dict[str, Any]] = []
        if answer.thinking:
            signed = {"text": answer.thinking, "signature": _signature(turn, answer)}
            content.append({"reasoningContent": {"reasoningText": signed}})
        content += [{"text": answer.text}] if answer.text else []
        for place, call in enumerate(answer.calls):
            content.append({"toolUse": _opening(turn, place, call) | {"input": orjson.loads(call.text or "{}")}})
        return {
            "metrics": METRICS,
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _finish(answer),
            "usage": _usage(turn.usage),
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return AWS's error envelope. SDKs read the kind of the error from a header, else from the status."""
        return {"message": message}

    def error_frame(self, message: str) -> bytes:
        """Return an exception frame for the stream."""
        return exception("modelStreamErrorException", dumps({"message": message}))

    def malformed_frame(self) -> bytes:
        """Return a message whose checksum is wrong."""
        frame = event({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "so"}}})
        return frame[:-1] + bytes([frame[-1] ^ 1])


class BedrockInvokeVendor(AnthropicVendor):
    """`POST .../model/{id}/invoke-with-response-stream`: Anthropic's events, each in a `chunk`."""

    name = "bedrock-invoke"
    stream_type = MEDIA_TYPE

    def serves(self, path: str) -> bool:
        """Whether the path is the streaming one, under any prefix."""
        return path.endswith("/invoke-with-response-stream")

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield events from `message_start` to `message_stop`."""
        return (chunk(sse.data(frame) or b"{}") for frame in super().frames(turn))

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return AWS's error envelope."""
        return {"message": message}

    def error_frame(self, message: str) -> bytes:
        """Return an exception frame for the stream."""
        return exception("modelStreamErrorException", dumps({"message": message}))

    def malformed_frame(self) -> bytes:
        """Return a message whose checksum is wrong."""
        return BedrockVendor().malformed_frame()


def _stream_blocks(turn: Turn, answer: Answer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each block's opening (only tool uses have one), with the deltas that fill the block."""
    if answer.thinking:
        deltas = [{"reasoningContent": {"text": piece}} for piece in turn.pieces(answer.thinking)]
        yield {}, [*deltas, {"reasoningContent": {"signature": _signature(turn, answer)}}]
    if answer.text:
        yield {}, [{"text": piece} for piece in turn.pieces(answer.text)]
    for place, call in enumerate(answer.calls):
        pieces = [{"toolUse": {"input": piece}} for piece in turn.pieces(call.text)]
        yield {"toolUse": _opening(turn, place, call)}, pieces


def _opening(turn: Turn, place: int, call: Call) -> dict[str, Any]:
    return {"toolUseId": turn.call_id("tooluse_", 0, place, call), "name": call.name}


def _signature(turn: Turn, answer: Answer) -> str:
    return signature_for(f"scripted-{turn.request.number}", answer.thinking)


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_use" if answer.calls else "end_turn")


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "inputTokens": usage.input_tokens - usage.cached_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cacheReadInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": 0,
    }


def parts(message: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the contents of the blocks of one kind in a message."""
    found = (block.get(key) for block in objects(message.get("content")))
    return [part for part in found if isinstance(part, dict)]
