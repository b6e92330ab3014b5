"""Gemini: requests, chunks as events or as elements of an array, whole answers, and two readings of them.

In: neutral conversations and answers, and bodies. Out: bytes as the vendor and its clients write them; what a client
has of them by a reading of the tests' own, and by the SDK; the faults of a stream. A call comes whole,
or by name first and then in pieces, each at its JSONPath.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise, zip_longest
from typing import Any

import httpx2
from google import genai
from google.genai import types

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
from tests.support.render import client_json, dumps, place_noise
from tests.support.sdk import SDKVendor
from tests.support.wire import events

TOKENS = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
SO_FAR = {"promptTokenCount": 11, "totalTokenCount": 11}
MOST_EXACT = 2**53
"""Numbers in pieces of arguments are doubles."""


class GeminiKit:
    """The `gemini` dialect, streamed as server-sent events."""

    name = "gemini"
    path = "/v1beta/models/gemini-test:generateContent"
    stream_path = "/v1beta/models/gemini-test:streamGenerateContent"
    query = b"alt=sse"
    most_choices = 2
    late_text = True
    one_text = True
    stopped = "STOP"
    called = "STOP"
    may_lack_finish = False
    history_key = "contents"
    newlines: tuple[str, ...] = ("\n", "\r\n")

    def request(self, history: History, *, stream: bool, n: int = 1, style: Style = PLAIN) -> bytes:
        """A request with big numbers, floats and an uncommon order of keys; the path says whether it streams."""
        config: dict[str, Any] = {"temperature": 1.0, "seed": 9007199254740993123, "stopSequences": ["é\u2028"]}
        body: dict[str, Any] = {
            "generationConfig": config | ({"candidateCount": n} if n > 1 else {}),
            "systemInstruction": {"parts": [{"text": "You are a careful agent é\u2603."}]},
            "contents": contents(history, style),
            "tools": [{"functionDeclarations": [_tool(name) for name in history.tools]}],
        }
        return client_json(body, style)

    def frames(self, answer: Answer) -> tuple[Frame, ...]:
        """Chunks of each candidate, the last one with the finish reason and all usage."""
        choices = [_choice_frames(answer, at) for at in range(len(answer.choices))]
        woven = chain.from_iterable(zip_longest(*choices)) if answer.quirks.interleave else chain(*choices)
        frames = [
            Frame(self._framed(_chunk(answer, choice, parts, finish), answer.quirks, at), kind, choice, item)
            for at, (parts, kind, choice, item, finish) in enumerate(frame for frame in woven if frame is not None)
        ]
        return self._ended(frames, answer.quirks)

    def _framed(self, payload: dict[str, Any], quirks: Quirks, at: int) -> bytes:
        """A chunk as it stands in the stream."""
        end = quirks.newline
        return f"data: {escaped(payload, spaced=quirks.spaced)}{end}{end}".encode()

    def _ended(self, frames: list[Frame], quirks: Quirks) -> tuple[Frame, ...]:
        """The whole stream; blank lines keep it alive, for google-genai takes no comment."""
        return place_noise(frames, Frame((quirks.newline * 2).encode(), "noise"), quirks)

    def whole(self, answer: Answer) -> bytes:
        """The response object."""
        candidates = [
            {
                "content": {"parts": [_part(item) for item in items], "role": "model"},
                "finishReason": "STOP",
                "index": at,
            }
            for at, items in enumerate(answer.choices)
        ]
        body = {"candidates": candidates, "usageMetadata": TOKENS, **_head(answer)}
        return dumps(body, spaced=answer.quirks.spaced).encode()

    def read(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """The tests' own reading."""
        return merged(payloads(body) if stream else [json.loads(body)])

    def faults(self, body: bytes) -> list[str]:
        """What is wrong with a stream."""
        return check(payloads(body))

    def sdk(self, body: bytes, *, stream: bool) -> tuple[View, ...]:
        """What the official SDK gives its caller, put together."""
        return merged(chunk.model_dump(mode="json", by_alias=True, exclude_none=True) for chunk in _ask(body, stream))

    def replay(self, history: History, body: bytes, *, stream: bool, result: str) -> bytes:
        """The SDK's own parts go back as they are, as agents do; a call that came in pieces goes back whole."""
        parts = [part for part in _parts(_ask(body, stream)) if part.text != "" or part.thought_signature]
        answers = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": result})
            )
            for call in (part.function_call for part in parts)
            if call is not None
        ]
        turns: Any = [
            *contents(history, PLAIN),
            types.Content(role="model", parts=parts),
            types.Content(role="user", parts=answers or [types.Part(text="Go on.")]),
        ]
        client, vendor = _client()
        vendor.body, vendor.kind = self.whole(Answer(((Text(("ok",)),),))), "application/json"
        tools: Any = [{"function_declarations": [_tool(name) for name in history.tools]}]
        client.models.generate_content(model="gemini-test", contents=turns, config={"tools": tools})
        return vendor.asked

    def said(self, request: bytes) -> View:
        """The model's last content; a thought must have its signature."""
        (parts,) = [content["parts"] for content in json.loads(request)["contents"] if content["role"] == "model"][-1:]
        thoughts = [part for part in parts if part.get("thought")]
        assert all(part["thoughtSignature"] for part in thoughts[-1:])
        text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
        made = [part["functionCall"] for part in parts if "functionCall" in part]
        calls = tuple(SeenCall(call["id"], call["name"], json.dumps(call["args"])) for call in made)
        return View(text, "".join(part["text"] for part in thoughts), calls, None)

    def results(self, request: bytes) -> list[tuple[str, str]]:
        """Every function response."""
        return [
            (part["functionResponse"].get("id", ""), _said(part["functionResponse"]["response"]))
            for content in json.loads(request)["contents"]
            for part in content["parts"]
            if "functionResponse" in part
        ]

    def lineage(self, body: bytes, *, stream: bool) -> set[str]:
        """The ids of the chunks."""
        return {part["responseId"] for part in (payloads(body) if stream else [json.loads(body)])}

    def tokens(self, body: bytes, *, stream: bool) -> tuple[int, int] | None:
        """The usage of the last chunk."""
        usage = list(_ask(body, stream))[-1].usage_metadata
        if usage is None or usage.prompt_token_count is None or usage.candidates_token_count is None:
            return None
        return usage.prompt_token_count, usage.candidates_token_count

    def error(self) -> bytes:
        """An error in a chunk's place."""
        return b'data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}\r\n\r\n'


