"""OpenAI's legacy `function_call`: one call without an id, under the same laws."""

import json
from typing import Any

import pytest

from tests.support.asgi import Request
from tests.support.meeting import MARK, meet
from tests.support.plain import ARGUMENTS, RESULT
from tests.support.scripted import Reply, whole
from tests.support.wire import bytewise, events

PATH = "/v1/chat/completions"
FUNCTIONS = [{"name": "search", "parameters": {"type": "object", "properties": {}}}]


def request(times: int, *, stream: bool) -> Request:
    """A conversation in which the function was called so many times, each with the same result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the zebra crossing."}]
    for _ in range(times):
        call = {"name": "search", "arguments": ARGUMENTS}
        messages.append({"role": "assistant", "content": None, "function_call": call})
        messages.append({"role": "function", "name": "search", "content": RESULT})
    body = {"model": "gpt-test", "messages": messages, "functions": FUNCTIONS, "stream": stream}
    return Request(PATH, json.dumps(body).encode())


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One chunk of the stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


STREAM = b"".join(
    [
        chunk({"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": ""}}),
        *(chunk({"function_call": {"arguments": ARGUMENTS[at : at + 7]}}) for at in range(0, len(ARGUMENTS), 7)),
        chunk({}, "function_call"),
        b"data: [DONE]\n\n",
    ]
)


def whole_answer() -> bytes:
    """The same as one body."""
    message = {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": ARGUMENTS}}
    choice = {"index": 0, "message": message, "finish_reason": "function_call"}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-test", "choices": [choice]}
    return json.dumps(body).encode()


@pytest.mark.parametrize("chunks", [(STREAM,), bytewise(STREAM)], ids=["whole", "bytes"])
def test_a_second_call_passes(chunks: tuple[bytes, ...]) -> None:
    """Below the threshold nothing changes."""
    assert meet(request(1, stream=True), [Reply(chunks)]).body == STREAM


@pytest.mark.parametrize("chunks", [(STREAM,), bytewise(STREAM)], ids=["whole", "bytes"])
def test_a_third_call_is_blocked(chunks: tuple[bytes, ...]) -> None:
    """Content stands in its place, the finish reason is `stop`, and no part of the call arrives."""
    met = meet(request(2, stream=True), [Reply(chunks)])
    parts = [json.loads(event.data)["choices"][0] for event in events(met.body) if event.data != "[DONE]"]
    assert not any(part["delta"].get("function_call") for part in parts)
    text = "".join(part["delta"].get("content") or "" for part in parts)
    assert text.startswith(MARK)
    assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["stop"]
    assert sum("role" in part["delta"] for part in parts) == 1
    assert met.body.endswith(b"data: [DONE]\n\n")


def test_a_whole_third_call_is_blocked() -> None:
    """The same for whole answers."""
    met = meet(request(2, stream=False), [whole(whole_answer())])
    (choice,) = json.loads(met.body)["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"].startswith(MARK)
    assert not choice["message"].get("function_call")


def test_a_warning_stands_in_the_functions_result() -> None:
    """The third result, and only that, carries the warning; every other byte stays."""
    asked = request(3, stream=False)
    met = meet(asked, [whole(whole_answer())], "warn")
    results = [turn["content"] for turn in json.loads(met.app.heard[0].body)["messages"] if turn["role"] == "function"]
    assert [MARK in text for text in results] == [False, False, True]
    assert results[2].startswith(RESULT)
