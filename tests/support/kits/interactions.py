"""Gemini's Interactions API: requests, events, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by google-genai; the faults of a stream. Requests are those of a client
that keeps its own history (`store: false`); chains have tests of their own.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import httpx2
import pydantic
from google import genai
from google.genai import types
from google.genai._gaos.utils import serializers

from tests.support.model import (
    PLAIN,
    Answer,
    Call,
    Choice,
    Frame,
    History,
    Item,
    Quirks,
    Round,
    SeenCall,
    Style,
    Text,
    Thinking,
    View,
    canonical,
)
from tests.support.render import client_json, dumps, payload, place_noise, sse
from tests.support.sdk import SDKVendor
from tests.support.wire import events

MODEL = "gemini-test"
USAGE = {
    "total_tokens": 20,
    "total_input_tokens": 11,
    "total_cached_tokens": 0,
    "total_output_tokens": 7,
    "total_tool_use_tokens": 0,
    "total_thought_tokens": 2,
}
TIMES = {"created": "2026-01-02T03:04:05Z", "updated": "2026-01-02T03:04:05Z"}


class InteractionsKit:
    """The `gemini-interactions` dialect."""

    name = "gemini-interactions"
    path = "/v1beta/interactions"
    most_choices = 1
    late_text = True
    one_text = False
    stopped = "completed"
    called = "requires_action"
    may_lack_finish = False
    history_key = "input"
    newlines = ("\n", "\r\n")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys, so that a rewrite would show."""
        body: dict[str, Any] = {
            "generation_config": {"temperature": 1.0, "seed": 9007199254740993123, "stop_sequences": ["é\u2028"]},
            "system_instruction": "You are a careful agent é\u2028.",
            "input": steps(history, style),
            "model": MODEL,
            "store": False,
            "tools": [_tool(name) for name in history.tools],
        }
        return client_json(body | ({"stream": True} if stream else {}), style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """The interaction begins, its steps begin, grow and end, the interaction ends."""
        quirks, items = answer.quirks, answer.choices[0]
        head = _head(answer)
        begun = head | {"status": "in_progress"}
        frames = [Frame(_event("interaction.created", quirks, interaction=begun), "start")]
        update = {"interaction_id": head["id"], "status": "in_progress"}
        frames.append(Frame(_event("interaction.status_update", quirks, **update), "start"))
        for at, item in enumerate(items):
            frames += _step_frames(item, at, quirks)
        ended = head | {"status": _status(items)} | ({"usage": USAGE} if answer.usage else {})
        frames.append(Frame(_event("interaction.completed", quirks, interaction=ended), "finish", 0))
        comment = f": keep-alive{quirks.newline * 2}"
        return place_noise(frames, Frame(comment.encode(), "noise"), quirks)

    def whole(self, answer: Answer) -> bytes:
        """The interaction."""
        items = answer.choices[0]
        body = _head(answer) | {"status": _status(items), "usage": USAGE, "steps": [_step(item) for item in items]}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        if stream:
            return (read_steps(*merged(payloads(body))),)
        answer = json.loads(body)
        return (read_steps(answer["steps"], answer["status"]),)

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return list(check(body))

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """What google-genai gives its caller, put together."""
        made, status, _ = _ask(body, stream=stream)
        return (read_steps(made, status),)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own steps go back as they are, as agents do."""
        made, _, _ = _ask(body, stream=stream)
        results = [
            {"type": "function_result", "call_id": step["id"], "name": step["name"], "result": result}
            for step in made
            if step["type"] == "function_call"
        ]
        spoken: Any = [*steps(history, PLAIN), *made, *(results or [_user("Go on.")])]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        tools: Any = [_tool(name) for name in history.tools]
        client.interactions.create(model=MODEL, input=spoken, store=False, tools=tools)
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last steps of the model's own; a thought must have its signature."""
        spoken = json.loads(request)["input"]
        end = len(spoken)
        while spoken[end - 1]["type"] in ("function_result", "user_input"):
            end -= 1
        start = end
        while start and spoken[start - 1]["type"] not in ("function_result", "user_input"):
            start -= 1
        own = spoken[start:end]
        assert all(step["signature"] for step in own if step["type"] == "thought")
        view = read_steps(own, None)
        made = [step for step in own if step["type"] == "function_call"]
        calls = tuple(SeenCall(step["id"], step["name"], json.dumps(step["arguments"])) for step in made)
        return View(view.text, view.thinking, calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every function result."""
        return [
            (step["call_id"], _joined(step["result"]))
            for step in json.loads(request)["input"]
            if step["type"] == "function_result"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The ids of the interaction."""
        parts = payloads(body) if stream else [{"interaction": json.loads(body)}]
        return {part["interaction"]["id"] for part in parts if "interaction" in part}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The counts at the end."""
        usage = _ask(body, stream=stream)[2]
        if not usage:
            return None
        assert usage["total_tokens"] == usage["total_input_tokens"] + usage["total_output_tokens"] * 9 // 7
        return usage["total_input_tokens"], usage["total_output_tokens"]

    def error(self) -> bytes:
        """An error event."""
        return _event("error", Quirks(), error={"code": "503", "message": "The model is overloaded."})


def steps(history: History, style: Style) -> list[Any]:
    """The conversation as steps."""
    found: list[Any] = []
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [_user(turn.text)]
    return found


def _user(text: str) -> dict[str, Any]:
    return {"type": "user_input", "content": [{"type": "text", "text": text}]}


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    said = [_step(Text((turn.text,)))] if turn.text else []
    results = [
        {
            "type": "function_result",
            "call_id": call.id,
            "name": call.name,
            "result": [{"type": "text", "text": result}] if style.parts else result,
        }
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [*said, *(_step(call) for call in turn.calls), *results]


def _joined(result: Any) -> str:
    return result if isinstance(result, str) else "".join(part["text"] for part in result)


def _tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": f"Runs {name}.", "parameters": parameters}


def _head(answer: Answer) -> dict[str, Any]:
    return {"id": f"v1_{answer.tag}", "object": "interaction", "model": MODEL, **TIMES}


def _status(items: Choice) -> str:
    return "requires_action" if any(isinstance(item, Call) for item in items) else "completed"


def _step(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"type": "model_output", "content": [{"type": "text", "text": item.text}]}
        case Thinking():
            summary = [{"type": "text", "text": item.text}]
            return {"type": "thought", "signature": item.signature, "summary": summary}
        case Call():
            value = json.loads(item.arguments or "{}")
            return {"type": "function_call", "id": item.id, "name": item.name, "arguments": value}


def _event(kind: str, quirks: Quirks, **more: Any) -> bytes:
    name = "" if quirks.empty_id else kind
    return sse(payload({**more, "event_type": kind}, quirks), quirks, name)


def _opening(item: Item, quirks: Quirks) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A step as it begins, and its deltas."""
    match item:
        case Text(pieces):
            return {"type": "model_output"}, [{"type": "text", "text": piece} for piece in pieces]
        case Thinking(pieces, signature):
            summary = {"type": "thought_summary", "content": {"type": "text", "text": "".join(pieces)}}
            return {"type": "thought"}, [summary, {"type": "thought_signature", "signature": signature}]
        case Call():
            if quirks.whole_calls:
                return _step(item), []
            begun = {"type": "function_call", "id": item.id, "name": item.name, "arguments": {}}
            return begun, [{"type": "arguments_delta", "arguments": piece} for piece in item.pieces]


def _step_frames(item: Item, at: int, quirks: Quirks) -> Iterator[Frame]:
    begun, deltas = _opening(item, quirks)
    yield Frame(_event("step.start", quirks, index=at, step=begun), "open", 0, at)
    for delta in deltas:
        yield Frame(_event("step.delta", quirks, index=at, delta=delta), "piece", 0, at)
    yield Frame(_event("step.stop", quirks, index=at), "close", 0, at)


@cache
def _client() -> tuple[genai.Client, SDKVendor]:
    vendor = SDKVendor(httpx2.Response)
    http = httpx2.Client(transport=httpx2.MockTransport(vendor))
    options = types.HttpOptions(base_url="http://vendor.test", httpx_client=http)
    return genai.Client(api_key="k", http_options=options), vendor


@cache
def _model_of(name: str, body: Any) -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        name, body=body, __config__=pydantic.ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)
    )


