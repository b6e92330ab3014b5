"""Ollama's rules for a request.

Ollama itself checks types only. Models that it hosts for others, and some templates, also want results right behind
their calls, so these rules do, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
TEXTS = ("content", "thinking", "tool_name", "tool_call_id")

Json = Mapping[str, Any]


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