class GeminiArrayKit(GeminiKit):
    """The same, streamed as one JSON array; line ends say how it is printed: with CRLF as Google does."""

    path = "/v1beta/models/gemini-array-test:generateContent"
    stream_path = "/v1beta/models/gemini-array-test:streamGenerateContent"
    query = b""

    def _framed(self, payload: dict[str, Any], quirks: Quirks, at: int) -> bytes:
        lead = "\n,\r\n" if quirks.newline == "\r\n" else ","
        text = escaped(payload, spaced=quirks.spaced, indent=2 if quirks.newline == "\r\n" else None)
        return ((lead if at else "[") + text).encode()

    def _ended(self, frames: list[Frame], quirks: Quirks) -> tuple[Frame, ...]:
        return (*frames, Frame(b"\n]" if quirks.newline == "\r\n" else b"]", "done"))

    def error(self) -> bytes:
        """An error in an element's place."""
        return b'\n,\r\n{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}'


def escaped(value: Any, *, spaced: bool = False, indent: int | None = None) -> str:
    """JSON as Google writes it: without a raw character at which google-genai would split a line."""
    pair = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=pair if indent is None else None, indent=indent)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def signed(signature: str) -> str:
    """A signature as bytes that the SDK can read."""
    return b64encode(signature.encode()).decode()


def contents(history: History, style: Style) -> list[Any]:
    """The conversation as contents."""
    found: list[Any] = []
    for turn in history.turns:
        found += _round(turn, style) if isinstance(turn, Round) else [{"role": "user", "parts": [{"text": turn.text}]}]
    return found


def _round(turn: Round, style: Style) -> list[dict[str, Any]]:
    said = [{"text": turn.text}] if turn.text else []
    results = []
    for call, result in zip(turn.calls, turn.results, strict=True):
        response = {"content": [{"type": "text", "text": result}]} if style.parts else {"result": result}
        results.append({"functionResponse": {"id": call.id, "name": call.name, "response": response}})
    calls = [_part(call) for call in turn.calls]
    back = [{"role": "user", "parts": results}] if results else []
    return [{"role": "model", "parts": [*said, *calls]}, *back]


def _said(response: dict[str, Any]) -> str:
    text = response.get("result") or response.get("error")
    text = text or "".join(part["text"] for part in response.get("content", ()))
    return "\n\n".join([text, response["callfuse"]] if "callfuse" in response else [text])


def _tool(name: str) -> Any:
    return {"name": name, "description": f"Runs {name}.", "parameters": {"type": "OBJECT", "properties": {}}}


def _head(answer: Answer) -> dict[str, Any]:
    return {"modelVersion": "gemini-test", "responseId": f"resp-{answer.tag}"}


