"""Anthropic messages: requests, events, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import anthropic
import httpx2

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
    back = [{"role": "user", "content": results}] if results else []
    return [{"role": "assistant", "content": [*said, *calls]}, *back]


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


@cache
def _client() -> tuple[anthropic.Anthropic, SDKVendor]:
    vendor = SDKVendor(httpx2.Response)
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


DELTA_OF = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but pings."""
    found = [json.loads(event.data) for event in events(body)]
    return [part for part in found if part["type"] != "ping"]


def read_stream(body: bytes) -> View:
    """A stream put together."""
    blocks: dict[int, dict[str, Any]] = {}
    finish = None
    for part in payloads(body):
        match part["type"]:
            case "content_block_start":
                blocks[part["index"]] = {**part["content_block"], "json": ""}
            case "content_block_delta":
                _extend(blocks[part["index"]], part["delta"])
            case "message_delta":
                finish = part["delta"].get("stop_reason")
            case _:
                continue
    return _view_of([blocks[at] for at in sorted(blocks)], finish)


def _extend(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "input_json_delta":
            block["json"] += delta["partial_json"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case other:
            raise ValueError(f"no delta is called {other}")


def read_whole(body: dict[str, Any]) -> View:
    """A whole answer."""
    blocks = [{**block, "json": json.dumps(block.get("input"))} for block in body["content"]]
    return _view_of(blocks, body["stop_reason"])


def _view_of(blocks: list[dict[str, Any]], finish: str | None) -> View:
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    made = [block for block in blocks if block["type"] == "tool_use"]
    calls = tuple(SeenCall(block["id"], block["name"], canonical(block["json"])) for block in made)
    return View(text, thinking, calls, finish)


def check(body: bytes) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    named = [event.name for event in events(body)]
    typed = [json.loads(event.data)["type"] for event in events(body)]
    faults = [] if named == typed else ["an event's name is not its type"]
    parts = payloads(body)
    return [*faults, *_outline(parts), *_blocks(parts), *_finish_faults(parts)]


def _outline(parts: list[dict[str, Any]]) -> Iterable[str]:
    kinds = [part["type"] for part in parts]
    calls = any(part.get("content_block", {}).get("type") == "tool_use" for part in parts)
    if calls and "message_delta" not in kinds:
        kinds.insert(-1, "message_delta")  # some vendors leave it out behind calls
    if kinds[:1] != ["message_start"] or kinds.count("message_start") != 1:
        yield "not one message_start at the front"
    if kinds[-2:] != ["message_delta", "message_stop"]:
        yield f"ends in {kinds[-2:]}"
    if kinds.count("message_delta") != 1 or kinds.count("message_stop") != 1:
        yield "not one message_delta and one message_stop"


def _blocks(parts: list[dict[str, Any]]) -> Iterable[str]:
    current: dict[str, Any] | None = None
    opened, called = 0, False
    for part in parts:
        kind = part["type"]
        if kind == "content_block_start":
            block = part["content_block"]
            if current is not None or part["index"] != opened:
                yield f"block {part['index']} opens out of turn (the next is {opened})"
            if called and block["type"] != "tool_use":
                yield f"{block['type']} after tool_use"
            current, opened, called = part, opened + 1, called or block["type"] == "tool_use"
        elif kind.startswith("content_block"):
            if current is None or part["index"] != current["index"]:
                yield f"{kind} for block {part['index']}, which is not open"
            elif kind == "content_block_stop":
                current = None
            elif part["delta"]["type"] not in DELTA_OF[current["content_block"]["type"]]:
                yield f"{part['delta']['type']} in a {current['content_block']['type']} block"
        elif kind == "message_delta" and current is not None:
            yield "message_delta within a block"


def _finish_faults(parts: list[dict[str, Any]]) -> Iterable[str]:
    blocks = [part["content_block"]["type"] for part in parts if part["type"] == "content_block_start"]
    deltas = [part for part in parts if part["type"] == "message_delta"]
    wanted = "tool_use" if "tool_use" in blocks else "end_turn"
    for delta in deltas:
        if delta["delta"].get("stop_reason") != wanted:
            yield f"stop_reason {delta['delta'].get('stop_reason')} where {wanted} belongs"
        if "output_tokens" not in delta["usage"] or "stop_sequence" not in delta["delta"]:
            yield "message_delta lacks a field that the SDK's type requires"
    if "thinking" in blocks[1:] and blocks[0] != "thinking":
        yield "thinking does not come first"
