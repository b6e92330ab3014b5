"""OpenAI Responses: requests, event streams, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream. Requests are those
of a client that keeps its own history (`store: false`); chains have tests of their own. A client may read the items as
they end, or the terminal event's output: both must say the same.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import Any

import httpx2
import openai

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

MODEL = "gpt-test"
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


class OpenAIResponsesKit:
    """The `openai-responses` dialect."""

    name = "openai-responses"
    path = "/v1/responses"
    most_choices = 1
    late_text = True
    one_text = False
    stopped = "completed"
    called = "completed"
    may_lack_finish = False
    history_key = "input"
    newlines = ("\n", "\r\n", "\r")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys, so that a rewrite would show."""
        body: dict[str, Any] = {
            "temperature": 1.0,
            "instructions": "You are a careful agent é\u2028.",
            "input": turns(history, style),
            "model": MODEL,
            "store": False,
            "tools": [_tool(name) for name in history.tools],
            "include": ["reasoning.encrypted_content"],
            "metadata": {"number": 9007199254740993123},
        }
        return client_json(body | ({"stream": True} if stream else {}), style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """The response begins, its items begin, grow and end, the response ends."""
        frames = []
        for number, (event, kind, item) in enumerate(_events(answer)):
            event = {"type": event["type"], "sequence_number": number} | event
            name = "" if answer.quirks.empty_id else event["type"]
            raw = sse(payload(event, answer.quirks), answer.quirks, name)
            frames.append(Frame(raw, kind, None if kind == "start" else 0, item))
        comment = f": keep-alive{answer.quirks.newline * 2}"
        return place_noise(frames, Frame(comment.encode(), "noise"), answer.quirks)

    def whole(self, answer: Answer) -> bytes:
        """The `response` object."""
        output = _items(answer)
        body = _response(answer, "completed") | {"output": output, "usage": USAGE}
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
        """The SDK's own output items go back as they are, as agents do."""
        output = _ask(body, stream=stream).output
        answers: list[dict[str, Any]] = [
            {"type": "function_call_output", "call_id": item.call_id, "output": result}
            for item in output
            if item.type == "function_call"
        ]
        spoken: Any = [*turns(history, PLAIN), *output, *(answers or [{"role": "user", "content": "Go on."}])]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        client.responses.create(model=MODEL, input=spoken, store=False, tools=[_tool(name) for name in history.tools])
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last items of the model's own; reasoning must have its encrypted content."""
        items = json.loads(request)["input"]
        while items[-1].get("type") == "function_call_output" or items[-1].get("role") == "user":
            items.pop()
        start = len(items)
        while items[start - 1].get("role") != "user" and items[start - 1]["type"] != "function_call_output":
            start -= 1
        assert all(item["encrypted_content"] for item in items[start:] if item["type"] == "reasoning")
        made = [item for item in items[start:] if item["type"] == "function_call"]
        calls = tuple(SeenCall(item["call_id"], item["name"], item["arguments"]) for item in made)
        text = "".join(part["text"] for item in items[start:] if item["type"] == "message" for part in item["content"])
        thought = [part["text"] for item in items[start:] if item["type"] == "reasoning" for part in item["summary"]]
        return View(text, "".join(thought), calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every function_call_output."""
        return [
            (item["call_id"], _joined(item["output"]))
            for item in json.loads(request)["input"]
            if item.get("type") == "function_call_output"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The ids of the response."""
        parts = [part["response"] for part in payloads(body) if "response" in part] if stream else [json.loads(body)]
        return {part["id"] for part in parts}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The usage of the final response."""
        usage = _ask(body, stream=stream).usage
        return usage.input_tokens, usage.output_tokens

    def error(self) -> bytes:
        """An error event."""
        error = {"type": "error", "sequence_number": 0, "code": "server_error", "message": "Oh no.", "param": None}
        return f"event: error\ndata: {json.dumps(error)}\n\n".encode()


def turns(history: History, style: Style) -> list[Any]:
    """The conversation as input items."""
    found: list[Any] = []
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [{"role": "user", "content": turn.text}]
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": turn.text}]}]
    calls = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in turn.calls
    ]
    results = [
        {
            "type": "function_call_output",
            "call_id": call.id,
            "output": [{"type": "input_text", "text": result}] if style.parts else result,
        }
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [*(said if turn.text else []), *calls, *results]


def _joined(output: Any) -> str:
    return output if isinstance(output, str) else "".join(part["text"] for part in output)


def _tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {}, "additionalProperties": True}
    return {"type": "function", "name": name, "description": f"Runs {name}.", "parameters": parameters, "strict": None}


def _response(answer: Answer, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.tag}",
        "object": "response",
        "created_at": 1760000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": MODEL,
        "output": [],
        "parallel_tool_calls": True,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _items(answer: Answer) -> list[dict[str, Any]]:
    """The items in full; their ids do not tell how many calls stand before them."""
    texts = accumulate(int(isinstance(item, Text)) for item in answer.choices[0])
    return [_item(item, f"{answer.tag}_{number}") for item, number in zip(answer.choices[0], texts, strict=True)]


def _item(item: Item, tag: str) -> dict[str, Any]:
    match item:
        case Text():
            head = {"id": f"msg_{tag}", "type": "message", "role": "assistant", "status": "completed"}
            return head | {"content": [_part(item.text)]}
        case Thinking():
            summary = [{"type": "summary_text", "text": item.text}]
            return {"id": f"rs_{tag}", "type": "reasoning", "summary": summary, "encrypted_content": item.signature}
        case Call():
            head = {"id": f"fc_{item.id}", "type": "function_call", "status": "completed"}
            return head | {"call_id": item.id, "name": item.name, "arguments": item.arguments}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _events(answer: Answer) -> Iterator[tuple[dict[str, Any], str, int | None]]:
    """Each event, what it is there for, and its item."""
    begun = _response(answer, "in_progress")
    yield {"type": "response.created", "response": begun}, "start", None
    yield {"type": "response.in_progress", "response": begun}, "start", None
    output = _items(answer)
    for at, (item, whole) in enumerate(zip(answer.choices[0], output, strict=True)):
        yield {"type": "response.output_item.added", "output_index": at, "item": whole | _empty(item)}, "open", at
        for event in _growth(item, answer.quirks):
            kind = "open" if event["type"].endswith("part.added") else "piece"
            more = {"obfuscation": "aXq"} if answer.quirks.nulls and event["type"].endswith(".delta") else {}
            yield {"type": event["type"], "item_id": whole["id"], "output_index": at} | event | more, kind, at
        yield {"type": "response.output_item.done", "output_index": at, "item": whole}, "close", at
    ended = _response(answer, "completed") | {"output": output, "usage": USAGE if answer.usage else None}
    yield {"type": "response.completed", "response": ended}, "finish", None


def _empty(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"status": "in_progress", "content": []}
        case Thinking():
            return {"summary": []}
        case Call():
            return {"status": "in_progress", "arguments": ""}


def _growth(item: Item, quirks: Quirks) -> list[dict[str, Any]]:
    match item:
        case Text(pieces):
            at: dict[str, Any] = {"content_index": 0}
            text: dict[str, Any] = at | {"logprobs": []}
            return [
                {"type": "response.content_part.added", "part": _part("")} | at,
                *({"type": "response.output_text.delta", "delta": piece} | text for piece in pieces),
                {"type": "response.output_text.done", "text": item.text} | text,
                {"type": "response.content_part.done", "part": _part(item.text)} | at,
            ]
        case Thinking(pieces):
            at = {"summary_index": 0}
            kind, part = "response.reasoning_summary_", {"type": "summary_text"}
            return [
                {"type": f"{kind}part.added", "part": part | {"text": ""}} | at,
                *({"type": f"{kind}text.delta", "delta": piece} | at for piece in pieces),
                {"type": f"{kind}text.done", "text": item.text} | at,
                {"type": f"{kind}part.done", "part": part | {"text": item.text}} | at,
            ]
        case Call(_, _, pieces):
            kind = "response.function_call_arguments."
            deltas = () if quirks.whole_calls else pieces
            return [
                *({"type": f"{kind}delta", "delta": piece} for piece in deltas),
                {"type": f"{kind}done", "arguments": item.arguments},
            ]


@cache
def _client() -> tuple[openai.OpenAI, SDKVendor]:
    vendor = SDKVendor(httpx2.Response)
    http = httpx2.Client(transport=httpx2.MockTransport(vendor))
    return openai.OpenAI(api_key="k", base_url="http://vendor.test/v1", max_retries=0, http_client=http), vendor


def _ask(body: bytes, *, stream: bool) -> Any:
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream" if stream else "application/json"
    if not stream:
        return client.responses.create(model=MODEL, input="x")
    with client.responses.stream(model=MODEL, input="x") as reading:
        return reading.get_final_response()


def _view(response: Any) -> View:
    def of(kind: str) -> list[Any]:
        return [item for item in response.output if item.type == kind]

    calls = tuple(SeenCall(call.call_id, call.name, canonical(call.arguments)) for call in of("function_call"))
    parts = [part for message in of("message") for part in message.content]
    text = "".join(part.text if part.type == "output_text" else part.refusal for part in parts)
    thinking = "".join(part.text for item in of("reasoning") for part in item.summary)
    return View(text, thinking, calls, response.status)


TERMINAL = ("response.completed", "response.incomplete", "response.failed")
GROWTH = {
    "message": ("content_part", "output_text", "refusal"),
    "reasoning": ("reasoning_summary_part", "reasoning_summary_text"),
    "function_call": ("function_call_arguments",),
}
FIELDS = {
    "response.output_item.added": ("output_index", "item"),
    "response.output_item.done": ("output_index", "item"),
    "response.content_part.added": ("item_id", "output_index", "content_index", "part"),
    "response.content_part.done": ("item_id", "output_index", "content_index", "part"),
    "response.output_text.delta": ("item_id", "output_index", "content_index", "delta", "logprobs"),
    "response.output_text.done": ("item_id", "output_index", "content_index", "text", "logprobs"),
    "response.refusal.delta": ("item_id", "output_index", "content_index", "delta"),
    "response.refusal.done": ("item_id", "output_index", "content_index", "refusal"),
}
ITEM_FIELDS = {
    "message": ("id", "role", "status", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "reasoning": ("id", "summary"),
}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def read_stream(body: bytes) -> View:
    """A stream put together from the ends of its items."""
    items: dict[int, dict[str, Any]] = {}
    finish = None
    for part in payloads(body):
        if part["type"] == "response.output_item.done":
            items[part["output_index"]] = part["item"]
        elif part["type"] in TERMINAL:
            finish = part["response"]["status"]
    return _view_of([items[at] for at in sorted(items)], finish)


def read_whole(body: dict[str, Any]) -> View:
    """A whole response."""
    return _view_of(body["output"], body["status"])


def _view_of(items: list[dict[str, Any]], finish: str | None) -> View:
    said = [part for item in items if item["type"] == "message" for part in item["content"]]
    thought = [part for item in items if item["type"] == "reasoning" for part in item["summary"]]
    calls = [item for item in items if item["type"] == "function_call"]
    return View(
        "".join(part.get("text") or part.get("refusal") or "" for part in said),
        "".join(part["text"] for part in thought),
        tuple(SeenCall(call["call_id"], call["name"], canonical(call["arguments"])) for call in calls),
        finish,
    )


def check(body: bytes) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    parts = payloads(body)
    named = [(event.name, json.loads(event.data)["type"]) for event in events(body)]
    faults = [f"{name} is called {kind}" for name, kind in named if name not in ("", kind)]
    return [*faults, *_outline(parts), *_fields(parts), *_item_faults(parts), *_ends(parts)]


def _outline(parts: list[dict[str, Any]]) -> Iterable[str]:
    kinds = [part["type"] for part in parts]
    if kinds[:2] != ["response.created", "response.in_progress"]:
        yield f"begins with {kinds[:2]}"
    if [at for at, kind in enumerate(kinds) if kind in TERMINAL] != [len(kinds) - 1]:
        yield "not one terminal event at the end"
    if [part.get("sequence_number") for part in parts] != list(range(len(parts))):
        yield f"sequence numbers {[part.get('sequence_number') for part in parts]}"
    for key in ("id", "created_at", "model"):
        if len({part["response"].get(key) for part in parts if "response" in part}) != 1:
            yield f"the response's {key} changes within the stream"


def _fields(parts: list[dict[str, Any]]) -> Iterable[str]:
    for part in parts:
        if missing := [key for key in FIELDS.get(part["type"], ()) if key not in part]:
            yield f"{part['type']} lacks {missing}"
        item = part.get("item") or {"type": ""}
        if missing := [key for key in ITEM_FIELDS.get(item["type"], ()) if key not in item]:
            yield f"a {item['type']} item lacks {missing}"


def _item_faults(parts: list[dict[str, Any]]) -> Iterable[str]:
    current: dict[str, Any] | None = None
    opened = 0
    for part in parts:
        kind = part["type"].removeprefix("response.").rpartition(".")[0]
        if part["type"] == "response.output_item.added":
            if current is not None or part["output_index"] != opened:
                yield f"item {part['output_index']} opens out of turn (the next is {opened})"
            current, opened = part, opened + 1
        elif "output_index" in part:
            if current is None or part["output_index"] != current["output_index"]:
                yield f"{part['type']} for item {part['output_index']}, which is not open"
            elif part["type"] == "response.output_item.done":
                if part["item"].get("id") != current["item"].get("id"):
                    yield "an item's id changes"
                current = None
            elif kind not in GROWTH[current["item"]["type"]] or part["item_id"] != current["item"]["id"]:
                yield f"{part['type']} in a {current['item']['type']} item"


def _ends(parts: list[dict[str, Any]]) -> Iterable[str]:
    done = [part["item"] for part in parts if part["type"] == "response.output_item.done"]
    ids = [item.get("id") for item in done]
    if len(set(ids)) != len(ids):
        yield f"an id stands twice: {ids}"
    if parts and parts[-1]["type"] in TERMINAL and parts[-1]["response"]["output"] != done:
        yield "the terminal event's output is not what was streamed"
