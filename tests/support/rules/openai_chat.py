"""The rules of OpenAI chat completions: each call of an assistant message is answered exactly once, by the tool
messages right behind it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROLES = ("developer", "system", "user", "assistant", "tool", "function")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_CALL_ID_LENGTH = 40

Json = Mapping[str, Any]


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: a non-empty array is required"
        return
    for at, message in enumerate(messages):
        place = f"messages[{at}]"
        if not isinstance(message, dict):
            yield f"{place}: an object is required"
        elif message.get("role") == "assistant":
            yield from _check_assistant(place, message)
        elif message.get("role") in ROLES:
            yield from _check_spoken(place, message)
        else:
            yield f"{place}.role: {message.get('role')!r} is not one of {', '.join(ROLES)}"
    yield from _check_calls_answered([message if isinstance(message, dict) else {} for message in messages])


def _check_calls_answered(messages: Sequence[Json]) -> Iterator[str]:
    """Calls and the tool messages right behind them match one to one."""
    at = 0
    while at < len(messages):
        ids = _call_ids(messages[at])
        end = at + 1
        while end < len(messages) and messages[end].get("role") == "tool":
            end += 1
        results = range(at if messages[at].get("role") == "tool" else at + 1, end)
        waiting, answered = list(ids), list[str]()
        for result in results:
            called = messages[result].get("tool_call_id")
            if called in waiting:
                waiting.remove(called)
                answered.append(called)
            elif called in answered:
                yield f"messages[{result}].tool_call_id: {called!r} is answered twice"
            else:
                yield f"messages[{result}]: {called!r} is no call of the assistant message before the tool messages"
        if waiting:
            yield (
                f"messages[{at}]: each call of 'tool_calls' must be answered by a tool message right behind it; "
                f"unanswered: {', '.join(waiting)}"
            )
        at = end


def _call_ids(message: Json) -> list[str]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [call["id"] for call in calls if isinstance(call, dict) and isinstance(call.get("id"), str)]


def _check_spoken(place: str, message: Json) -> Iterator[str]:
    """Rules for a message of any role but `assistant`."""
    if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield f"{place}.tool_call_id: a string is required"
    if message.get("role") == "function":
        if not isinstance(message.get("name"), str):
            yield f"{place}.name: a string is required for the role 'function'"
        if message.get("content") is None:  # a function may have returned nothing
            return
    yield from _check_content(f"{place}.content", message.get("content"))


def _check_assistant(place: str, message: Json) -> Iterator[str]:
    calls = message.get("tool_calls")
    speaks = any(message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio"))
    if message.get("content") is not None or not speaks:
        yield from _check_content(f"{place}.content", message.get("content"))
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{place}.tool_calls: leave it out or give a non-empty array"
        return
    for at, call in enumerate(calls):
        yield from _check_call(f"{place}.tool_calls[{at}]", call)
    ids = _call_ids(message)
    for identity in dict.fromkeys(identity for identity in ids if ids.count(identity) > 1):
        yield f"{place}.tool_calls: the id {identity!r} is used twice"


def _check_call(place: str, call: Any) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{place}: an object is required"
        return
    identity = call.get("id")
    if not isinstance(identity, str) or not 1 <= len(identity) <= MAX_CALL_ID_LENGTH:
        yield f"{place}.id: a string of 1 to {MAX_CALL_ID_LENGTH} characters is required, not {identity!r}"
    kind = call.get("type")
    if kind not in ("function", "custom"):
        yield f"{place}.type: {kind!r} is not one of function, custom"
        return
    inner = call.get(kind)
    if not isinstance(inner, dict):
        yield f"{place}.{kind}: an object is required"
        return
    name = inner.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield f"{place}.{kind}.name: {name!r} does not match {TOOL_NAME.pattern}"
    text = "arguments" if kind == "function" else "input"
    if not isinstance(inner.get(text), str):
        yield f"{place}.{kind}.{text}: a string is required"


def _check_content(place: str, content: Any) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield f"{place}: a string or a non-empty array is required"
        return
    for at, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            yield f"{place}[{at}]: an object with a type is required"
        elif part["type"] == "text" and not isinstance(part.get("text"), str):
            yield f"{place}[{at}].text: a string is required"


def _check_settings(body: Json) -> Iterator[str]:
    if "model" in body and not (isinstance(body["model"], str) and body["model"]):  # Azure names it in the path
        yield "model: a non-empty string is required"
    if body.get("stream_options") is not None and body.get("stream") is not True:
        yield "stream_options: only allowed where 'stream' is true"
    tools = body.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        yield "tools: leave it out or give a non-empty array"
    if not tools:
        for key in ("tool_choice", "parallel_tool_calls"):
            if body.get(key) is not None:
                yield f"{key}: only allowed where 'tools' are given"
        return
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        yield f"tool_choice: {choice!r} is not one of none, auto, required"
    elif isinstance(choice, dict):
        named = _inner_name(choice)
        if named is not None and named not in {_inner_name(tool) for tool in tools if isinstance(tool, dict)}:
            yield f"tool_choice: the tool {named!r} is not in 'tools'"


def _inner_name(holder: Json) -> str | None:
    for kind in ("function", "custom"):
        inner = holder.get(kind)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return None
