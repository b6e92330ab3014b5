"""Anthropic's rules: tables of histories that the vendor takes, and of histories that it refuses."""

from typing import Any

import pytest

from callfuse.testing.turn import signature_for
from tests.support.rules import violations

TOOLS = [{"name": "search_web", "input_schema": {"type": "object"}}]
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}


def user(*blocks: Any) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    """An assistant message."""
    return {"role": "assistant", "content": list(blocks)}


def text(words: str = "find llamas") -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words}


def use(identity: str = "toolu_1", **more: Any) -> dict[str, Any]:
    """A call."""
    return {"type": "tool_use", "id": identity, "name": "search_web", "input": {}} | more


def result(identity: str = "toolu_1", **more: Any) -> dict[str, Any]:
    """A call's result."""
    return {"type": "tool_result", "tool_use_id": identity, "content": "none found"} | more


def thought(words: str = "hm", answer: str = "msg_1", place: int = 0) -> dict[str, Any]:
    """A thinking block, signed as the scripted vendor signs."""
    return {"type": "thinking", "thinking": words, "signature": signature_for(answer, words, place)}


ASK = user(text())
FOREIGN = {"type": "thinking", "thinking": "hm", "signature": "EuYBCkQYAiJA"}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgBEgy"}


def judged(*messages: Any, **settings: Any) -> list[str]:
    """What is wrong with a request of these messages."""
    body = {"model": "m", "max_tokens": 4096, "messages": list(messages), "tools": TOOLS}
    return violations("anthropic", body | settings)


ACCEPTED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "a question": ([{"role": "user", "content": "find llamas"}], {}),
    "an answer": ([ASK, assistant(text("Llamas are camelids.")), ASK], {}),
    "a call with its result": ([ASK, assistant(use()), user(result())], {}),
    "text before a call": ([ASK, assistant(text("Let me look."), use()), user(result())], {}),
    "text after the results": ([ASK, assistant(use()), user(result(), text("hurry"))], {}),
    "parallel calls": ([ASK, assistant(use("a"), use("b")), user(result("b"), result("a"))], {}),
    "parallel results in two messages": (
        [ASK, assistant(use("a"), use("b")), user(result("a")), user(result("b"))],
        {},
    ),
    "parallel calls in two messages": (
        [ASK, assistant(use("a")), assistant(use("b")), user(result("a"), result("b"))],
        {},
    ),
    "ids that come again in a later round": (
        [ASK, assistant(use()), user(result()), assistant(use()), user(result())],
        {},
    ),
    "an empty result": ([ASK, assistant(use()), user(result(content=[]))], {}),
    "a prefill": ([ASK, assistant(text("Llamas are"))], {}),
    "an empty prefill": ([ASK, {"role": "assistant", "content": ""}], {}),
    "a server's call that waits": (
        [ASK, assistant({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})],
        ENABLED,
    ),
    "thinking before a call": ([ASK, assistant(thought(), use()), user(result())], ENABLED),
    "hidden thinking before a call": ([ASK, assistant(HIDDEN, use()), user(result())], ENABLED),
    "thinking of another vendor's hand": ([ASK, assistant(FOREIGN, use()), user(result())], ENABLED),
    "thinking only before the first call of the loop": (
        [ASK, assistant(thought(), use("a")), user(result("a")), assistant(use("b")), user(result("b"))],
        ENABLED,
    ),
    "an old loop without thinking": (
        [ASK, assistant(use()), user(result()), assistant(text("None.")), ASK],
        ENABLED,
    ),
    "two thoughts of one answer": (
        [ASK, assistant(thought("hm"), thought("aha", place=1), use()), user(result())],
        ENABLED,
    ),
    "thinking of two answers in two messages": (
        [
            ASK,
            assistant(thought("hm", "msg_1"), use("a")),
            user(result("a")),
            assistant(thought("aha", "msg_2"), use("b")),
            user(result("b")),
        ],
        ENABLED,
    ),
    "no thinking where it is adaptive": ([ASK, assistant(use()), user(result())], ADAPTIVE),
    "thinking where it is off": ([ASK, assistant(thought(), use()), user(result())], {}),
    "four cache marks": (
        [user(text() | {"cache_control": {"type": "ephemeral"}})],
        {"system": [text("be brief") | {"cache_control": {"type": "ephemeral"}}] * 3},
    ),
}


