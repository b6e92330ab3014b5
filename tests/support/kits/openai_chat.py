"""OpenAI chat completions: requests, chunks, whole answers, and the official SDK's reading of them."""

import json
from functools import cache
from itertools import chain, zip_longest
from typing import Any

import httpx2
import openai

from tests.support.kits.openai_reading import check, payloads, read_stream, read_whole, usage_of
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

MODEL = "gpt-test"
TOKENS = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


class OpenAIChatKit:
    """The `openai-chat` dialect."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    most_choices = 2
    late_text = True
    one_text = True
    stopped = "stop"
    called = "tool_calls"
    may_lack_finish = True
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
            "stop": ["é\u2028"],
        }
        body |= {"n": n} if n > 1 else {}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return client_json(body, style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """Role, content, finish of every choice, then usage and `[DONE]`."""
        choices = [_choice_frames(answer, at) for at in range(len(answer.choices))]
        woven = chain.from_iterable(zip_longest(*choices)) if answer.quirks.interleave else chain(*choices)
        frames = [frame for frame in woven if frame is not None]
        if answer.usage:
            frames.append(Frame(_chunk(answer, [], usage=TOKENS), "usage"))
        frames.append(Frame(sse("[DONE]", answer.quirks), "done"))
        comment = f": keep-alive{answer.quirks.newline * 2}"
        return place_noise(frames, Frame(comment.encode(), "noise"), answer.quirks)

    def whole(self, answer: Answer) -> bytes:
        """The `chat.completion` object."""
        choices = [
            {"index": at, "message": _message(items), "logprobs": None, "finish_reason": _finish(items)}
            for at, items in enumerate(answer.choices)
        ]
        body = {**_envelope(answer, "chat.completion"), "choices": choices, "usage": TOKENS}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading, which knows the quirks."""
        return read_stream(body) if stream else read_whole(json.loads(body))

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return check(body)

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The official SDK's reading."""
        completion = _ask(body, stream=stream)
        return tuple(_view(choice) for choice in completion.choices)

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own message goes back as it is, as agents do."""
        message = _ask(body, stream=stream).choices[0].message
        answers: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": call.id, "content": result} for call in message.tool_calls or []
        ]
        turns = [*messages(history, PLAIN), message, *(answers or [{"role": "user", "content": "Go on."}])]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        client.chat.completions.create(
            model=MODEL, messages=turns, tools=[_tool(name) for name in history.tools], stream=False
        )
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The last assistant message."""
        turn = next(turn for turn in reversed(json.loads(request)["messages"]) if turn["role"] == "assistant")
        made = [(call["id"], call["function"]) for call in turn.get("tool_calls") or ()]
        calls = tuple(SeenCall(call_id, what["name"], what["arguments"]) for call_id, what in made)
        return View(turn["content"] or "", turn.get("reasoning_content") or "", calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every tool message."""
        return [
            (turn["tool_call_id"], _joined(turn["content"]))
            for turn in json.loads(request)["messages"]
            if turn["role"] == "tool"
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The ids of the chunks."""
        return {part["id"] for part in (payloads(body) if stream else [json.loads(body)])}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The last usage."""
        return usage_of(payloads(body) if stream else [json.loads(body)])

    def error(self) -> bytes:
        """An error object in a chunk's place."""
        return b'data: {"error":{"message":"The server had an error","type":"server_error","code":null}}\n\n'


def messages(history: History, style: Style) -> list[Any]:
    """The conversation as chat messages."""
    found: list[Any] = [{"role": "system", "content": "You are a careful agent \u00e9\u2603."}]
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [{"role": "user", "content": turn.text}]
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    calls = [_call(call) for call in turn.calls]
    said = {"role": "assistant", "content": turn.text or None, "tool_calls": calls}
    results: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": [{"type": "text", "text": result}] if style.parts else result,
        }
        for call, result in zip(turn.calls, turn.results, strict=True)
    ]
    return [said, *results]


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _tool(name: str) -> Any:
    parameters = {"type": "object", "properties": {}, "additionalProperties": True}
    function = {"name": name, "description": f"Runs {name}.", "parameters": parameters}
    return {"type": "function", "function": function}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _finish(items: tuple[Item, ...]) -> str:
    return "tool_calls" if any(isinstance(item, Call) for item in items) else "stop"


