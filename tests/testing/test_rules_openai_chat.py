"""OpenAI's rules: tables of histories that the vendor takes, and of histories that it refuses."""

from typing import Any

import pytest

from tests.support.rules import violations

USER = {"role": "user", "content": "find llamas"}
TOOLS = [{"type": "function", "function": {"name": "search_web", "parameters": {"type": "object"}}}]


def call(identity: str = "call_1", name: str = "search_web", arguments: Any = "{}") -> dict[str, Any]:
    """A call as it stands in an assistant message."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An assistant message that calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | more


def result(identity: str = "call_1", content: Any = "none found") -> dict[str, Any]:
    """A tool message."""
    return {"role": "tool", "tool_call_id": identity, "content": content}


def judged(*messages: Any, **settings: Any) -> list[str]:
    """What is wrong with a request of these messages."""
    return violations("openai-chat", {"model": "m", "messages": list(messages), "tools": TOOLS} | settings)


ACCEPTED = {
    "a question": [USER],
    "a system prompt": [{"role": "system", "content": "be brief"}, USER],
    "text parts": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "an answer": [USER, {"role": "assistant", "content": "Llamas are camelids."}, USER],
    "an empty answer": [USER, {"role": "assistant", "content": ""}, USER],
    "a refusal without content": [USER, {"role": "assistant", "content": None, "refusal": "no"}, USER],
    "a call with its result": [USER, calling(call()), result()],
    "a call beside text": [USER, calling(call(), content="Let me look."), result()],
    "a call without the key content": [
        USER,
        {"role": "assistant", "tool_calls": [call()]},
        result(),
    ],
    "arguments that are not JSON": [USER, calling(call(arguments='{"q')), result()],
    "parallel calls, answered in another order": [
        USER,
        calling(call("call_1"), call("call_2")),
        result("call_2"),
        result("call_1"),
    ],
    "ids that come again in a later round": [USER, calling(call()), result(), calling(call()), result()],
    "keys of other vendors": [USER, calling(call(), reasoning_content="hm") | {"annotations": []}, result()],
    "a custom tool's call": [
        USER,
        calling({"id": "call_1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}),
        result(),
    ],
    "the legacy function": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "search_web", "arguments": "{}"}},
        {"role": "function", "name": "search_web", "content": None},
    ],
    "a result in parts": [USER, calling(call()), result(content=[{"type": "text", "text": "none"}])],
    "an empty result": [USER, calling(call()), result(content="")],
}


@pytest.mark.parametrize("messages", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(messages: list[Any]) -> None:
    """A history that the vendor takes breaks no rule."""
    assert judged(*messages) == []


REFUSED: dict[str, tuple[list[Any], list[str]]] = {
    "no messages": ([], ["messages: a non-empty array"]),
    "a message that is no object": (["hi"], ["messages[0]: an object"]),
    "an unknown role": ([{"role": "robot", "content": "hi"}], ["messages[0].role: 'robot'"]),
    "a question without content": ([{"role": "user", "content": None}], ["messages[0].content: a string"]),
    "a part without a type": ([{"role": "user", "content": [{"text": "hi"}]}], ["messages[0].content[0]"]),
    "an answer of nothing": ([USER, {"role": "assistant", "content": None}], ["messages[1].content: a string"]),
    "an unanswered call at the end": ([USER, calling(call())], ["messages[1]: each call"]),
    "an unanswered call before a question": ([USER, calling(call()), USER], ["unanswered: call_1"]),
    "one of two calls unanswered": (
        [USER, calling(call("call_1"), call("call_2")), result("call_1")],
        ["unanswered: call_2"],
    ),
    "a message between call and result": (
        [USER, calling(call()), {"role": "system", "content": "careful"}, result()],
        ["unanswered: call_1", "messages[3]: 'call_1' is no call"],
    ),
    "a message between two results": (
        [USER, calling(call("call_1"), call("call_2")), result("call_1"), USER, result("call_2")],
        ["unanswered: call_2", "messages[4]: 'call_2' is no call"],
    ),
    "a result without a call": ([USER, result()], ["messages[1]: 'call_1' is no call"]),
    "a result first of all": ([result()], ["messages[0]: 'call_1' is no call"]),
    "a result of another call": (
        [USER, calling(call()), result("call_2")],
        ["'call_2' is no call", "unanswered: call_1"],
    ),
    "two results of one call": ([USER, calling(call()), result(), result()], ["messages[3].tool_call_id"]),
    "a result without an id": (
        [USER, calling(call()), {"role": "tool", "content": "none"}],
        ["messages[2].tool_call_id: a string", "None is no call", "unanswered: call_1"],
    ),
    "a result of null": ([USER, calling(call()), result(content=None)], ["messages[2].content: a string"]),
    "no calls in tool_calls": ([USER, calling(content="hm")], ["messages[1].tool_calls: leave it out"]),
    "a call without a name": ([USER, calling(call(name="")), result()], ["messages[1].tool_calls[0].function.name"]),
    "a name with a blank": ([USER, calling(call(name="a b")), result()], ["function.name: 'a b' does not match"]),
    "arguments as an object": (
        [USER, calling(call(arguments={})), result()],
        ["messages[1].tool_calls[0].function.arguments: a string"],
    ),
    "a call id that is too long": (
        [USER, calling(call("c" * 41)), result("c" * 41)],
        ["messages[1].tool_calls[0].id: a string of 1 to 40"],
    ),
    "two calls of one id": (
        [USER, calling(call(), call()), result(), result()],
        ["the id 'call_1' is used twice"],
    ),
    "a call of no known type": (
        [USER, calling({"id": "call_1", "type": "shell"}), result()],
        ["messages[1].tool_calls[0].type: 'shell'"],
    ),
    "a function without a name": (
        [USER, {"role": "function", "content": "none"}],
        ["messages[1].name: a string"],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(messages: list[Any], expected: list[str]) -> None:
    """Exactly the rules that the history breaks are named, each with its place."""
    found = judged(*messages)
    assert len(found) == len(expected), found
    assert all(any(words in sentence for sentence in found) for words in expected), found


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "an empty model": ({"model": ""}, "model: "),
    "stream options without a stream": ({"stream_options": {"include_usage": True}}, "stream_options: "),
    "no tools in tools": ({"tools": []}, "tools: "),
    "a choice without tools": ({"tools": None, "tool_choice": "auto"}, "tool_choice: only allowed"),
    "a choice that is unknown": ({"tool_choice": "maybe"}, "tool_choice: 'maybe'"),
    "a tool that is not there": (
        {"tool_choice": {"type": "function", "function": {"name": "dance"}}},
        "tool_choice: the tool 'dance'",
    ),
}


@pytest.mark.parametrize(("settings", "expected"), SETTINGS.values(), ids=SETTINGS.keys())
def test_refused_settings(settings: dict[str, Any], expected: str) -> None:
    """A setting that the vendor refuses is named."""
    (found,) = judged(USER, **settings)
    assert found.startswith(expected)


def test_accepted_settings() -> None:
    """Settings that the vendor takes break no rule, a missing model (named by the path) included."""
    forced = {"type": "function", "function": {"name": "search_web"}}
    assert judged(USER, tool_choice=forced, stream=True, stream_options={"include_usage": True}) == []
    assert violations("openai-chat", {"messages": [USER]}) == []
