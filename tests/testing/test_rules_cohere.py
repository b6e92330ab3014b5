"""The rules of Cohere's `/v2/chat`: OpenAI's histories, with fewer roles and another tool choice."""

from typing import Any

import pytest

from tests.support.rules import violations

HELLO = {"role": "user", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
SAID = {"role": "assistant", "tool_plan": "I will.", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": [{"type": "document", "document": {"data": "x"}}]}
TOOLS = [{"type": "function", "function": {"name": "search"}}]


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    """A request with these messages."""
    return {"model": "m", "messages": list(messages), **more}


@pytest.mark.parametrize(
    "asked",
    [
        body(HELLO, SAID, RESULT, tools=TOOLS, tool_choice="REQUIRED"),
        body(HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, HELLO),
    ],
)
def test_taken(asked: dict[str, Any]) -> None:
    """Histories that Cohere takes break no rule."""
    assert violations("cohere-v2", asked) == []


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"messages": [HELLO]}, "model"),
        (body(HELLO, tools=TOOLS, tool_choice="auto"), "tool_choice"),
        (body(HELLO, tool_choice="NONE"), "tool_choice"),
        (body(), "messages"),
        (body(HELLO, SAID), "messages[1]"),
        (body({"role": "developer", "content": "x"}), "messages[0].role"),
        (body(HELLO, {**SAID, "tool_plan": 7}, RESULT), "messages[1].tool_plan"),
    ],
)
def test_refused(asked: dict[str, Any], place: str) -> None:
    """The sentence names the place."""
    (sentence,) = violations("cohere-v2", asked)
    assert sentence.startswith(place)
