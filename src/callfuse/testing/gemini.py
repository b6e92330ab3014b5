"""Gemini of the scripted vendor: reads and checks requests, writes server-sent events, JSON arrays and bodies.

In: a `Turn`. Out: frames or a body, with every field that the official SDK's types know. If the request has a
`thinkingLevel`, which only models since Gemini 3 take, the first call of an answer has a thought signature.

The main rules: neighbouring contents of one role are one turn. A turn of function responses follows the turn of the
calls, with one response for each call, under its name and id. If thoughts are signed, the first call of each step since
the last user message has its signature.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from urllib.parse import parse_qs

import orjson

from callfuse.testing.script import STREAMING_METHOD, Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, read_signature, signature_for

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
DATA = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
                  "codeExecutionResult", "toolCall", "toolResponse"})  # fmt: skip
METHODS = (":generateContent", STREAMING_METHOD)
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
             429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip

Json = Mapping[str, Any]


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether the request is for a model that signs its thoughts and demands the signatures back."""
    config = body.get("generationConfig")
    thinking = config.get("thinkingConfig") if isinstance(config, dict) else None
    return isinstance(thinking, dict) and bool(thinking.get("thinkingLevel") or thinking.get("thinking_level"))


def wants_array(path: str, query: bytes) -> bool:
    """Whether the answer is streamed as a JSON array, i.e. the query lacks `alt=sse`."""
    return path.endswith(STREAMING_METHOD) and parse_qs(query).get(b"alt", [])[-1:] != [b"sse"]


def signed_text(name: Any, args: Any) -> str:
    """The text of a call that its signature covers."""
    return f"{name} {orjson.dumps(args or {}, option=orjson.OPT_SORT_KEYS).decode()}"


class Gemini:
    """`POST .../models/{model}:generateContent` and `:streamGenerateContent`."""

    name = "gemini"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in one of the two methods, under any prefix."""
        return path.endswith(METHODS)

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """The calls and results at the end of the conversation; both empty if it ends otherwise."""
        contents = objects(body.get("contents"))
        end = len(contents)
        while end and contents[end - 1].get("role") != "model":
            end -= 1
        start = end
        while start and contents[start - 1].get("role") == "model":
            start -= 1
        results = tuple(
            _response_text(response.get("response")) for response in _of(contents[end:], "functionResponse")
        )
        calls = tuple(
            Call(str(call.get("name")), orjson.dumps(call.get("args") or {}).decode(), str(call.get("id") or ""))
            for call in _of(contents[start:end], "functionCall")
        )
        return (calls if results else ()), results

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """The request's `candidateCount`."""
        config = body.get("generationConfig")
        count = config.get("candidateCount") if isinstance(config, dict) else None
        return count if isinstance(count, int) and count > 0 else 1

    def broken_rules(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The vendor's rules that a request breaks, one sentence each."""
        return broken_rules(body)

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Server-sent events with CRLF, one part per chunk, the candidates in turn; calls come whole."""
        streams = (_candidates(turn, *choice) for choice in enumerate(turn.choices))
        for round_of_candidates in zip_longest(*streams):
            for candidate in filter(None, round_of_candidates):
                usage = _usage(turn.usage) if "finishReason" in candidate else _usage_so_far(turn.usage)
                yield self._frame({"candidates": [candidate], "usageMetadata": usage, **_head(turn)})

    def whole(self, turn: Turn) -> dict[str, Any]:
        """A `GenerateContentResponse`."""
        candidates = [
            _candidate(index, [*_thoughts(answer, [answer.thinking]), *_parts(turn, index, answer, [answer.text])])
            | {"finishReason": answer.finish or "STOP"}
            for index, answer in enumerate(turn.choices)
        ]
        return {"candidates": candidates, "usageMetadata": _usage(turn.usage), **_head(turn)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Google's error envelope."""
        return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}

    def error_frame(self, message: str) -> bytes:
        """An error in place of a chunk."""
        return self._frame(self.error(503, message))

    def malformed_frame(self) -> bytes:
        """A chunk that breaks off in the middle of its JSON."""
        return b'data: {"candidates": [{"content": {"parts": [{"text": "bro\r\n\r\n'

    def _frame(self, payload: dict[str, Any]) -> bytes:
        return b"data: " + dumps(payload) + b"\r\n\r\n"


