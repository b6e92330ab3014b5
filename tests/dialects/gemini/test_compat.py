"""Gemini behind OpenAI's format: the signature of a withheld first call leaves its stand-in on the first survivor."""

import json
from typing import Any

import pytest

from tests.support.asgi import Request
from tests.support.meeting import meet
from tests.support.scripted import Reply, whole
from tests.support.wire import events

PATH = "/v1beta/openai/chat/completions"
STAND_IN = {"google": {"thought_signature": "skip_thought_signature_validator"}}
SIGNED = {"google": {"thought_signature": "c2ln"}}


def called(name: str, **more: Any) -> dict[str, Any]:
    """A call as this vendor streams it: whole, perhaps without an index."""
    return {"id": f"id_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def request(*, stream: bool, model: str = "gemini-3-flash") -> Request:
    """A conversation that has looked up once and then searched twice."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for at, name in enumerate(["lookup", "search", "search"]):
        call = {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"result of {name}"})
    tools = [{"type": "function", "function": {"name": name}} for name in ("search", "lookup")]
    body = {"model": model, "messages": messages, "tools": tools, "stream": stream}
    return Request(PATH, json.dumps(body).encode())


def thinned(*calls: dict[str, Any], stream: bool, model: str = "gemini-3-flash") -> list[dict[str, Any]]:
    """The calls that the client gets of an answer with these, each in its own chunk."""
    head = {"id": "x", "created": 1, "model": model}
    if not stream:
        message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        body = {**head, "object": "chat.completion", "choices": [choice]}
        met = meet(request(stream=False, model=model), [whole(json.dumps(body).encode())])
        listed: list[dict[str, Any]] = json.loads(met.body)["choices"][0]["message"]["tool_calls"]
        return listed
    deltas: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]} for call in calls]
    chunks: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    sent = [json.dumps({**head, "object": "chat.completion.chunk", "choices": [one]}) for one in chunks]
    stream_body = "".join(f"data: {one}\n\n" for one in (*sent, "[DONE]")).encode()
    met = meet(request(stream=True, model=model), [Reply((stream_body,))])
    read = [json.loads(event.data) for event in events(met.body) if event.data != "[DONE]"]
    return [call for one in read for call in one["choices"][0]["delta"].get("tool_calls") or ()]


streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@streamed_and_whole
def test_the_first_survivor_gets_it(stream: bool) -> None:
    """Where the withheld first call carried the signature."""
    first, second = thinned(
        called("search", extra_content=SIGNED), called("lookup"), called("lookup", id="again"), stream=stream
    )
    assert first["extra_content"] == STAND_IN
    assert "extra_content" not in second


@streamed_and_whole
def test_what_else_stands_there_stays(stream: bool) -> None:
    """Other things that the vendor added are kept."""
    (left,) = thinned(
        called("search", extra_content=SIGNED),
        called("lookup", extra_content={"google": {"a": 1}, "b": 2}),
        stream=stream,
    )
    assert left["extra_content"] == {"google": {"a": 1, **STAND_IN["google"]}, "b": 2}


@streamed_and_whole
@pytest.mark.parametrize(
    ("calls", "model"),
    [
        ([called("search"), called("lookup")], "gemini-3-flash"),
        ([called("lookup", extra_content=SIGNED), called("search")], "gemini-3-flash"),
        ([called("search", extra_content=SIGNED), called("lookup")], "google/gemini-2.5-flash"),
    ],
)
def test_no_stand_in_where_none_is_wanted(stream: bool, calls: list[dict[str, Any]], model: str) -> None:
    """No signature was lost, or the model takes a history without any."""
    (left,) = thinned(*calls, stream=stream, model=model)
    (lookup,) = [call for call in calls if call["function"]["name"] == "lookup"]
    assert left == lookup
