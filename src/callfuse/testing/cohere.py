"""Imitate Cohere's chat API: read requests, write answers as streams and as bodies.

Input: a `Turn`. Output: frames or a body. Text in an answer with calls is the plan, as in Cohere's API; other text is
content.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from callfuse.testing import openai_chat
from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps


class CohereVendor:
    """`POST .../v2/chat`."""

    name = "cohere-v2"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/v2/chat`, under any prefix."""
        return path.endswith("/v2/chat")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation, which is in OpenAI's format."""
        return openai_chat.OpenAIChatVendor().last_round(body)

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events, each with a type, then `[DONE]`."""
        answer = turn.choices[0]
        empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        yield _event("message-start", id=_id(turn), delta={"message": empty})
        if answer.calls:
            for piece in turn.pieces(answer.text):
                yield _event("tool-plan-delta", delta={"message": {"tool_plan": piece}})
        for index, (kind, text) in enumerate(_blocks(answer)):
            yield _event("content-start", index=index, delta=_content(type=kind, **{kind: ""}))
            for piece in turn.pieces(text):
                yield _event("content-delta", index=index, delta=_content(**{kind: piece}))
            yield _event("content-end", index=index)
        for index, call in enumerate(answer.calls):
            yield _event("tool-call-start", index=index, delta=_part(_call(turn, index, call, "")))
            for piece in turn.pieces(call.text):
                yield _event("tool-call-delta", index=index, delta=_part({"function": {"arguments": piece}}))
            yield _event("tool-call-end", index=index)
        yield _event("message-end", delta={"finish_reason": _finish(answer), "usage": _usage(turn.usage)})
        yield b"data: [DONE]\n\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as one object."""
        answer = turn.choices[0]
        message: dict[str, Any] = {"role": "assistant"}
        if answer.calls:
            message["tool_plan"] = answer.text
            message["tool_calls"] = [_call(turn, index, call, call.text) for index, call in enumerate(answer.calls)]
        if blocks := [{"type": kind, kind: text} for kind, text in _blocks(answer)]:
            message["content"] = blocks
        return {
            "id": _id(turn),
            "finish_reason": _finish(answer),
            "message": message,
            "usage": _usage(turn.usage),
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return Cohere's error envelope."""
        return {"id": "scripted", "message": message}

    def error_frame(self, message: str) -> bytes:
        """Return a `message-end` with the finish reason `ERROR`."""
        return _event("message-end", delta={"finish_reason": "ERROR", "error": message})

    def malformed_frame(self) -> bytes:
        """Return an event that breaks off in the middle of its JSON."""
        return b'event: content-delta\ndata: {"type":"content-delta","delta":{"mess\n\n'


def _id(turn: Turn) -> str:
    return f"scripted-{turn.request.number}"


def _blocks(answer: Answer) -> Iterator[tuple[str, str]]:
    if answer.thinking:
        yield "thinking", answer.thinking
    if answer.text and not answer.calls:
        yield "text", answer.text


def _content(**content: str) -> dict[str, Any]:
    return {"message": {"content": content}}


def _part(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"message": {"tool_calls": call}}


def _call(turn: Turn, index: int, call: Call, arguments: str) -> dict[str, Any]:
    id_ = turn.call_id("call_", 0, index, call)
    return {"id": id_, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _finish(answer: Answer) -> str:
    return answer.finish or ("TOOL_CALL" if answer.calls else "COMPLETE")


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {"billed_units": counts, "tokens": counts, "cached_tokens": usage.cached_tokens}


def _event(kind: str, **more: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind, **more}) + b"\n\n"
