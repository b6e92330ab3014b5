"""Imitate Ollama's chat API: read requests, write answers as lines and as bodies.

Input: a `Turn`. Output: frames or a body, with every field that Ollama writes. Calls are not split, and have id and
index.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import Turn, dumps, last_tool_round, objects

NANOSECONDS_A_TOKEN = 1_000_000


class OllamaVendor:
    """`POST .../api/chat`."""

    name = "ollama"
    stream_type = b"application/x-ndjson"

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/api/chat`, under any prefix."""
        return path.endswith("/api/chat")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        return last_tool_round(body, _calls)

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield a line for each piece of thinking or text and for each call, then the `done` line."""
        answer = turn.choices[0]
        for piece in turn.pieces(answer.thinking):
            yield _line(turn, {"content": "", "thinking": piece})
        for piece in turn.pieces(answer.text):
            yield _line(turn, {"content": piece})
        for place, call in enumerate(answer.calls):
            yield _line(turn, {"content": "", "tool_calls": [_call(turn, place, call)]})
        yield _line(turn, {"content": ""}, **_end(turn))

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as one object."""
        answer = turn.choices[0]
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thinking:
            message["thinking"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = [_call(turn, place, call) for place, call in enumerate(answer.calls)]
        return _head(turn) | {"message": message} | _end(turn)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return Ollama's error envelope."""
        return {"error": message}

    def error_frame(self, message: str) -> bytes:
        """Return an error in place of a line."""
        return dumps({"error": message}) + b"\n"

    def malformed_frame(self) -> bytes:
        """Return a line that breaks off in the middle of its JSON."""
        return b'{"model":"broken","message":{"role":"assistant","content":"bro\n'


def _calls(message: Mapping[str, Any]) -> Iterator[Call]:
    for call in objects(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            arguments = function.get("arguments")
            yield Call(str(function.get("name")), arguments if isinstance(arguments, dict) else "{}", call.get("id"))


def _head(turn: Turn) -> dict[str, Any]:
    return {"model": turn.request.model, "created_at": f"2026-01-01T00:00:{turn.request.number % 60:02}.123456Z"}


def _line(turn: Turn, message: Mapping[str, Any], **end: Any) -> bytes:
    said = {"role": "assistant", **message}
    return dumps(_head(turn) | {"message": said} | (end or {"done": False})) + b"\n"


def _call(turn: Turn, place: int, call: Call) -> dict[str, Any]:
    """Return a call with its arguments as an object: empty if they are not JSON, as in Ollama's parsers."""
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            arguments = {}
    id_ = turn.call_id("call_", 0, place, call)
    return {"id": id_, "function": {"index": place, "name": call.name, "arguments": arguments}}


def _end(turn: Turn) -> dict[str, Any]:
    answer: Answer = turn.choices[0]
    return {"done": True, "done_reason": answer.finish or "stop"} | _counts(turn.usage)


def _counts(usage: Usage) -> dict[str, int]:
    durations = [tokens * NANOSECONDS_A_TOKEN for tokens in (usage.input_tokens, usage.output_tokens)]
    return {
        "total_duration": sum(durations),
        "load_duration": 0,
        "prompt_eval_count": usage.input_tokens,
        "prompt_eval_duration": durations[0],
        "eval_count": usage.output_tokens,
        "eval_duration": durations[1],
    }
