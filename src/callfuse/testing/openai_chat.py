"""Imitate OpenAI chat completions: read requests, write answers as streams and as bodies.

Input: a `Turn`. Output: frames or a body, with every field that the official SDK's types require.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, last_tool_round, objects, openai_error


class OpenAIChatVendor:
    """`POST .../chat/completions`."""

    name = "openai-chat"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/chat/completions`, under any prefix."""
        return path.endswith("/chat/completions")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        return last_tool_round(body, _calls)

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return the request's `n`."""
        n = body.get("n")
        return n if isinstance(n, int) and n > 0 else 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events: choice after choice, the usage if the request asks for it, then `[DONE]`."""
        options = turn.request.body.get("stream_options")
        counts = isinstance(options, dict) and options.get("include_usage") is True

        def event(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
            chunk = _envelope(turn, "chat.completion.chunk") | {"choices": choices}
            return b"data: " + dumps(chunk | {"usage": usage} if counts else chunk) + b"\n\n"

        for round_of_choices in zip_longest(*(_chunks(turn, *choice) for choice in enumerate(turn.choices))):
            yield from (event([choice]) for choice in round_of_choices if choice is not None)
        if counts:
            yield event([], _usage(turn.usage))
        yield b"data: [DONE]\n\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as a `chat.completion`."""
        choices = [
            _choice(index, _finish(answer)) | {"message": _message(turn, index, answer)}
            for index, answer in enumerate(turn.choices)
        ]
        return _envelope(turn, "chat.completion") | {"choices": choices, "usage": _usage(turn.usage)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return OpenAI's error envelope."""
        return openai_error(status, message)

    def error_frame(self, message: str) -> bytes:
        """Return an error object in place of a chunk."""
        return b"data: " + dumps(self.error(500, message)) + b"\n\n"

    def malformed_frame(self) -> bytes:
        """Return a chunk that breaks off in the middle of its JSON."""
        return b'data: {"id":"chatcmpl-broken","choices":[{"index":0,"delta":{"content":"bro\n\n'


def _calls(message: Mapping[str, Any]) -> Iterator[Call]:
    for call in objects(message.get("tool_calls")):
        kind, text = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        inner = call.get(kind)
        if isinstance(inner, dict):
            yield Call(str(inner.get("name")), str(inner.get(text)), str(call.get("id")))


def _envelope(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-scripted-{turn.request.number}",
        "object": kind,
        "created": turn.created_s,
        "model": turn.request.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _choice(index: int, finish: str | None) -> dict[str, Any]:
    return {"index": index, "logprobs": None, "finish_reason": finish}


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _chunks(turn: Turn, index: int, answer: Answer) -> Iterator[dict[str, Any]]:
    for delta in _deltas(turn, index, answer):
        yield _choice(index, None) | {"delta": delta}
    yield _choice(index, _finish(answer)) | {"delta": {}}


def _deltas(turn: Turn, index: int, answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.calls and not answer.text else "", "refusal": None}
    for piece in turn.pieces(answer.thinking):
        yield {"reasoning_content": piece}
    for piece in turn.pieces(answer.text):
        yield {"content": piece}
    for place, call in enumerate(answer.calls):
        opening = {"index": place} | _call(turn, index, place, call, arguments="")
        yield {"tool_calls": [opening]}
        for piece in turn.pieces(call.text):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _call(turn: Turn, index: int, place: int, call: Call, *, arguments: str) -> dict[str, Any]:
    return {
        "id": turn.call_id("call_", index, place, call),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _message(turn: Turn, index: int, answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text or None,
        "refusal": None,
        "annotations": [],
    }
    if not answer.calls:
        message["content"] = answer.text
    else:
        message["tool_calls"] = [
            _call(turn, index, place, call, arguments=call.text) for place, call in enumerate(answer.calls)
        ]
    return message | ({"reasoning_content": answer.thinking} if answer.thinking else {})


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