def _message(items: tuple[Item, ...]) -> dict[str, Any]:
    text = "".join(item.text for item in items if isinstance(item, Text))
    thinking = "".join(item.text for item in items if isinstance(item, Thinking))
    calls = [_call(item) for item in items if isinstance(item, Call)]
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    message |= {"reasoning_content": thinking} if thinking else {}
    return message | ({"tool_calls": calls} if calls else {})


def _envelope(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.tag}", "object": kind, "created": 1760000000, "model": MODEL,
            "system_fingerprint": "fp_1"}  # fmt: skip


def _chunk(answer: Answer, choices: list[dict[str, Any]], **more: Any) -> bytes:
    body = {**_envelope(answer, "chat.completion.chunk"), "choices": choices, **more}
    return sse(payload(body, answer.quirks), answer.quirks)


def _choice_frames(answer: Answer, choice: int) -> list[Frame]:
    items, quirks = answer.choices[choice], answer.quirks
    deltas: list[tuple[dict[str, Any], str, int | None]] = [({"role": "assistant", "content": ""}, "start", None)]
    number = 0
    for at, item in enumerate(items):
        deltas += [(delta, kind, at) for delta, kind in _deltas(item, number, quirks)]
        number += isinstance(item, Call)
    finish = None if quirks.no_finish and number else _finish(items)
    together = quirks.finish_with_last and len(deltas) > 1
    if not together:
        deltas.append(({}, "finish", None))
    last = len(deltas) - 1
    more = {"logprobs": None} if quirks.nulls else {}
    return [
        Frame(
            _chunk(
                answer,
                [{"index": choice, "delta": delta, **more, "finish_reason": finish if at == last else None}],
                **({"usage": None} if answer.usage else {}),
            ),
            kind,
            choice,
            item_at,
        )
        for at, (delta, kind, item_at) in enumerate(deltas)
    ]


def _deltas(item: Item, number: int, quirks: Quirks) -> list[tuple[dict[str, Any], str]]:
    match item:
        case Text(pieces):
            more = {"refusal": None, "tool_calls": None} if quirks.nulls else {}
            return [({"content": piece, **more}, "piece") for piece in pieces]
        case Thinking(pieces):
            return [({"reasoning_content": piece}, "piece") for piece in pieces]
        case Call():
            return _call_deltas(item, number, quirks)


def _call_deltas(call: Call, number: int, quirks: Quirks) -> list[tuple[dict[str, Any], str]]:
    index = {} if quirks.no_index else {"index": number}
    opening, rest = ("", call.pieces)
    if quirks.whole_calls or quirks.no_index:
        opening, rest = call.arguments, ()
    head = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": opening}}
    again: dict[str, Any] = {"id": call.id} if quirks.repeat_id else {"id": ""} if quirks.empty_id else {}
    name = {"name": call.name} if quirks.repeat_id else {"name": ""} if quirks.empty_id else {}
    null = {"content": None} if quirks.nulls else {}
    return [
        ({**null, "tool_calls": [{**index, **head}]}, "open"),
        *(
            ({**null, "tool_calls": [{**index, **again, "function": {**name, "arguments": piece}}]}, "piece")
            for piece in rest
        ),
    ]


class _Vendor:
    """Stands where the socket would be: gives the SDK a body and keeps what the SDK sent."""

    def __init__(self) -> None:
        self.body, self.kind, self.asked = b"", "", b""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked = request.content
        return httpx2.Response(200, headers={"content-type": self.kind}, content=self.body)


@cache
def _client() -> tuple[openai.OpenAI, _Vendor]:
    vendor = _Vendor()
    http = httpx2.Client(transport=httpx2.MockTransport(vendor))
    return openai.OpenAI(api_key="k", base_url="http://vendor.test/v1", max_retries=0, http_client=http), vendor


def _ask(body: bytes, *, stream: bool) -> Any:
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream" if stream else "application/json"
    question: Any = [{"role": "user", "content": "x"}]
    if not stream:
        return client.chat.completions.create(model=MODEL, messages=question)
    with client.chat.completions.stream(model=MODEL, messages=question) as reading:
        return reading.until_done().get_final_completion()


def _view(choice: Any) -> View:
    message = choice.message
    made = [(call.id, call.function) for call in message.tool_calls or []]
    calls = tuple(SeenCall(call_id, what.name, canonical(what.arguments)) for call_id, what in made)
    thinking = getattr(message, "reasoning_content", None) or ""
    return View(message.content or "", thinking, calls, choice.finish_reason)