def _chunk(answer: Answer, choice: int, parts: list[dict[str, Any]], finish: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    candidate |= {"finishReason": "STOP"} if finish else {}
    candidate |= {"index": choice}
    usage = {"usageMetadata": TOKENS if finish else SO_FAR} if answer.usage else {}
    return {"candidates": [candidate], **usage, **_head(answer)}


_Planned = tuple[list[dict[str, Any]], str, int, int | None, bool]
"""Parts, kind, choice, item, whether it finishes."""


def _choice_frames(answer: Answer, choice: int) -> list[_Planned]:
    quirks, planned = answer.quirks, list[_Planned]()
    for at, item in enumerate(answer.choices[choice]):
        together = quirks.no_index and isinstance(item, Call) and planned and planned[-1][1] == "open"
        if together and isinstance(item, Call):
            planned[-1][0].append(_part(item))
        else:
            planned += [([part], kind, choice, at, False) for part, kind in _pieces(item, quirks)]
    if quirks.finish_with_last and planned:
        parts, kind, _, item_at, _ = planned[-1]
        planned[-1] = (parts, kind, choice, item_at, True)
    else:
        planned.append(([{"text": ""}], "finish", choice, None, True))
    return planned


def _part(item: Item) -> dict[str, Any]:
    match item:
        case Text():
            return {"text": item.text}
        case Thinking():
            return {"text": item.text, "thought": True, "thoughtSignature": signed(item.signature)}
        case Call():
            args = json.loads(item.arguments or "{}")
            return {"functionCall": {"name": item.name, "args": args, "id": item.id}}


def _pieces(item: Item, quirks: Quirks) -> Iterator[tuple[dict[str, Any], str]]:
    match item:
        case Text(pieces):
            yield from (({"text": piece}, "piece") for piece in pieces)
        case Thinking(pieces, signature):
            *others, last = pieces
            yield from (({"text": piece, "thought": True}, "piece") for piece in others)
            yield {"text": last, "thought": True, "thoughtSignature": signed(signature)}, "piece"
        case Call():
            args = json.loads(item.arguments or "{}")
            leaves = list(_leaves(args, "$"))
            if quirks.whole_calls or quirks.no_index or None in leaves or not leaves:
                yield _part(item), "open"
                return
            yield {"functionCall": {"name": item.name, "id": item.id, "willContinue": True}}, "open"
            for piece in chain.from_iterable(leaf for leaf in leaves if leaf is not None):
                yield {"functionCall": {"partialArgs": [piece], "willContinue": True}}, "piece"
            yield {"functionCall": {}}, "close"


def _leaves(value: Any, path: str) -> Iterator[list[dict[str, Any]] | None]:
    """The pieces of each scalar; None for what cannot come in pieces."""
    match value:
        case dict() | list() if not value:
            yield None
        case dict():
            for key, inner in value.items():
                yield from _leaves(inner, f"{path}.{key}")
        case list():
            for at, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{at}]")
        case str():
            half = len(value) // 2
            first = {"jsonPath": path, "stringValue": value[:half], "willContinue": True}
            yield [first, {"jsonPath": path, "stringValue": value[half:]}]
        case bool():
            yield [{"jsonPath": path, "boolValue": value}]
        case None:
            yield [{"jsonPath": path, "nullValue": "NULL_VALUE"}]
        case _:
            yield [{"jsonPath": path, "numberValue": value}] if abs(value) < MOST_EXACT else None


@cache
def _client() -> tuple[genai.Client, SDKVendor]:
    vendor = SDKVendor(httpx2.Response)
    http = httpx2.Client(transport=httpx2.MockTransport(vendor))
    options = types.HttpOptions(base_url="http://vendor.test", httpx_client=http)
    return genai.Client(api_key="k", http_options=options), vendor


def _ask(body: bytes, stream: bool) -> Iterator[types.GenerateContentResponse]:
    """The SDK's chunks; of an array, which it never asks for, element by element."""
    client, vendor = _client()
    vendor.kind = "text/event-stream" if stream else "application/json"
    vendor.body = body
    if stream and body.lstrip()[:1] == b"[":
        vendor.body = b"".join(b"data: " + escaped(part).encode() + b"\r\n\r\n" for part in json.loads(body))
    if stream:
        yield from client.models.generate_content_stream(model="gemini-test", contents="x")
    else:
        yield client.models.generate_content(model="gemini-test", contents="x")


def _parts(chunks: Iterator[types.GenerateContentResponse]) -> list[types.Part]:
    """The parts of the first candidate, calls that came in pieces put together."""
    found: list[types.Part] = []
    reading = Choice()
    for chunk in chunks:
        content = (chunk.candidates or [types.Candidate()])[0].content
        for part in (content.parts if content else None) or []:
            call = part.function_call
            if call is not None:
                reading.take(part.model_dump(mode="json", by_alias=True, exclude_none=True))
                if call.name:
                    found.append(
                        part.model_copy(update={"function_call": types.FunctionCall(id=call.id, name=call.name)})
                    )
                made = next(one.function_call for one in reversed(found) if one.function_call is not None)
                made.args = reading.calls[-1].args
            else:
                found.append(part)
    return found