class GeminiArray(Gemini):
    """Gemini that streams a pretty-printed JSON array. Use one instance per answer: it keeps the place in the array."""

    stream_type = b"application/json; charset=UTF-8"

    def __init__(self) -> None:
        self._before = b"["

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """One element per frame, each after its separator, then the closing bracket."""
        yield from super().frames(turn)
        yield b"\n]"

    def error_frame(self, message: str) -> bytes:
        """An error in place of an element, then the closing bracket."""
        return super().error_frame(message) + b"\n]"

    def malformed_frame(self) -> bytes:
        """An element that breaks off in the middle of its JSON."""
        return self._next() + b'{\n  "candidates": [\n    {\n      "content": {\n        "par'

    def _frame(self, payload: dict[str, Any]) -> bytes:
        return self._next() + orjson.dumps(payload, option=orjson.OPT_INDENT_2)

    def _next(self) -> bytes:
        before, self._before = self._before, b"\n,\r\n"
        return before


def _of(contents: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    for content in contents:
        yield from (part[kind] for part in objects(content.get("parts")) if isinstance(part.get(kind), dict))


def _response_text(response: Any) -> str:
    """The texts in a response object, one to a line."""
    if isinstance(response, dict):
        return "\n".join(map(_response_text, response.values()))
    if isinstance(response, list):
        return "\n".join(map(_response_text, response))
    return response if isinstance(response, str) else orjson.dumps(response).decode()


def _head(turn: Turn) -> dict[str, Any]:
    return {"modelVersion": turn.request.model, "responseId": f"resp-scripted-{turn.request.number}"}


def _candidate(index: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"parts": parts, "role": "model"}, "index": index}


def _candidates(turn: Turn, index: int, answer: Answer) -> Iterator[dict[str, Any]]:
    pieces = turn.pieces(answer.text)
    for part in (*_thoughts(answer, turn.pieces(answer.thinking)), *_parts(turn, index, answer, pieces)):
        yield _candidate(index, [part])
    yield _candidate(index, [{"text": ""}]) | {"finishReason": answer.finish or "STOP"}


def _thoughts(answer: Answer, pieces: Any) -> Iterator[dict[str, Any]]:
    if answer.thinking:
        yield from ({"text": piece, "thought": True} for piece in pieces)


def _parts(turn: Turn, index: int, answer: Answer, texts: Any) -> Iterator[dict[str, Any]]:
    if answer.text:
        yield from ({"text": piece} for piece in texts)
    for place, call in enumerate(answer.calls):
        args = orjson.loads(call.text or "{}")
        part: dict[str, Any] = {
            "functionCall": {"name": call.name, "args": args, "id": turn.call_id("", index, place, call)}
        }
        if place == 0 and thinks(turn.request.body):
            part["thoughtSignature"] = signature_for(_head(turn)["responseId"], signed_text(call.name, args))
        yield part


def _usage_so_far(usage: Usage) -> dict[str, Any]:
    return {"promptTokenCount": usage.input_tokens, "totalTokenCount": usage.input_tokens}


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.total_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}],
    }
    return counts | ({"cachedContentTokenCount": usage.cached_tokens} if usage.cached_tokens else {})


@dataclass(frozen=True, slots=True)
class RoleTurn:
    """Neighbouring contents of one role, joined: their parts, each with its place."""

    role: str
    place: str
    parts: list[tuple[str, Json]] = field(default_factory=list)

    def of(self, kind: str) -> list[tuple[str, Json, Json]]:
        """The parts of a kind, as (place, part, data)."""
        return [(place, part, part[kind]) for place, part in self.parts if isinstance(part.get(kind), dict)]


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield "contents: a non-empty array is required"
        return
    yield from _check_shapes(contents)
    turns = _role_turns(contents)
    if turns and turns[0].role == "model":
        yield f"{turns[0].place}: the first content must be a user's"
    if turns and turns[-1].role == "model":
        yield f"{turns[-1].place}: the last content must be a user's"
    for before, turn, behind in zip([None, *turns], turns, [*turns[1:], None], strict=False):
        if turn.role == "model":
            yield from _check_calls_answered(turn, behind)
        elif turn.of("functionResponse") and (before is None or not before.of("functionCall")):
            yield f"{turn.place}: function responses must come right behind the function calls"
        yield from _check_signatures_fit(turn)
    if thinks(body):
        yield from _check_signed(contents)


def _check_shapes(contents: Sequence[Any]) -> Iterator[str]:
    """Roles and parts, content by content."""
    for at, content in enumerate(contents):
        place = f"contents[{at}]"
        if not isinstance(content, dict):
            yield f"{place}: an object is required"
            continue
        if content.get("role", "user") not in ("user", "model"):
            yield f"{place}.role: {content['role']!r} is not one of user, model"
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            yield f"{place}.parts: a non-empty array is required"
            continue
        for number, part in enumerate(parts):
            yield from _check_part(f"{place}.parts[{number}]", part, content.get("role", "user"))


