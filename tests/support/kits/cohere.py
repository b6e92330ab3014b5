"""Cohere's `/v2/chat`: requests, events, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import cohere
import httpx

from tests.support.model import (
    PLAIN,
    Answer,
    Call,
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

MODEL = "command-test"
USAGE = {
    "billed_units": {"input_tokens": 5, "output_tokens": 3},
    "tokens": {"input_tokens": 11, "output_tokens": 7},
    "cached_tokens": 2,
}


class CohereKit:
    """The `cohere-v2` dialect."""

    name = "cohere-v2"
    path = "/v2/chat"
    most_choices = 1
    late_text = False
    one_text = False
    stopped = "COMPLETE"
    called = "TOOL_CALL"
    may_lack_finish = False
    history_key = "messages"
    newlines = ("\n", "\r\n", "\r")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys, so that a rewrite would show."""
        body: dict[str, Any] = {
            "temperature": 1.0,
            "seed": 9007199254740993123,
            "messages": messages(history, style),
            "model": MODEL,
            "tools": [_tool(name) for name in history.tools],
            "stop_sequences": ["é\u2028"],
        }
        return client_json(body | {"stream": stream}, style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """Start, content blocks and calls, end, `[DONE]`."""
        quirks, items = answer.quirks, answer.choices[0]
        empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        frames = [Frame(_event("message-start", quirks, id=f"id-{answer.tag}", delta={"message": empty}), "start")]
        blocks = calls = 0
        for at, item in enumerate(items):
            if isinstance(item, Call):
                frames += _call_frames(item, at, calls, quirks)
                calls += 1
            else:
                frames += _block_frames(item, at, blocks, quirks)
                blocks += 1
        delta = {"finish_reason": _finish(items), **({"usage": USAGE} if answer.usage else {})}
        frames.append(Frame(_event("message-end", quirks, delta=delta), "finish", 0))
        frames.append(Frame(sse("[DONE]", quirks), "done"))
        comment = f": keep-alive{quirks.newline * 2}"
        return place_noise(frames, Frame(comment.encode(), "noise"), quirks)

    def whole(self, answer: Answer) -> bytes:
        """The one object."""
        items = answer.choices[0]
        content = [_block(item, item.text) for item in items if not isinstance(item, Call)]
        message: dict[str, Any] = {"role": "assistant"}
        message |= {"content": content} if content else {}
        calls = [_call(call) for call in answer.calls()]
        message |= {"tool_calls": calls} if calls else {}
        body = {"id": f"id-{answer.tag}", "finish_reason": _finish(items), "message": message, "usage": USAGE}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        if stream:
            return (read_message(*merged(payloads(body))),)
        answer = json.loads(body)
        return (read_message(answer["message"], answer["finish_reason"]),)

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return check(body)

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The official SDK's reading."""
        message, finish, _ = _ask(body, stream=stream)
        return (read_message(message, finish),)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own message goes back as it is, as agents do."""
        message, _, _ = _ask(body, stream=stream)
        answers: list[Any] = [
            {"role": "tool", "tool_call_id": call["id"], "content": result} for call in message.get("tool_calls") or ()
        ]
        turns = [*messages(history, PLAIN), message, *(answers or [{"role": "user", "content": "Go on."}])]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        client.chat(model=MODEL, messages=turns, tools=[_tool(name) for name in history.tools])
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last assistant message."""
        turn = next(turn for turn in reversed(json.loads(request)["messages"]) if turn["role"] == "assistant")
        view = read_message(turn, None)
        calls = tuple(
            SeenCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in turn.get("tool_calls") or ()
        )
        return View(view.text, view.thinking, calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every tool message."""
        return [
            (turn["tool_call_id"], _joined(turn["content"]))
            for turn in json.loads(request)["messages"]
            if turn["role"] == "tool"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The id."""
        return {part["id"] for part in (payloads(body) if stream else [json.loads(body)]) if "id" in part}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The counts at the end; what is billed follows them."""
        usage = _ask(body, stream=stream)[2]
        if not usage:
            return None
        assert usage["billed_units"]["output_tokens"] * 7 == usage["tokens"]["output_tokens"] * 3
        return int(usage["tokens"]["input_tokens"]), int(usage["tokens"]["output_tokens"])

    def error(self) -> bytes:
        """An end that is none."""
        return _event("message-end", Quirks(), delta={"finish_reason": "ERROR", "error": "the server had an error"})


def messages(history: History, style: Style) -> list[Any]:
    """The conversation as chat messages."""
    found: list[Any] = [{"role": "system", "content": "You are a careful agent \u00e9\u2603."}]
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [{"role": "user", "content": turn.text}]
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    if not turn.calls:
        return [{"role": "assistant", "content": turn.text}]
    said = {"tool_plan": turn.text} if turn.text else {}
    results = [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": [{"type": "text", "text": result}] if style.parts else result,
        }
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [{"role": "assistant", **said, "tool_calls": [_call(call) for call in turn.calls]}, *results]


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": f"Runs {name}.", "parameters": parameters}}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish(items: tuple[Item, ...]) -> str:
    return "TOOL_CALL" if any(isinstance(item, Call) for item in items) else "COMPLETE"


def _block(item: Text | Thinking, text: str) -> dict[str, str]:
    kind = "text" if isinstance(item, Text) else "thinking"
    return {"type": kind, kind: text}


def _event(kind: str, quirks: Quirks, **more: Any) -> bytes:
    return sse(payload({"type": kind, **more}, quirks), quirks, kind)


def _block_frames(item: Text | Thinking, at: int, index: int, quirks: Quirks) -> list[Frame]:
    key = "text" if isinstance(item, Text) else "thinking"
    start = {"message": {"content": _block(item, "")}}
    frames = [Frame(_event("content-start", quirks, index=index, delta=start), "open", 0, at)]
    for piece in item.pieces:
        delta = {"message": {"content": {key: piece}}}
        frames.append(Frame(_event("content-delta", quirks, index=index, delta=delta), "piece", 0, at))
    return [*frames, Frame(_event("content-end", quirks, index=index), "close", 0, at)]


def _call_frames(call: Call, at: int, index: int, quirks: Quirks) -> list[Frame]:
    opening, rest = (call.arguments, ()) if quirks.whole_calls else ("", call.pieces)
    head = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": opening}}
    start = {"message": {"tool_calls": head}}
    frames = [Frame(_event("tool-call-start", quirks, index=index, delta=start), "open", 0, at)]
    for piece in rest:
        delta = {"message": {"tool_calls": {"function": {"arguments": piece}}}}
        frames.append(Frame(_event("tool-call-delta", quirks, index=index, delta=delta), "piece", 0, at))
    return [*frames, Frame(_event("tool-call-end", quirks, index=index), "close", 0, at)]


@cache
def _client() -> tuple[cohere.ClientV2, SDKVendor]:
    vendor = SDKVendor(httpx.Response)
    http = httpx.Client(transport=httpx.MockTransport(vendor))
    return cohere.ClientV2("k", base_url="http://vendor.test", httpx_client=http), vendor


def _ask(body: bytes, *, stream: bool) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
    """Message, finish reason and usage, as the SDK has them."""
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream" if stream else "application/json"
    question: Any = [{"role": "user", "content": "x"}]
    if not stream:
        answer = client.chat(model=MODEL, messages=question)
        usage = answer.usage.model_dump(exclude_none=True) if answer.usage else {}
        return answer.message.model_dump(exclude_none=True), answer.finish_reason, usage
    events = [event.model_dump(exclude_none=True) for event in client.chat_stream(model=MODEL, messages=question)]
    message, finish = merged(events)
    return message, finish, events[-1]["delta"].get("usage") or {}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def merged(parts: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The message that the events come to, and its finish reason; there is no accumulator in the SDK."""
    blocks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    plan, finish = "", None
    for part in parts:
        message = (part.get("delta") or {}).get("message") or {}
        match part["type"]:
            case "content-start":
                assert part["index"] == len(blocks)
                blocks.append(dict(message["content"]))
            case "content-delta":
                for key, value in message["content"].items():
                    blocks[part["index"]][key] = blocks[part["index"]].get(key, "") + value
            case "tool-plan-delta":
                plan += message["tool_plan"]
            case "tool-call-start":
                assert part["index"] == len(calls)
                call = message["tool_calls"]
                calls.append({**call, "function": dict(call["function"])})
            case "tool-call-delta":
                calls[part["index"]]["function"]["arguments"] += message["tool_calls"]["function"]["arguments"]
            case "message-end":
                finish = part["delta"]["finish_reason"]
    whole = {"role": "assistant", "tool_plan": plan, "content": blocks, "tool_calls": calls}
    return {key: value for key, value in whole.items() if value}, finish


def read_message(message: dict[str, Any], finish: str | None) -> View:
    """What a client has of it."""
    content = message.get("content") or []
    blocks = [{"text": content}] if isinstance(content, str) else content
    calls = tuple(
        SeenCall(call["id"], call["function"]["name"], canonical(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    return View(
        (message.get("tool_plan") or "") + "".join(block.get("text") or "" for block in blocks),
        "".join(block.get("thinking") or "" for block in blocks),
        calls,
        finish,
    )


def check(body: bytes) -> list[str]:
    """What is wrong with a stream."""
    listed = events(body)
    if not listed or listed[-1].data != "[DONE]":
        return ["no [DONE] at the end"]
    parts = payloads(body)
    kinds = [part["type"] for part in parts]
    found = [f"{event.name} is {part['type']}" for event, part in zip(listed, parts, strict=False)
             if event.name != part["type"]]  # fmt: skip
    if kinds.count("message-start") != 1 or kinds[0] != "message-start":
        found.append("the message does not start once, at first")
    if kinds.count("message-end") != 1 or kinds[-1] != "message-end":
        found.append("the message does not end once, at last")
    for kind in ("content", "tool-call"):
        found += _spans([part for part in parts if part["type"].startswith(f"{kind}-")], kind)
    called = "tool-call-start" in kinds
    if parts[-1]["delta"].get("finish_reason") != ("TOOL_CALL" if called else "COMPLETE"):
        found.append(f"finish reason {parts[-1]['delta'].get('finish_reason')}")
    return found


def _spans(parts: list[dict[str, Any]], kind: str) -> list[str]:
    """Each block or call starts, grows and ends, one after the other, counted from 0."""
    found = []
    indexes = [part["index"] for part in parts if part["type"] == f"{kind}-start"]
    if indexes != list(range(len(indexes))):
        found.append(f"{kind}s are counted {indexes}")
    for index in indexes:
        own = [part["type"] for part in parts if part["index"] == index]
        if own[0] != f"{kind}-start" or own[-1] != f"{kind}-end" or own.count(f"{kind}-end") != 1:
            found.append(f"{kind} {index}: {own}")
    return found
