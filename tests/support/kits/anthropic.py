"""Anthropic messages: requests, event streams, whole answers, and the official SDK's reading of them."""

import json
from functools import cache
from typing import Any

import anthropic
import httpx2

from tests.support.kits.anthropic_reading import check, payloads, read_stream, read_whole
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

MODEL = "claude-test"
INPUT_TOKENS, OUTPUT_TOKENS = 11, 7


class AnthropicKit:
    """The `anthropic` dialect."""

    name = "anthropic"
    path = "/v1/messages"
    most_choices = 1
    late_text = False
    one_text = False
    stopped = "end_turn"
    called = "tool_use"
    may_lack_finish = True
    history_key = "messages"
    newlines = ("\n", "\r\n", "\r")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with floats, escapes and an uncommon order of keys, so that a rewrite would show."""
        body: dict[str, Any] = {
            "temperature": 1.0,
            "system": "You are a careful agent é\u2028.",
            "messages": messages(history, style),
            "model": MODEL,
            "tools": [_tool(name) for name in history.tools],
            "max_tokens": 1024,
        }
        return client_json(body | ({"stream": True} if stream else {}), style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """Start, blocks, delta, stop."""
        quirks, items = answer.quirks, answer.choices[0]
        frames = [Frame(_event("message_start", quirks, message=_message(answer, (), None, 1)), "start")]
        for at, item in enumerate(items):
            frames += _block_frames(item, at, quirks)
        delta = {"stop_reason": _finish(items), "stop_sequence": None}
        end = _event("message_delta", quirks, delta=delta, usage={"output_tokens": OUTPUT_TOKENS})
        if not (quirks.no_finish and _finish(items) == "tool_use"):
            frames.append(Frame(end, "finish", 0))
        frames.append(Frame(_event("message_stop", quirks), "done"))
        return place_noise(frames, Frame(_event("ping", quirks), "noise"), quirks)

    def whole(self, answer: Answer) -> bytes:
        """The `message` object."""
        items = answer.choices[0]
        body = _message(answer, items, _finish(items), OUTPUT_TOKENS)
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        return (read_stream(body) if stream else read_whole(json.loads(body)),)

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return check(body)

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The official SDK's reading."""
        return (_view(_ask(body, stream=stream)),)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own content blocks go back as they are, as agents do."""
        message = _ask(body, stream=stream)
        calls = [block for block in message.content if block.type == "tool_use"]
        answers: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": result} for call in calls]
        turns = [
            *messages(history, PLAIN),
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": answers or "Go on."},
        ]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        client.messages.create(
            model=MODEL, max_tokens=1024, messages=turns, tools=[_tool(name) for name in history.tools]
        )
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last assistant message; a thinking block must have its signature."""
        turn = next(turn for turn in reversed(json.loads(request)["messages"]) if turn["role"] == "assistant")
        blocks = turn["content"]
        assert all(block["signature"] for block in blocks if block["type"] == "thinking")
        made = [block for block in blocks if block["type"] == "tool_use"]
        calls = tuple(SeenCall(block["id"], block["name"], json.dumps(block["input"])) for block in made)
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return View(text, "".join(block["thinking"] for block in blocks if block["type"] == "thinking"), calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every tool_result block."""
        return [
            (block["tool_use_id"], _joined(block["content"]))
            for turn in json.loads(request)["messages"]
            if turn["role"] == "user" and isinstance(turn["content"], list)
            for block in turn["content"]
            if block["type"] == "tool_result"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The ids of the messages that start in a stream, or of the whole one."""
        if not stream:
            return {json.loads(body)["id"]}
        return {part["message"]["id"] for part in payloads(body) if part["type"] == "message_start"}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The usage of the final message."""
        usage = _ask(body, stream=stream).usage
        return usage.input_tokens, usage.output_tokens

    def error(self) -> bytes:
        """An error event."""
        error = {"type": "overloaded_error", "message": "Overloaded"}
        return _event("error", Quirks(), error=error)


def messages(history: History, style: Style) -> list[Any]:
    """The conversation as messages."""
    found: list[Any] = []
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [{"role": "user", "content": turn.text}]
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [_block(call) for call in turn.calls]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": [{"type": "text", "text": result}] if style.parts else result,
        }
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [{"role": "assistant", "content": [*said, *calls]}, {"role": "user", "content": results}]


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _tool(name: str) -> Any:
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    return {"name": name, "description": f"Runs {name}.", "input_schema": schema}


def _finish(items: Choice) -> str:
    return "tool_use" if any(isinstance(item, Call) for item in items) else "end_turn"


def _message(answer: Answer, items: Choice, finish: str | None, output_tokens: int) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.tag}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [_block(item) for item in items],
        "stop_reason": finish,
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                  "output_tokens": output_tokens},
    }  # fmt: skip


def _block(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"type": "text", "text": item.text}
        case Thinking():
            return {"type": "thinking", "thinking": item.text, "signature": item.signature}
        case Call():
            value = json.loads(item.arguments or "{}")
            return {"type": "tool_use", "id": item.id, "name": item.name, "input": value}


def _event(kind: str, quirks: Quirks, **fields: Any) -> bytes:
    return sse(payload({"type": kind, **fields}, quirks), quirks, kind)


def _empty(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"type": "text", "text": ""}
        case Thinking():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Call():
            return {"type": "tool_use", "id": item.id, "name": item.name, "input": {}}


def _deltas(item: Item, quirks: Quirks) -> list[dict[str, Any]]:
    match item:
        case Text(pieces):
            return [{"type": "text_delta", "text": piece} for piece in pieces]
        case Thinking(pieces, signature):
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            return [*thoughts, {"type": "signature_delta", "signature": signature}]
        case Call():
            pieces = (item.arguments,) if quirks.whole_calls else ("", *item.pieces)
            return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _block_frames(item: Item, at: int, quirks: Quirks) -> list[Frame]:
    opening = _event("content_block_start", quirks, index=at, content_block=_empty(item))
    pieces = [_event("content_block_delta", quirks, index=at, delta=delta) for delta in _deltas(item, quirks)]
    closing = _event("content_block_stop", quirks, index=at)
    return [
        Frame(opening, "open", 0, at),
        *(Frame(piece, "piece", 0, at) for piece in pieces),
        Frame(closing, "close", 0, at),
    ]


class _Vendor:
    """Stands where the socket would be: gives the SDK a body and keeps what the SDK sent."""

    def __init__(self) -> None:
        self.body, self.kind, self.asked = b"", "", b""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked = request.content
        return httpx2.Response(200, headers={"content-type": self.kind}, content=self.body)


@cache
def _client() -> tuple[anthropic.Anthropic, _Vendor]:
    vendor = _Vendor()
    http = httpx2.Client(transport=httpx2.MockTransport(vendor))
    client = anthropic.Anthropic(api_key="k", base_url="http://vendor.test", max_retries=0, http_client=http)
    return client, vendor


def _ask(body: bytes, *, stream: bool) -> Any:
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream" if stream else "application/json"
    question: Any = [{"role": "user", "content": "x"}]
    if not stream:
        return client.messages.create(model=MODEL, max_tokens=10, messages=question)
    with client.messages.stream(model=MODEL, max_tokens=10, messages=question) as reading:
        return reading.get_final_message()


def _view(message: Any) -> View:
    def of(kind: str) -> list[Any]:
        return [block for block in message.content if block.type == kind]

    calls = tuple(SeenCall(block.id, block.name, canonical(json.dumps(block.input))) for block in of("tool_use"))
    text = "".join(block.text for block in of("text"))
    return View(text, "".join(block.thinking for block in of("thinking")), calls, message.stop_reason)
