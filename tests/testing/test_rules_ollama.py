"""The rules of Ollama's `/api/chat`: what it takes, and what it refuses."""

from typing import Any

import pytest

from tests.support.rules import violations

HELLO = {"role": "user", "content": "hi"}
CALL = {"function": {"name": "search", "arguments": {"q": "x"}}}
SAID = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "nothing"}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    """A request with these messages."""
    return {"model": "m", "messages": list(messages), **more}


@pytest.mark.parametrize(
    "asked",
    [
        body(HELLO),
        body(),
        body({"role": "system", "content": "Be brief."}, HELLO, stream=False),
        body(HELLO, SAID, RESULT),
        body(HELLO, SAID, {**RESULT, "tool_name": "search"}),
        body(HELLO, {**SAID, "tool_calls": [{**CALL, "id": "a"}]}, {**RESULT, "tool_call_id": "a"}, HELLO),
        body(HELLO, {**SAID, "tool_calls": [CALL, CALL]}, RESULT, RESULT),
        body(HELLO, {"role": "assistant", "thinking": "hm", "content": "x"}, {**HELLO, "images": ["AAAA"]}),
        body(HELLO, {**SAID, "tool_calls": [{"function": {"name": "search"}}]}, RESULT),
        body(HELLO, tools=[{"type": "function", "function": {"name": "search"}}]),
    ],
)
def test_taken(asked: dict[str, Any]) -> None:
    """Histories that Ollama takes break no rule."""
    assert violations("ollama", asked) == []


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"messages": []}, "model"),
        ({"model": "m"}, "messages"),
        (body(7), "messages[0]"),
        (body({"role": "developer", "content": "x"}), "messages[0].role"),
        (body({"role": "user", "content": [{"type": "text", "text": "x"}]}), "messages[0].content"),
        (body(HELLO, stream="yes"), "stream"),
        (body(HELLO, tools={}), "tools"),
        (body(HELLO, tools=[{"name": "search"}]), "tools[0].function.name"),
        (body(HELLO, {**SAID, "tool_calls": {}}), "messages[1].tool_calls"),
        (body(HELLO, {**SAID, "tool_calls": [{}]}), "messages[1].tool_calls[0].function"),
        (body(HELLO, {**SAID, "tool_calls": [{"function": {"name": ""}}]}, RESULT), "messages[1].tool_calls[0]"),
        (
            body(HELLO, {**SAID, "tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]}, RESULT),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            body(HELLO, {**SAID, "tool_calls": [{"function": {"name": "search", "index": "0"}}]}, RESULT),
            "messages[1].tool_calls[0].function.index",
        ),
        (body(HELLO, {**SAID, "tool_calls": [{**CALL, "id": 7}]}, RESULT), "messages[1].tool_calls[0].id"),
        (body(HELLO, SAID), "messages[1]"),
        (body(HELLO, SAID, HELLO, RESULT), "messages[1]"),
        (body(HELLO, SAID, RESULT, RESULT), "messages[1]"),
        (body(RESULT), "messages[0]"),
        (body(HELLO, SAID, {**RESULT, "tool_name": "other"}), "messages[1]"),
        (
            body(HELLO, {**SAID, "tool_calls": [{**CALL, "id": "a"}]}, {**RESULT, "tool_call_id": "b"}),
            "messages[1]",
        ),
    ],
)
def test_refused(asked: dict[str, Any], place: str) -> None:
    """The first sentence names the place."""
    assert violations("ollama", asked)[0].startswith(place)