_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
ENVELOPE = ("modelVersion", "responseId")


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream of either kind."""
    if body.lstrip()[:1] == b"[":
        return [part for part in json.loads(body) if isinstance(part, dict)]
    return [json.loads(event.data) for event in events(body)]


def put(root: Any, path: str, value: Any, *, grows: bool) -> None:
    """Set what a JSONPath names, or add to it."""
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    for step, following in pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int) and len(root) <= step:
            root.append(empty)
        root = root[step] if isinstance(step, int) else root.setdefault(step, empty)
    last = steps[-1]
    if isinstance(last, int) and len(root) <= last:
        root.append(value)
    else:
        root[last] = root[last] + value if grows else value


@dataclass(slots=True)
class Merged:
    """A call as it grows."""

    id: str
    name: str
    args: Any
    growing: set[str] = field(default_factory=set)

    def take(self, pieces: Iterable[dict[str, Any]]) -> None:
        """Add pieces of arguments."""
        for piece in pieces:
            path = piece["jsonPath"]
            value = next((piece[key] for key in ("stringValue", "numberValue", "boolValue") if key in piece), None)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            put(self.args, path, value, grows=path in self.growing)
            (self.growing.add if piece.get("willContinue") else self.growing.discard)(path)

    @property
    def seen(self) -> SeenCall:
        """What the client has of it."""
        return SeenCall(self.id, self.name, canonical(json.dumps(self.args)))


@dataclass(slots=True)
class Choice:
    """A candidate put together."""

    text: str = ""
    thinking: str = ""
    calls: list[Merged] = field(default_factory=list)
    finish: str | None = None

    def take(self, part: dict[str, Any]) -> None:
        """Add a part."""
        if "functionCall" in part:
            call = part["functionCall"]
            if call.get("name"):
                self.calls.append(Merged(call.get("id", ""), call["name"], call.get("args") or {}))
            self.calls[-1].take(call.get("partialArgs") or ())
        elif part.get("thought"):
            self.thinking += part["text"]
        else:
            self.text += part.get("text", "")

    @property
    def view(self) -> View:
        """What the client has of it."""
        return View(self.text, self.thinking, tuple(call.seen for call in self.calls), self.finish)


def merged(chunks: Iterable[dict[str, Any]]) -> tuple[View, ...]:
    """The candidates of a stream, or of a whole answer."""
    choices: dict[int, Choice] = {}
    for candidate in (candidate for chunk in chunks for candidate in chunk.get("candidates") or ()):
        choice = choices.setdefault(candidate.get("index") or 0, Choice())
        for part in (candidate.get("content") or {}).get("parts") or ():
            choice.take(part)
        choice.finish = candidate.get("finishReason") or choice.finish
    return tuple(choices[at].view for at in sorted(choices))


def check(chunks: list[dict[str, Any]]) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    return [*_envelopes(chunks), *_choices(chunks)]


def _envelopes(chunks: list[dict[str, Any]]) -> Iterable[str]:
    for key in ENVELOPE:
        if len({chunk.get(key) for chunk in chunks}) != 1:
            yield f"{key} changes within the stream"
    if not all(chunk.get("candidates") for chunk in chunks):
        yield "a chunk without a candidate, for which google-genai's chats drop the answer"


def _choices(chunks: list[dict[str, Any]]) -> Iterable[str]:
    parts = [candidate for chunk in chunks for candidate in chunk.get("candidates") or ()]
    for number in {part.get("index") or 0 for part in parts}:
        yield from _choice(number, [part for part in parts if (part.get("index") or 0) == number])


def _choice(number: int, listed: list[dict[str, Any]]) -> Iterable[str]:
    finishes = [at for at, candidate in enumerate(listed) if candidate.get("finishReason")]
    if finishes != [len(listed) - 1]:
        yield f"candidate {number}: finish reasons at {finishes} of {len(listed)}"
    elif listed[-1]["finishReason"] != "STOP":
        yield f"candidate {number}: finish reason {listed[-1]['finishReason']}"
    growing = False
    for candidate in listed:
        parts = (candidate.get("content") or {}).get("parts")
        if not parts or not all(parts):
            yield f"candidate {number}: a chunk without parts, for which google-genai's chats drop the answer"
        for call in [part["functionCall"] for part in parts or () if "functionCall" in part]:
            if growing is bool(call.get("name")):
                yield f"candidate {number}: {'two calls at once' if growing else 'a piece of no call'}"
            growing = bool(call.get("willContinue"))
    if growing:
        yield f"candidate {number}: a call without its end"
