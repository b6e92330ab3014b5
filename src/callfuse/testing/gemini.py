"""Imitate Gemini: read requests, write server-sent events, JSON arrays and bodies.

Input: a `Turn`. Output: frames or a body, with every field of the official SDK's types. If the request has a
`thinkingLevel`, which only models since Gemini 3 accept, the first call of an answer has a thought signature.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import parse_qs

import orjson

from callfuse.testing.script import STREAMING_METHOD, Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, signature_for

METHODS = (":generateContent", STREAMING_METHOD)
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
             429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether the request is for a model that signs its thoughts and demands the signatures back."""
    config = body.get("generationConfig")
    thinking = config.get("thinkingConfig") if isinstance(config, dict) else None
    return isinstance(thinking, dict) and bool(thinking.get("thinkingLevel") or thinking.get("thinking_level"))


def wants_array(path: str, query: bytes) -> bool:
    """Whether the answer is streamed as a JSON array, because the query lacks `alt=sse`."""
    return path.endswith(STREAMING_METHOD) and parse_qs(query).get(b"alt", [])[-1:] != [b"sse"]


def signed_text(name: Any, args: Any) -> str:
    """Return the text of a call that its thought signature covers."""
    return f"{name} {orjson.dumps(args or {}, option=orjson.OPT_SORT_KEYS).decode()}"


class GeminiVendor:
    """`POST .../models/{model}:generateContent` and `:streamGenerateContent`."""

    name = "gemini"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in one of the two methods, under any prefix."""
        return path.endswith(METHODS)

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
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
        """Return the request's `candidateCount`."""
        config = body.get("generationConfig")
        count = config.get("candidateCount") if isinstance(config, dict) else None
        return count if isinstance(count, int) and count > 0 else 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events with CRLF, one part per chunk, candidate after candidate. Calls are not split."""
        so_far = {"promptTokenCount": turn.usage.input_tokens, "totalTokenCount": turn.usage.input_tokens}
        streams = (_candidates(turn, *choice) for choice in enumerate(turn.choices))
        for round_of_candidates in zip_longest(*streams):
            for candidate in filter(None, round_of_candidates):
                usage = _usage(turn.usage) if "finishReason" in candidate else so_far
                yield self._frame({"candidates": [candidate], "usageMetadata": usage, **_head(turn)})

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as a `GenerateContentResponse`."""
        candidates = [
            _candidate(index, [*_thoughts(answer, [answer.thinking]), *_parts(turn, index, answer, [answer.text])])
            | {"finishReason": answer.finish or "STOP"}
            for index, answer in enumerate(turn.choices)
        ]
        return {"candidates": candidates, "usageMetadata": _usage(turn.usage), **_head(turn)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return Google's error envelope."""
        return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}

    def error_frame(self, message: str) -> bytes:
        """Return an error in place of a chunk."""
        return self._frame(self.error(503, message))

    def malformed_frame(self) -> bytes:
        """Return a chunk that breaks off in the middle of its JSON."""
        return b'data: {"candidates": [{"content": {"parts": [{"text": "bro\r\n\r\n'

    def _frame(self, payload: dict[str, Any]) -> bytes:
        return b"data: " + dumps(payload) + b"\r\n\r\n"


class GeminiArrayVendor(GeminiVendor):
    """Gemini with a pretty-printed JSON array as stream. Use one instance per answer, because it keeps the position in
    the array."""

    stream_type = b"application/json; charset=UTF-8"

    def __init__(self) -> None:
        self._before = b"["

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield one element per frame, each after its separator, then the closing bracket."""
        yield from super().frames(turn)
        yield b"\n]"

    def error_frame(self, message: str) -> bytes:
        """Return an error in place of an element, then the closing bracket."""
        return super().error_frame(message) + b"\n]"

    def malformed_frame(self) -> bytes:
        """Return an element that breaks off in the middle of its JSON."""
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
    """Return the texts in a response object, one per line."""
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


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.total_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input_tokens}],
    }
    return counts | ({"cachedContentTokenCount": usage.cached_tokens} if usage.cached_tokens else {})
