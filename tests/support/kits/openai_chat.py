"""OpenAI chat completions: requests, chunks, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream. The own reading keeps calls
apart by (choice, index); without an index by id, else a name opens a call.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, zip_longest
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
USUAL = Quirks()
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
            {"index": at, "message": _message(items, answer.quirks), "logprobs": None, "finish_reason": _finish(items)}
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
        calls = tuple(SeenCall(call["id"], *_inner(call)) for call in turn.get("tool_calls") or ())
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
    said = {"role": "assistant", "content": turn.text or None} | ({"tool_calls": calls} if calls else {})
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


def _call(call: Call, quirks: Quirks = USUAL) -> dict[str, Any]:
    if quirks.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _inner(call: dict[str, Any]) -> tuple[str, str]:
    """Name and arguments of a call, or of a fragment of one."""
    if "custom" in call:
        return call["custom"].get("name") or "", call["custom"].get("input") or ""
    function = call.get("function") or {}
    return function.get("name") or "", function.get("arguments") or ""


def _finish(items: tuple[Item, ...]) -> str:
    return "tool_calls" if any(isinstance(item, Call) for item in items) else "stop"


def _message(items: tuple[Item, ...], quirks: Quirks) -> dict[str, Any]:
    text = "".join(item.text for item in items if isinstance(item, Text))
    thinking = "".join(item.text for item in items if isinstance(item, Thinking))
    calls = [_call(item, quirks) for item in items if isinstance(item, Call)]
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
        if quirks.details and isinstance(item, Call) and not number:
            deltas.append(({"reasoning_details": [_signature(item)]}, "open", at))
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
            more: dict[str, Any] = {"refusal": None, "tool_calls": None} if quirks.nulls else {}
            more |= {"channel": "final", "token_id": 7} if quirks.extras else {}
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
    head: dict[str, Any] = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": opening}}
    again: dict[str, Any] = {"id": call.id} if quirks.repeat_id else {"id": ""} if quirks.empty_id else {}
    name = {"name": call.name} if quirks.repeat_id else {"name": ""} if quirks.empty_id else {}
    null = {"content": None} if quirks.nulls else {}
    if quirks.custom:
        head |= {"type": "custom", "custom": {"name": call.name, "input": opening}}
        del head["function"]
    return [
        ({**null, "tool_calls": [{**index, **head}]}, "open"),
        *(({**null, "tool_calls": [{**index, **again, **_piece(name, piece, quirks)}]}, "piece") for piece in rest),
    ]


def _piece(name: dict[str, str], piece: str, quirks: Quirks) -> dict[str, Any]:
    return {"custom": {**name, "input": piece}} if quirks.custom else {"function": {**name, "arguments": piece}}


def _signature(call: Call) -> dict[str, Any]:
    """The detail that holds the signature of a call."""
    return {"type": "reasoning.encrypted", "data": "c2ln", "format": "google-gemini-v1", "id": call.id, "index": 0}


@cache
def _client() -> tuple[openai.OpenAI, SDKVendor]:
    vendor = SDKVendor(httpx2.Response)
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


def sdk_chunks(body: bytes) -> list[Any]:
    """The chunks of a stream as the official SDK gives them, without its helper, which knows functions only."""
    client, vendor = _client()
    vendor.body, vendor.kind = body, "text/event-stream"
    return list(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], stream=True))


def _view(choice: Any) -> View:
    message = choice.message
    made = [(call.id, _inner(call.model_dump())) for call in message.tool_calls or []]
    calls = tuple(SeenCall(call_id, name, canonical(arguments)) for call_id, (name, arguments) in made)
    thinking = getattr(message, "reasoning_content", None) or ""
    return View(message.content or "", thinking, calls, choice.finish_reason)


ENVELOPE = ("id", "object", "created", "model", "choices")


@dataclass(slots=True)
class _OpenCall:
    index: int | None
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class _Choice:
    text: str = ""
    thinking: str = ""
    calls: list[_OpenCall] = field(default_factory=list)
    finish: str | None = None

    def take(self, fragment: dict[str, Any]) -> None:
        """Join one fragment of a call to the call that it belongs to."""
        index, (name, arguments) = fragment.get("index"), _inner(fragment)
        call_id = fragment.get("id") or ""
        call = self._known(index, call_id, name)
        if call is None:
            call = _OpenCall(index, call_id, name)
            self.calls.append(call)
        call.arguments += arguments

    def _known(self, index: int | None, call_id: str, name: str) -> _OpenCall | None:
        if index is not None:
            same = [call for call in self.calls if call.index == index]
            return same[-1] if same and (not call_id or same[-1].id == call_id) else None
        same = [call for call in self.calls if call_id and call.id == call_id]
        if same:
            return same[-1]
        return None if name or not self.calls else self.calls[-1]

    def view(self) -> View:
        """What the client has."""
        calls = tuple(SeenCall(call.id, call.name, canonical(call.arguments)) for call in self.calls)
        return View(self.text, self.thinking, calls, self.finish)


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but `[DONE]`."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def read_stream(body: bytes) -> tuple[View, ...]:
    """A stream put together."""
    choices: dict[int, _Choice] = {}
    for part in (choice for chunk in payloads(body) for choice in chunk.get("choices") or []):
        choice = choices.setdefault(part["index"], _Choice())
        delta = part.get("delta") or {}
        choice.text += delta.get("content") or ""
        choice.thinking += delta.get("reasoning_content") or ""
        for fragment in delta.get("tool_calls") or []:
            choice.take(fragment)
        choice.finish = part.get("finish_reason") or choice.finish
    return tuple(choices[at].view() for at in sorted(choices))


def read_whole(body: dict[str, Any]) -> tuple[View, ...]:
    """A whole answer."""
    return tuple(_whole(choice) for choice in body["choices"])


def _whole(choice: dict[str, Any]) -> View:
    message = choice["message"]
    calls = tuple(
        SeenCall(call["id"], name, canonical(arguments))
        for call in message.get("tool_calls") or []
        for name, arguments in (_inner(call),)
    )
    return View(
        message.get("content") or "", message.get("reasoning_content") or "", calls, choice.get("finish_reason")
    )


def usage_of(chunks: list[dict[str, Any]]) -> tuple[int, int] | None:
    """Input and output tokens by the last usage."""
    found = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return (found[-1]["prompt_tokens"], found[-1]["completion_tokens"]) if found else None


def check(body: bytes) -> list[str]:
    """The rules of a stream of chunks; an empty list means that it is valid."""
    return [*_envelopes(payloads(body)), *_ends(body), *_choices(payloads(body))]


def _envelopes(chunks: list[dict[str, Any]]) -> Iterable[str]:
    for chunk in chunks:
        if missing := [key for key in ENVELOPE if key not in chunk]:
            yield f"a chunk lacks {missing}"
    for key in ("id", "created", "model", "system_fingerprint"):
        if len({chunk.get(key) for chunk in chunks}) > 1:
            yield f"{key} changes within the stream"
    if any(chunk.get("usage") for chunk in chunks[:-1]):
        yield "usage comes before the end"


def _ends(body: bytes) -> Iterable[str]:
    at = [place for place, event in enumerate(events(body)) if event.data == "[DONE]"]
    if at != [len(events(body)) - 1]:
        yield f"[DONE] stands at {at} of {len(events(body))} events"


def _choices(chunks: list[dict[str, Any]]) -> Iterable[str]:
    parts = [choice for chunk in chunks for choice in chunk.get("choices") or []]
    for number in {part["index"] for part in parts}:
        yield from _choice(number, [part for part in parts if part["index"] == number])


def _choice(number: int, parts: list[dict[str, Any]]) -> Iterable[str]:
    fragments = [fragment for part in parts for fragment in part["delta"].get("tool_calls") or []]
    finishes = [at for at, part in enumerate(parts) if part.get("finish_reason")]
    if finishes != [len(parts) - 1] and (finishes or not fragments):  # vendors leave it out, but only behind calls
        yield f"choice {number}: finish reasons at {finishes} of {len(parts)} parts"
    if sum("role" in part["delta"] for part in parts) != 1:
        yield f"choice {number}: not one role"
    indexes = [fragment.get("index") for fragment in fragments if "index" in fragment]
    firsts = list(dict.fromkeys(indexes))
    if firsts != list(range(len(firsts))):
        yield f"choice {number}: call indexes {firsts}"
    opened = {fragment.get("index") for fragment in fragments if _inner(fragment)[0]}
    if opened != {fragment.get("index") for fragment in fragments}:
        yield f"choice {number}: a call without a name"
    wanted = "tool_calls" if fragments else "stop"
    if finishes and parts[-1]["finish_reason"] != wanted:
        yield f"choice {number}: finish reason {parts[-1]['finish_reason']} where {wanted} belongs"
