"""The rules of an Anthropic request beside its messages: model, limits, tool choice, thinking, cache marks.

A parsed body enters, sentences about broken rules leave.
"""

from collections.abc import Iterator, Mapping
from typing import Any

MIN_THINKING_TOKENS = 1024
MAX_CACHE_MARKS = 4

Json = Mapping[str, Any]


def thinking_mode(body: Json) -> str:
    """`enabled`, `adaptive` or `disabled`."""
    thinking = body.get("thinking")
    return str(thinking.get("type")) if isinstance(thinking, dict) else "disabled"


def broken_settings(body: Json) -> Iterator[str]:
    """Every rule that `body` breaks outside its messages."""
    if "model" in body and not (isinstance(body["model"], str) and body["model"]):  # clouds name it in the path
        yield "model: a non-empty string is required"
    most = body.get("max_tokens")
    if not isinstance(most, int) or most < 1:
        yield f"max_tokens: a whole number from 1 is required, not {most!r}"
    yield from _tool_choice(body)
    if thinking_mode(body) == "enabled":
        budget = body["thinking"].get("budget_tokens")
        if not isinstance(budget, int) or budget < MIN_THINKING_TOKENS:
            yield f"thinking.budget_tokens: a whole number from {MIN_THINKING_TOKENS} is required, not {budget!r}"
        if body.get("temperature", 1) != 1:
            yield "temperature: only 1 is allowed where thinking is enabled"
    if (marks := _cache_marks(body)) > MAX_CACHE_MARKS:
        yield f"cache_control: at most {MAX_CACHE_MARKS} blocks may carry it, not {marks}"


def _tool_choice(body: Json) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not isinstance(choice, dict):
        yield f"tool_choice: an object is required, not {choice!r}"
        return
    kind = choice.get("type")
    if kind not in ("auto", "any", "tool", "none"):
        yield f"tool_choice.type: {kind!r} is not one of auto, any, tool, none"
    elif not body.get("tools"):
        yield "tool_choice: only allowed where tools are given"
    elif kind in ("any", "tool") and thinking_mode(body) in ("enabled", "adaptive"):
        yield "tool_choice: a forced tool cannot go with thinking"
    elif kind == "tool" and choice.get("name") not in [t.get("name") for t in body["tools"] if isinstance(t, dict)]:
        yield f"tool_choice.name: the tool {choice.get('name')!r} is not in tools"


def _cache_marks(value: Any) -> int:
    """How many blocks carry `cache_control`; what a model or a user wrote into arguments is no block."""
    if isinstance(value, dict):
        return (value.get("cache_control") is not None) + sum(
            _cache_marks(inner) for key, inner in value.items() if key not in ("input", "input_schema")
        )
    return sum(map(_cache_marks, value)) if isinstance(value, list) else 0
