"""Bedrock of the scripted vendor: Converse, and Anthropic's messages by `/invoke-with-response-stream`.

In: a `Turn`. Out: frames or a body. The rules are those of Converse for a history: roles alternate, each tool use is
answered in the message behind it, no text is blank, and a history with tools needs a tool configuration.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from callfuse.testing.anthropic import Anthropic
from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import Turn, dumps, objects, read_signature, signature_for, texts
from callfuse.wire import sse
from callfuse.wire.aws_events import MEDIA_TYPE, chunk, event, exception

PATH = re.compile(r"/model/.+/converse(-stream)?")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHOICES = ("auto", "any", "tool")
METRICS = {"latencyMs": 1}


class Bedrock:
    """`POST .../model/{id}/converse` and `/converse-stream`."""

    name = "bedrock-converse"
    stream_type = MEDIA_TYPE

    def serves(self, path: str) -> bool:
        """Whether the path ends as Converse's does, under any prefix."""
        found = list(PATH.finditer(path))
        return bool(found) and found[-1].end() == len(path)

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """The calls and results at the end of the conversation; both empty if it ends otherwise."""
        before, last = [{}, {}, *objects(body.get("messages"))][-2:]
        results = tuple(texts(result.get("content")) for result in _parts(last, "toolResult"))
        calls = tuple(
            Call(str(use.get("name")), dumps(use.get("input")).decode(), str(use.get("toolUseId")))
            for use in _parts(before, "toolUse")
        )
        return (calls if results else ()), results

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Always 1."""
        return 1

    def broken_rules(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The vendor's rules that a request breaks, one sentence each."""
        return broken_rules(body)

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Events from `messageStart` to `metadata`."""
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
        """The answer as one object."""
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
        """AWS's error envelope; SDKs read the kind of the error from a header, and else from the status."""
        return {"message": message}

    def error_frame(self, message: str) -> bytes:
        """An exception in the stream."""
        return exception("modelStreamErrorException", dumps({"message": message}))

    def malformed_frame(self) -> bytes:
        """A message whose checksum is wrong."""
        frame = event({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "so"}}})
        return frame[:-1] + bytes([frame[-1] ^ 1])


class BedrockInvoke(Anthropic):
    """`POST .../model/{id}/invoke-with-response-stream`: Anthropic's events, each carried by a `chunk`."""

    name = "bedrock-invoke"
    stream_type = MEDIA_TYPE

    def serves(self, path: str) -> bool:
        """Whether the path is that of streams, under any prefix."""
        return path.endswith("/invoke-with-response-stream")

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Events from `message_start` to `message_stop`."""
        return (chunk(sse.data(frame) or b"{}") for frame in super().frames(turn))

    def error(self, status: int, message: str) -> dict[str, Any]:
        """AWS's error envelope."""
        return {"message": message}

    def error_frame(self, message: str) -> bytes:
        """An exception in the stream."""
        return exception("modelStreamErrorException", dumps({"message": message}))

    def malformed_frame(self) -> bytes:
        """A message whose checksum is wrong."""
        return Bedrock().malformed_frame()


def _stream_blocks(turn: Turn, answer: Answer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """What opens each block (nothing, but for a tool use), with the deltas that fill it."""
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


def _parts(message: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The blocks of one kind in a message."""
    found = (block.get(key) for block in objects(message.get("content")))
    return [part for part in found if isinstance(part, dict)]


def broken_rules(body: Mapping[str, Any]) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: a non-empty array is required"
        return
    listed = objects(messages)
    if len(listed) != len(messages):
        yield "messages: each must be an object"
    if listed and listed[0].get("role") != "user":
        yield "messages[0]: a conversation must start with a user message"
    yield from _check_tools(body, listed)
    for at, message in enumerate(listed):
        behind = listed[at + 1] if at + 1 < len(listed) else {}
        yield from _check_message(f"messages[{at}]", message, behind)
        before = listed[at - 1] if at else {}
        asked = {str(use.get("toolUseId")) for use in _parts(before, "toolUse")}
        unasked = [
            id_ for result in _parts(message, "toolResult") if (id_ := str(result.get("toolUseId"))) not in asked
        ]
        if unasked:
            yield f"messages[{at}]: toolResult blocks without a toolUse in the message before: {', '.join(unasked)}"


def _check_message(place: str, message: Mapping[str, Any], behind: Mapping[str, Any]) -> Iterator[str]:
    """One message, with the one behind it."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        yield f"{place}.role: {role!r} is not one of user, assistant"
    if behind.get("role") == role:
        yield f"{place}: roles must alternate between user and assistant"
    if not isinstance(content, list) or not content:
        yield f"{place}.content: a non-empty array is required"
    for block in objects(content):
        if isinstance(block.get("text"), str) and not block["text"].strip():
            yield f"{place}: the text field of a content block is blank"
    yield from _check_reasoning(place, _parts(message, "reasoningContent"), objects(content))
    used = [str(use.get("toolUseId")) for use in _parts(message, "toolUse")]
    if len(set(used)) != len(used):
        yield f"{place}: a toolUseId is used twice"
    answered = {str(result.get("toolUseId")) for result in _parts(behind, "toolResult")}
    if waiting := [id_ for id_ in used if id_ not in answered]:
        yield f"{place}: toolUse blocks without a toolResult in the next message: {', '.join(waiting)}"
    for use in _parts(message, "toolUse"):
        if not (isinstance(use.get("name"), str) and TOOL_NAME.fullmatch(use["name"])):
            yield f"{place}: the tool's name {use.get('name')!r} is not valid"
        if not isinstance(use.get("input"), dict):
            yield f"{place}: the input of a toolUse must be an object"


def _check_reasoning(place: str, thoughts: Sequence[Mapping[str, Any]], blocks: Sequence[Any]) -> Iterator[str]:
    """Reasoning must be as the model signed it, of one answer, and come first."""
    said = [thought["reasoningText"] for thought in thoughts if isinstance(thought.get("reasoningText"), dict)]
    signed = [read_signature(str(one.get("signature"))) for one in said]
    for one, signature in zip(said, signed, strict=True):
        if signature is not None and not signature.fits(str(one.get("text"))):
            yield f"{place}: reasoning does not fit its signature"
    if len({signature.answer_id for signature in signed if signature is not None}) > 1:
        yield f"{place}: reasoning of two answers in one message"
    if said and blocks and "reasoningContent" not in blocks[0]:
        yield f"{place}: reasoning must come first"


def _check_tools(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tool configuration."""
    config = body.get("toolConfig")
    tools = config.get("tools") if isinstance(config, dict) else None
    if not tools and any(_parts(message, kind) for message in messages for kind in ("toolUse", "toolResult")):
        yield "toolConfig: must be given where messages hold toolUse or toolResult blocks"
    choice = config.get("toolChoice") if isinstance(config, dict) else None
    if choice is None:
        return
    kinds = list(choice) if isinstance(choice, dict) else []
    if len(kinds) != 1 or kinds[0] not in CHOICES:
        yield f"toolConfig.toolChoice: one of {', '.join(CHOICES)} is required"
    elif kinds == ["tool"]:
        names = [(tool.get("toolSpec") or {}).get("name") for tool in objects(tools)]
        if (choice["tool"] or {}).get("name") not in names:
            yield "toolConfig.toolChoice.tool.name: not one of the tools"
