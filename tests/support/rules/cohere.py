"""Cohere's rules: those of OpenAI chat completions for the history, and its own for the settings."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.rules import openai_chat

ROLES = ("system", "user", "assistant", "tool")
CHOICES = ("REQUIRED", "NONE")


def broken_rules(body: Mapping[str, Any]) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    if not (isinstance(body.get("model"), str) and body["model"]):
        yield "model: a non-empty string is required"
    if body.get("tool_choice") not in (None, *CHOICES):
        yield f"tool_choice: {body['tool_choice']!r} is not one of {', '.join(CHOICES)}"
    elif body.get("tool_choice") is not None and not body.get("tools"):
        yield "tool_choice: only allowed where 'tools' are given"
    yield from openai_chat.broken_rules({"messages": body.get("messages")})
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        role = message.get("role") if isinstance(message, dict) else None
        if role in openai_chat.ROLES and role not in ROLES:
            yield f"messages[{at}].role: {role!r} is not one of {', '.join(ROLES)}"
        plan = message.get("tool_plan") if isinstance(message, dict) else None
        if not isinstance(plan, str | None):
            yield f"messages[{at}].tool_plan: a string is required"
