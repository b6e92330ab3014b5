"""Ollama's chat of the scripted vendor: reads and checks requests, writes answers as lines and as bodies.

In: a `Turn`. Out: frames or a body, with every field that Ollama writes. Calls come whole, with id and index. Ollama
itself checks types only; models that it hosts for others, and some templates, also want results right behind their
calls, so these rules do, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import Turn, dumps, last_tool_round, objects

ROLES = ("system", "user", "assistant", "tool")
TEXTS = ("content", "thinking", "tool_name", "tool_call_id")

NANOSECONDS_A_TOKEN = 1_000_000

Json = Mapping[str, Any]


class Ollama:
    """`POST .../api/chat`."""

    name = "ollama"
    stream_type = b"application/x-ndjson"

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/api/chat`, under any prefix."""
        return path.endswith("/api/chat")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """The calls and results at the end of the conversation; both empty if it ends otherwise."""
        return last_tool_round(body, _calls)

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Always 1."""
        return 1

    def broken_rules(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The vendor's rules that a request breaks, one sentence each."""
        return broken_rules(body)

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """A line for each piece of thinking or text and for each call, then the `done` line."""
        answer = turn.choices[0]
        for piece in turn.pieces(answer.thinking):
            yield _line(turn, {"content": "", "thinking": piece})
        for piece in turn.pieces(answer.text):
            yield _line(turn, {"content": piece})
        for place, call in enumerate(answer.calls):
            yield _line(turn, {"content": "", "tool_calls": [_call(turn, place, call)]})
        yield _line(turn, {"content": ""}, **_end(turn))

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The answer as one object."""
        answer = turn.choices[0]
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thinking:
            message["thinking"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = [_call(turn, place, call) for place, call in enumerate(answer.calls)]
        return _head(turn) | {"message": message} | _end(turn)

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Ollama's error envelope."""
        return {"error": message}

    def error_frame(self, message: str) -> bytes:
        """An error in place of a line."""
        return dumps({"error": message}) + b"\n"

    def malformed_frame(self) -> bytes:
        """A line that breaks off in the middle of its JSON."""
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
    """A call with its arguments as an object. Text that is not JSON becomes an empty one, as in Ollama's parsers."""
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


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    messages = body.get("messages")
    if not isinstance(messages, list):
        yield "messages: an array is required"
        return
    for at, message in enumerate(messages):
        if isinstance(message, dict):
            yield from _check_message(f"messages[{at}]", message)
        else:
            yield f"messages[{at}]: an object is required"
    yield from _check_calls_answered([message if isinstance(message, dict) else {} for message in messages])


def _check_settings(body: Json) -> Iterator[str]:
    if not (isinstance(body.get("model"), str) and body["model"]):
        yield "model: a non-empty string is required"
    if not isinstance(body.get("stream"), bool | None):
        yield f"stream: a boolean is required, not {body['stream']!r}"
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        yield "tools: an array is required"
        return
    for at, tool in enumerate(tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            yield f"tools[{at}].function.name: a string is required"


def _check_message(place: str, message: Json) -> Iterator[str]:
    if message.get("role") not in ROLES:
        yield f"{place}.role: {message.get('role')!r} is not one of {', '.join(ROLES)}"
    for key in TEXTS:
        if not isinstance(message.get(key), str | None):
            yield f"{place}.{key}: a string is required"
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        yield f"{place}.tool_calls: an array is required"
        return
    for at, call in enumerate(calls):
        yield from _check_call(f"{place}.tool_calls[{at}]", call)


def _check_call(place: str, call: Any) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        yield f"{place}.function: an object is required"
        return
    if not isinstance(call.get("id"), str | None):
        yield f"{place}.id: a string is required"
    if not (isinstance(function.get("name"), str) and function["name"]):
        yield f"{place}.function.name: a non-empty string is required"
    if not isinstance(function.get("arguments"), dict | None):
        yield f"{place}.function.arguments: an object is required, not {type(function['arguments']).__name__}"
    index = function.get("index")
    if isinstance(index, bool) or not isinstance(index, int | None):
        yield f"{place}.function.index: an integer is required"


def _check_calls_answered(messages: Sequence[Json]) -> Iterator[str]:
    """As many tool messages as calls come right behind them, for the same tools."""
    at = 0
    while at < len(messages):
        calls = _call_keys(messages[at])
        end = at + 1
        while end < len(messages) and messages[end].get("role") == "tool":
            end += 1
        results = messages[at if messages[at].get("role") == "tool" else at + 1 : end]
        if len(results) != len(calls):
            yield f"messages[{at}]: {len(calls)} calls are followed by {len(results)} tool messages"
        for key, known in (("tool_call_id", [id_ for id_, _ in calls]), ("tool_name", [name for _, name in calls])):
            for result in results:
                given = result.get(key)
                if isinstance(given, str) and any(known) and given not in known:
                    yield f"messages[{at}]: the {key} {given!r} is that of no call"
                elif isinstance(given, str) and given in known:
                    known.remove(given)
        at = end


def _call_keys(message: Json) -> list[tuple[Any, Any]]:
    """The ids and names of a message's calls."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or message.get("role") == "tool":
        return []
    found = [(call.get("id"), call.get("function")) for call in calls if isinstance(call, dict)]
    return [(id_, function.get("name")) for id_, function in found if isinstance(function, dict)]
