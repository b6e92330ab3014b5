"""Ollama's `/api/chat`: requests, lines, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream. Calls come whole. The SDK leaves
ids out; where a view needs them they are taken from the wire, in order.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import httpx
import ollama

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
from tests.support.render import client_json, dumps
from tests.support.sdk import SDKVendor

MODEL = "llama-test"
TOKENS = {"total_duration": 5000000, "load_duration": 100, "prompt_eval_count": 11, "prompt_eval_duration": 900,
          "eval_count": 7, "eval_duration": 800}  # fmt: skip


class OllamaKit:
    """The `ollama` dialect."""

    name = "ollama"
    path = "/api/chat"
    most_choices = 1
    late_text = True
    one_text = True
    stopped = "stop"
    called = "stop"
    may_lack_finish = False
    history_key = "messages"
    newlines = ("\n", "\r\n")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys; a stream need not be asked for."""
        body: dict[str, Any] = {
            "options": {"temperature": 1.0, "seed": 9007199254740993123, "stop": ["é\u2028"]},
            "messages": messages(history),
            "model": MODEL,
            "tools": [_tool(name) for name in history.tools],
        }
        return client_json(body | ({} if stream else {"stream": False}), style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """A line a piece, a line a call, and the line that ends it."""
        items, quirks = answer.choices[0], answer.quirks
        frames: list[Frame] = []
        number = 0
        for at, item in enumerate(items):
            if isinstance(item, Call):
                call = {"content": "", "tool_calls": [_call(item, number)]}
                frames.append(Frame(_line(answer, call), "open", 0, at))
                number += 1
            else:
                frames += [Frame(_line(answer, _said(item, piece)), "piece", 0, at) for piece in item.pieces if piece]
        more = {"done": True, "done_reason": "stop", **(TOKENS if answer.usage else {})}
        frames.append(Frame(_line(answer, {"content": ""}, **more), "finish", 0))
        silent = Frame(_line(answer, {"content": ""}), "noise")
        for place in sorted({1 + place % max(len(frames) - 1, 1) for place in quirks.noise}, reverse=True):
            frames.insert(place, silent)
        return tuple(frames)

    def whole(self, answer: Answer) -> bytes:
        """The one object."""
        items = answer.choices[0]
        message: dict[str, Any] = {"role": "assistant", "content": _text(items, Text)}
        thinking, calls = _text(items, Thinking), answer.calls()
        message |= {"thinking": thinking} if thinking else {}
        message |= {"tool_calls": [_call(call, at) for at, call in enumerate(calls)]} if calls else {}
        body = {**_head(answer), "message": message, "done_reason": "stop", "done": True, **TOKENS}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        return (read_message(lines(body) if stream else [json.loads(body)]),)

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return check(body)

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The official SDK's reading, with the ids that stand on the wire."""
        message, end = _ask(body, stream=stream)
        (wire,) = self.read(body, stream=stream)
        made = [call.function for call in message.tool_calls or []]
        calls = tuple(
            SeenCall(seen.id, call.name, canonical(json.dumps(dict(call.arguments))))
            for seen, call in zip(wire.calls, made, strict=True)
        )
        return (View(message.content or "", message.thinking or "", calls, end.done_reason),)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own message goes back as it is, as agents do; results name their tool."""
        message, _ = _ask(body, stream=stream)
        answers: list[Any] = [
            {"role": "tool", "tool_name": call.function.name, "content": result} for call in message.tool_calls or []
        ]
        turns = [*messages(history), message, *(answers or [{"role": "user", "content": "Go on."}])]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        client.chat(MODEL, turns, tools=[_tool(name) for name in history.tools])
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last assistant message."""
        turn = next(turn for turn in reversed(json.loads(request)["messages"]) if turn["role"] == "assistant")
        made = [(call.get("id", ""), call["function"]) for call in turn.get("tool_calls") or ()]
        calls = tuple(SeenCall(call_id, what["name"], json.dumps(what["arguments"])) for call_id, what in made)
        return View(turn["content"] or "", turn.get("thinking") or "", calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every tool message."""
        return [
            (turn.get("tool_call_id", ""), turn["content"])
            for turn in json.loads(request)["messages"]
            if turn["role"] == "tool"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The models of the lines: there are no ids."""
        return {part["model"] for part in (lines(body) if stream else [json.loads(body)])}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The counts at the end."""
        return usage_of(_ask(body, stream=stream)[1])

    def error(self) -> bytes:
        """An error in a line's place."""
        return b'{"error":"an error was encountered while running the model"}\n'


def messages(history: History) -> list[Any]:
    """The conversation as chat messages."""
    found: list[Any] = [{"role": "system", "content": "You are a careful agent \u00e9\u2603."}]
    for turn in history.turns:
        found += _round(turn) if isinstance(turn, Round) else [{"role": "user", "content": turn.text}]
    return found


def _round(turn: Round) -> list[dict[str, Any]]:
    calls = [_call(call, at) for at, call in enumerate(turn.calls)]
    results = [
        {"role": "tool", "tool_call_id": call.id, "tool_name": call.name, "content": result}
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [{"role": "assistant", "content": turn.text, "tool_calls": calls}, *results]


def _tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": f"Runs {name}.", "parameters": parameters}}


def _call(call: Call, number: int) -> dict[str, Any]:
    arguments = json.loads(call.arguments or "{}")
    return {"id": call.id, "function": {"index": number, "name": call.name, "arguments": arguments}}


def _said(item: Text | Thinking, piece: str) -> dict[str, Any]:
    return {"content": piece} if isinstance(item, Text) else {"content": "", "thinking": piece}


def _text(items: tuple[Item, ...], kind: type[Text] | type[Thinking]) -> str:
    return "".join(item.text for item in items if isinstance(item, kind))


def _head(answer: Answer) -> dict[str, Any]:
    return {"model": f"{MODEL}:{answer.tag}", "created_at": "2026-01-02T03:04:05.678901Z"}


def _line(answer: Answer, message: dict[str, Any], **end: Any) -> bytes:
    """A line as Go writes it: line separators inside of strings are escaped."""
    quirks: Quirks = answer.quirks
    message = {"role": "assistant", **message, **({"images": None} if quirks.nulls else {})}
    text = dumps({**_head(answer), "message": message, **(end or {"done": False})}, spaced=quirks.spaced)
    return (text.replace("\u2028", "\\u2028") + quirks.newline).encode()


@cache
def _client() -> tuple[ollama.Client, SDKVendor]:
    vendor = SDKVendor(httpx.Response)
    return ollama.Client("http://vendor.test", transport=httpx.MockTransport(vendor)), vendor


def _ask(body: bytes, *, stream: bool) -> tuple[ollama.Message, ollama.ChatResponse]:
    """The message that an agent puts together from the SDK's parts, and the last part."""
    client, vendor = _client()
    vendor.body, vendor.kind = body, "application/x-ndjson" if stream else "application/json"
    question = [{"role": "user", "content": "x"}]
    if not stream:
        answer = client.chat(MODEL, question)
        return answer.message, answer
    parts = list(client.chat(MODEL, question, stream=True))
    return merged(parts), parts[-1]


def lines(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [json.loads(line) for line in body.split(b"\n") if line.strip()]


def read_message(parts: Sequence[dict[str, Any]]) -> View:
    """What a client has at the end."""
    said = [part["message"] for part in parts if "message" in part]
    calls = [call for message in said for call in message.get("tool_calls") or []]
    return View(
        "".join(message.get("content") or "" for message in said),
        "".join(message.get("thinking") or "" for message in said),
        tuple(_seen(call) for call in calls),
        next((part.get("done_reason") for part in parts if part.get("done")), None),
    )


def _seen(call: dict[str, Any]) -> SeenCall:
    function = call["function"]
    return SeenCall(call.get("id", ""), function["name"], canonical(json.dumps(function["arguments"])))


def merged(parts: Iterable[ollama.ChatResponse]) -> ollama.Message:
    """One message of many, as the SDK's own examples do it."""
    content, thinking = "", ""
    calls: list[ollama.Message.ToolCall] = []
    for part in parts:
        content += part.message.content or ""
        thinking += part.message.thinking or ""
        calls += part.message.tool_calls or []
    return ollama.Message(role="assistant", content=content, thinking=thinking or None, tool_calls=calls or None)


def usage_of(end: ollama.ChatResponse) -> tuple[int, int] | None:
    """Input and output tokens."""
    if end.prompt_eval_count is None or end.eval_count is None:
        return None
    return end.prompt_eval_count, end.eval_count


def check(body: bytes) -> list[str]:
    """What is wrong with a stream."""
    if not body.endswith(b"\n"):
        return ["the last line has no end"]
    parts = lines(body)
    found = [f"line {at} has no {key}" for at, part in enumerate(parts) for key in _REQUIRED if key not in part]
    if found:
        return found
    if [bool(part["done"]) for part in parts] != [False] * (len(parts) - 1) + [True]:
        found.append("`done` is not said once, at the end")
    if not parts[-1].get("done_reason"):
        found.append("no done reason")
    if any(part["message"].get("role") != "assistant" for part in parts):
        found.append("a message of another role")
    if len({part["model"] for part in parts if part["model"]}) != 1:
        found.append("more than one model")
    calls = [call for part in parts for call in part["message"].get("tool_calls") or []]
    indexes = [call["function"]["index"] for call in calls if "index" in call["function"]]
    if indexes != list(range(len(indexes))):
        found.append(f"call indexes {indexes}")
    if any(part["message"].get("tool_calls") == [] for part in parts):
        found.append("an empty list of calls")
    return found


_REQUIRED = ("model", "created_at", "message", "done")