def _make_model(name: str, *, body: Any, **_: Any) -> type[pydantic.BaseModel]:
    """What the SDK makes anew for each event, which is two thirds of its time; it depends on the type alone."""
    return _model_of(name, body)


@patch.object(serializers, "create_model", _make_model)
def _ask(body: bytes, *, stream: bool) -> tuple[list[dict[str, Any]], str | None, dict[str, Any]]:
    """Steps, status and usage, as the SDK has them."""
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream" if stream else "application/json"
    if not stream:
        answer: Any = client.interactions.create(model=MODEL, input="x")
        told = answer.model_dump(mode="json", exclude_none=True)
        return told["steps"], told["status"], told.get("usage") or {}
    stream_of: Any = client.interactions.create(model=MODEL, input="x", stream=True)
    seen = [one.model_dump(mode="json", exclude_none=True) for one in stream_of]
    usage = [one["interaction"].get("usage") or {} for one in seen if one["event_type"] == "interaction.completed"]
    return *merged(seen), usage[-1] if usage else {}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def merged(listed: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], str | None]:
    """The steps of many events, and the status."""
    found: dict[int, dict[str, Any]] = {}
    pieces: dict[int, str] = {}
    status = None
    for one in listed:
        match one["event_type"]:
            case "step.start":
                found[one["index"]] = dict(one["step"])
            case "step.delta":
                _extend(found[one["index"]], one["delta"], pieces, one["index"])
            case "interaction.completed":
                status = one["interaction"]["status"]
    for at, text in pieces.items():
        found[at]["arguments"] = json.loads(text or "{}")
    return [found[at] for at in sorted(found)], status


