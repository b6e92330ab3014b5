"""Reading Ollama's answers a second way: a client that puts the lines together, and the rules of a valid stream.

In: bodies, or the SDK's parts. Out: views, one message, faults.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import ollama

from tests.support.model import SeenCall, View, canonical


def lines(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [json.loads(line) for line in body.split(b"\n") if line.strip()]


def read_message(parts: Sequence[dict[str, Any]]) -> View:
    """What a client has at the end."""
    said = [part["message"] for part in parts if "message" in part]
    calls = [call for message in said for call in message.get("tool_calls") or []]
    return View(
        "".join(message.get("content") or "" for message in said),
        "".join(message.get("thinking") or "" for message in said),
        tuple(_seen(call) for call in calls),
        next((part.get("done_reason") for part in parts if part.get("done")), None),
    )


def _seen(call: dict[str, Any]) -> SeenCall:
    function = call["function"]
    return SeenCall(call.get("id", ""), function["name"], canonical(json.dumps(function["arguments"])))


def merged(parts: Iterable[ollama.ChatResponse]) -> ollama.Message:
    """One message of many, as the SDK's own examples do it."""
    content, thinking = "", ""
    calls: list[ollama.Message.ToolCall] = []
    for part in parts:
        content += part.message.content or ""
        thinking += part.message.thinking or ""
        calls += part.message.tool_calls or []
    return ollama.Message(role="assistant", content=content, thinking=thinking or None, tool_calls=calls or None)


def usage_of(end: ollama.ChatResponse) -> tuple[int, int] | None:
    """Input and output tokens."""
    if end.prompt_eval_count is None or end.eval_count is None:
        return None
    return end.prompt_eval_count, end.eval_count


def check(body: bytes) -> list[str]:
    """What is wrong with a stream."""
    if not body.endswith(b"\n"):
        return ["the last line has no end"]
    parts = lines(body)
    found = [f"line {at} has no {key}" for at, part in enumerate(parts) for key in _REQUIRED if key not in part]
    if found:
        return found
    if [bool(part["done"]) for part in parts] != [False] * (len(parts) - 1) + [True]:
        found.append("`done` is not said once, at the end")
    if not parts[-1].get("done_reason"):
        found.append("no done reason")
    if any(part["message"].get("role") != "assistant" for part in parts):
        found.append("a message of another role")
    if len({part["model"] for part in parts if part["model"]}) != 1:
        found.append("more than one model")
    calls = [call for part in parts for call in part["message"].get("tool_calls") or []]
    indexes = [call["function"]["index"] for call in calls if "index" in call["function"]]
    if indexes != list(range(len(indexes))):
        found.append(f"call indexes {indexes}")
    if any(part["message"].get("tool_calls") == [] for part in parts):
        found.append("an empty list of calls")
    return found


_REQUIRED = ("model", "created_at", "message", "done")