def _check_part(place: str, part: Any, role: str) -> Iterator[str]:
    kinds = DATA & part.keys() if isinstance(part, dict) else set()
    if len(kinds) != 1:
        yield f"{place}: exactly one kind of data is required, not {sorted(kinds)}"
        return
    (kind,) = kinds
    if kind == "text":
        if not isinstance(part["text"], str):
            yield f"{place}.text: a string is required"
    elif not isinstance(part[kind], dict):
        yield f"{place}.{kind}: an object is required"
    elif kind == "functionCall":
        yield from _check_call(f"{place}.functionCall", part[kind])
        if role != "model":
            yield f"{place}: a function call belongs to the model"
    elif kind == "functionResponse":
        yield from _check_response(f"{place}.functionResponse", part[kind])
        if role == "model":
            yield f"{place}: a function response belongs to the user"


def _check_call(place: str, call: Json) -> Iterator[str]:
    name = call.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield f"{place}.name: {name!r} does not match {TOOL_NAME.pattern}"
    if not isinstance(call.get("args") or {}, dict):
        yield f"{place}.args: an object is required"
    if unknown := call.keys() - {"name", "args", "id"}:
        yield f"{place}: {', '.join(sorted(unknown))} must not be sent"


def _check_response(place: str, response: Json) -> Iterator[str]:
    if not isinstance(response.get("name"), str) or not response["name"]:
        yield f"{place}.name: a string is required"
    if not isinstance(response.get("response"), dict):
        yield f"{place}.response: an object is required"


def _role_turns(contents: Sequence[Any]) -> list[RoleTurn]:
    turns: list[RoleTurn] = []
    for at, content in enumerate(contents):
        role = str(content.get("role", "user")) if isinstance(content, dict) else ""
        if not turns or turns[-1].role != role:
            turns.append(RoleTurn(role, f"contents[{at}]"))
        parts = content.get("parts") if isinstance(content, dict) else None
        turns[-1].parts.extend(
            (f"contents[{at}].parts[{number}]", part)
            for number, part in enumerate(parts if isinstance(parts, list) else [])
            if isinstance(part, dict)
        )
    return turns


def _check_calls_answered(turn: RoleTurn, behind: RoleTurn | None) -> Iterator[str]:
    """There is one response for each call, with its name and, if both have one, its id."""
    calls = [call for _, _, call in turn.of("functionCall")]
    responses = [response for _, _, response in behind.of("functionResponse")] if behind else []
    if len(calls) != len(responses):
        yield (
            f"{turn.place}: the number of function responses must be that of the function calls, "
            f"not {len(responses)} for {len(calls)}"
        )
        return
    waiting = list(calls)
    for response in responses:
        found = next((call for call in waiting if _answers(response, call)), None)
        if found is None:
            yield f"{turn.place}: the response of {response.get('name')!r} belongs to no call"
        else:
            waiting.remove(found)


def _answers(response: Json, call: Json) -> bool:
    ids = response.get("id"), call.get("id")
    return response.get("name") == call.get("name") and (None in ids or ids[0] == ids[1])


def _check_signatures_fit(turn: RoleTurn) -> Iterator[str]:
    """A scripted signature is on the call that it was made for."""
    for place, part, call in turn.of("functionCall"):
        signed = read_signature(str(part.get("thoughtSignature")))
        if signed is not None and not signed.fits(signed_text(call.get("name"), call.get("args"))):
            yield f"{place}: the thought signature is not that of this call"


def _check_signed(contents: Sequence[Any]) -> Iterator[str]:
    """Since the last user message, the first call of each step has a signature."""
    turns = _role_turns(contents)
    spoken = [at for at, turn in enumerate(turns) if turn.role == "user" and not turn.of("functionResponse")]
    for turn in turns[spoken[-1] if spoken else 0 :]:
        calls = turn.of("functionCall")
        if calls and turn.role == "model" and not calls[0][1].get("thoughtSignature"):
            yield f"{calls[0][0]}: the first function call of a step must carry its thought signature"


def _check_settings(body: Json) -> Iterator[str]:
    config = body.get("toolConfig")
    choice = config.get("functionCallingConfig") if isinstance(config, dict) else None
    if not isinstance(choice, dict):
        return
    mode = choice.get("mode", "MODE_UNSPECIFIED")
    if mode not in MODES:
        yield f"toolConfig.functionCallingConfig.mode: {mode!r} is not one of {', '.join(MODES)}"
    allowed = choice.get("allowedFunctionNames")
    if allowed is None:
        return
    if mode not in ("ANY", "VALIDATED"):
        yield "toolConfig.functionCallingConfig.allowedFunctionNames: only allowed where the mode is ANY or VALIDATED"
    declared = [
        declaration.get("name")
        for tool in objects(body.get("tools"))
        for declaration in objects(tool.get("functionDeclarations"))
    ]
    for name in allowed if isinstance(allowed, list) else ():
        if name not in declared:
            yield f"toolConfig.functionCallingConfig.allowedFunctionNames: {name!r} is not declared"