def _extend(step: dict[str, Any], delta: dict[str, Any], pieces: dict[int, str], at: int) -> None:
    match delta["type"]:
        case "text":
            (part,) = step.setdefault("content", [{"type": "text", "text": ""}])
            part["text"] += delta["text"]
        case "thought_summary":
            step.setdefault("summary", []).append(delta["content"])
        case "thought_signature":
            step["signature"] = delta["signature"]
        case "arguments_delta":
            pieces[at] = pieces.get(at, "") + delta["arguments"]


def read_steps(made: list[dict[str, Any]], status: str | None) -> View:
    """What a client has of an answer."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [step for step in made if step["type"] == kind]

    text = "".join(part["text"] for step in of("model_output") for part in step.get("content", ()))
    thoughts = "".join(part["text"] for step in of("thought") for part in step.get("summary", ()))
    calls = tuple(
        SeenCall(step["id"], step["name"], canonical(json.dumps(step["arguments"]))) for step in of("function_call")
    )
    return View(text, thoughts, calls, status)


GROWTH = {
    "model_output": ("text",),
    "thought": ("thought_summary", "thought_signature"),
    "function_call": ("arguments_delta",),
}


def check(body: bytes) -> Iterator[str]:
    """What is wrong with a stream."""
    parts = payloads(body)
    kinds = [part["event_type"] for part in parts]
    for event, kind in zip(events(body), kinds, strict=False):
        if event.name not in ("", kind):
            yield f"{event.name} is {kind}"
    if kinds[:1] != ["interaction.created"] or kinds.count("interaction.created") != 1:
        yield "not one interaction.created at the front"
    if kinds[-1:] != ["interaction.completed"] or kinds.count("interaction.completed") != 1:
        yield f"ends in {kinds[-1:]}"
        return
    current: dict[str, Any] | None = None
    count = 0
    for part in parts:
        match part["event_type"]:
            case "step.start":
                if current is not None or part["index"] != count:
                    yield f"step {part['index']} begins out of turn (the next is {count})"
                current, count = part, count + 1
            case "step.delta" | "step.stop":
                if current is None or part["index"] != current["index"]:
                    yield f"{part['event_type']} of step {part['index']} out of turn"
                elif part["event_type"] == "step.stop":
                    current = None
                elif part["delta"]["type"] not in GROWTH[current["step"]["type"]]:
                    yield f"{part['delta']['type']} in a step of {current['step']['type']}"
    interaction = parts[-1]["interaction"]
    missing = {"id", "status", "object", "model"} - set(interaction)
    if missing:
        yield f"the interaction has no {', '.join(sorted(missing))}"
    called = any(is_call(part) for part in parts)
    if interaction["status"] != ("requires_action" if called else "completed"):
        yield f"status {interaction['status']}"
    if len({part["interaction"]["id"] for part in parts if "interaction" in part}) != 1:
        yield "more than one id"


def is_call(part: dict[str, Any]) -> bool:
    """Whether an event begins a call."""
    return bool(part.get("step", {}).get("type") == "function_call")