@pytest.mark.parametrize(("messages", "settings"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(messages: list[Any], settings: dict[str, Any]) -> None:
    """A history that the vendor takes breaks no rule."""
    assert judged(*messages, **settings) == []


UNANSWERED = "each tool_use must have its tool_result"

REFUSED: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "no messages": ([], {}, ["messages: a non-empty array"]),
    "a message that is no object": (["hi", ASK], {}, ["messages.0: an object"]),
    "an unknown role": ([ASK, {"role": "tool", "content": "x"}], {}, ["messages.1.role: 'tool'"]),
    "an answer first": ([assistant(text("Hi")), ASK], {}, ["messages.0: the first message"]),
    "no content": ([{"role": "user", "content": None}], {}, ["messages.0.content"]),
    "an empty question": ([{"role": "user", "content": ""}], {}, ["messages.0: only the last"]),
    "an empty answer": ([ASK, assistant(), ASK], {}, ["messages.1: only the last"]),
    "an empty text block": ([user(text(""))], {}, ["messages.0.content.0: a text block must not be empty"]),
    "a blank text block": ([user(text(" \n"))], {}, ["messages.0.content.0: a text block must hold more"]),
    "a blank answer beside a call": (
        [ASK, assistant(text("\n\n"), use()), user(result())],
        {},
        ["messages.1.content.0: a text block must hold more"],
    ),
    "an empty text in a result": (
        [ASK, assistant(use()), user(result(content=[text("")]))],
        {},
        ["messages.2.content.0.content.0: a text block must not be empty"],
    ),
    "an error that says nothing": (
        [ASK, assistant(use()), user(result(content="", is_error=True))],
        {},
        ["messages.2.content.0.content: an error must say something"],
    ),
    "an unanswered call at the end": ([ASK, assistant(use())], {}, [UNANSWERED]),
    "an unanswered call before a question": ([ASK, assistant(use()), ASK], {}, [UNANSWERED]),
    "one of two calls unanswered": (
        [ASK, assistant(use("a"), use("b")), user(result("a"))],
        {},
        ["unanswered: b"],
    ),
    "text before the result": (
        [ASK, assistant(use()), user(text("hurry"), result())],
        {},
        [UNANSWERED, "messages.2.content.1: a tool_result must stand before"],
    ),
    "a reminder between call and result": (
        [ASK, assistant(use()), user(text("hurry")), user(result())],
        {},
        [UNANSWERED, "messages.3.content.0: a tool_result must stand before"],
    ),
    "an answer between call and result": (
        [ASK, assistant(use()), ASK, assistant(text("Hm.")), user(result())],
        {},
        [UNANSWERED, "messages.4.content.0: 'toolu_1' is no tool_use of the message before"],
    ),
    "a result without a call": ([user(result())], {}, ["messages.0.content.0: 'toolu_1' is no tool_use"]),
    "two results of one call": (
        [ASK, assistant(use()), user(result(), result())],
        {},
        ["messages.2.content.1: 'toolu_1' is answered twice"],
    ),
    "two calls of one id": (
        [ASK, assistant(use(), use()), user(result())],
        {},
        ["messages.1.content.1: the call id 'toolu_1' is used twice"],
    ),
    "text after a call": (
        [ASK, assistant(use(), text("done")), user(result())],
        {},
        ["messages.1.content.1: text must not follow a tool_use"],
    ),
    "a call in a user message": (
        [user(text(), use())],
        {},
        ["messages.0.content.1: a tool_use block belongs to an assistant"],
    ),
    "an id with a blank": (
        [ASK, assistant(use("a b")), user(result("a b"))],
        {},
        ["messages.1.content.0.id: 'a b' does not match"],
    ),
    "arguments as text": (
        [ASK, assistant(use(input="{}")), user(result())],
        {},
        ["messages.1.content.0.input: an object"],
    ),
    "calls without declared tools": (
        [ASK, assistant(use()), user(result())],
        {"tools": []},
        ["tools: must be given"],
    ),
    "a prefill with a blank at its end": ([ASK, assistant(text("Hm "))], {}, ["messages.1.content.0: the last"]),
    "a prefill where thinking is enabled": ([ASK, assistant(text("Hm"))], ENABLED, ["messages.1: the last message"]),
    "a prefill where thinking is adaptive": ([ASK, assistant(text("Hm"))], ADAPTIVE, ["messages.1: the last"]),
    "thinking at the end of a message": (
        [ASK, assistant(thought()), ASK],
        ENABLED,
        ["messages.1.content.0: the last block of an assistant message must not be thinking"],
    ),
    "no thinking before a call": (
        [ASK, assistant(use()), user(result())],
        ENABLED,
        ["messages.1.content.0: where thinking is enabled"],
    ),
    "text in the place of thinking": (
        [ASK, assistant(text("Let me look."), thought(), use()), user(result())],
        ENABLED,
        ["messages.1.content.0: where thinking is enabled"],
    ),
    "a loop that began without thinking": (
        [ASK, assistant(use("a")), user(result("a")), assistant(thought(), use("b")), user(result("b"))],
        ENABLED,
        ["messages.1.content.0: where thinking is enabled"],
    ),
    "thinking without a signature": (
        [ASK, assistant({"type": "thinking", "thinking": "hm", "signature": ""}, use()), user(result())],
        ENABLED,
        ["messages.1.content.0.signature"],
    ),
    "thinking that was changed": (
        [ASK, assistant(thought() | {"thinking": "hmm"}, use()), user(result())],
        ENABLED,
        ["messages.1.content.0: the signature is not that of this thinking"],
    ),
    "thinking of two answers in one message": (
        [ASK, assistant(thought("hm", "msg_1"), thought("aha", "msg_2"), use()), user(result())],
        ENABLED,
        ["messages.1.content.1: thinking of two answers"],
    ),
    "a thought that is missing": (
        [ASK, assistant(thought("aha", place=1), use()), user(result())],
        ENABLED,
        ["messages.1.content.0: thinking blocks must come back complete"],
    ),
}


@pytest.mark.parametrize(("messages", "settings", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(messages: list[Any], settings: dict[str, Any], expected: list[str]) -> None:
    """Exactly the rules that the history breaks are named, each with its place."""
    found = judged(*messages, **settings)
    assert len(found) == len(expected), found
    assert all(any(words in sentence for sentence in found) for words in expected), found


MARKED = text() | {"cache_control": {"type": "ephemeral"}}

SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "an empty model": ({"model": ""}, "model: "),
    "no limit": ({"max_tokens": None}, "max_tokens: "),
    "a choice as text": ({"tool_choice": "auto"}, "tool_choice: an object"),
    "an unknown choice": ({"tool_choice": {"type": "maybe"}}, "tool_choice.type: 'maybe'"),
    "a choice without tools": ({"tool_choice": {"type": "auto"}, "tools": []}, "tool_choice: only allowed"),
    "a tool that is not there": ({"tool_choice": {"type": "tool", "name": "dance"}}, "tool_choice.name: "),
    "a forced tool with thinking": (ENABLED | {"tool_choice": {"type": "any"}}, "tool_choice: a forced"),
    "too little to think with": ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens: "),
    "a temperature with thinking": (ENABLED | {"temperature": 0.2}, "temperature: "),
    "five cache marks": ({"system": [MARKED] * 5}, "cache_control: at most 4"),
}


@pytest.mark.parametrize(("settings", "expected"), SETTINGS.values(), ids=SETTINGS.keys())
def test_refused_settings(settings: dict[str, Any], expected: str) -> None:
    """A setting that the vendor refuses is named."""
    (found,) = judged(ASK, **settings)
    assert found.startswith(expected)
