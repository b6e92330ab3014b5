"""Measure the time that the middleware adds to each chunk of a stream, in process, compared with the bare app.

    python -m benchmarks.chunks [--rounds 41] [--chunks 1000] [--only gemini]

An app sends the same chunks to a `send` that does nothing: bare, under callfuse, under disabled callfuse, and under a
middleware that parses and rewrites each chunk, as a naive guard would. The runs are interleaved; the figures are
medians. In rows named `call`, the chunks differ only in their piece of the arguments; `padded` ones, and those of
openai-responses, which are numbered, differ in more. `held` is a stream of suspect calls, which are rare, for
comparison. Such a call in pieces is released at its first argument, which differs, and then passes piece by piece.
`whole` is the time of the exchange from request to settled answer, divided by its chunks. If each chunk is a call of
its own, this includes storing the call.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.driving import ASGIApp, Message, Receive, Scope, Send, scope_of, timed
from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call, ScriptedVendor
from callfuse.wire.aws_events import MEDIA_TYPE

TEXT_US = 0.8
CALL_US = 3.0
ARRAY = 2.0
"""The goals: for a chunk of text, for a chunk of a call, and the factor for either in a JSON array."""

NO_FLOOD = {"tool_call_loop": {"max_calls_per_answer": 0}}
"""Settings that let a thousand calls in one answer pass."""
JSON = b"application/json"
TOOL = "write_file"
REPEATED: Mapping[str, object] = {"a": 1}
"""The default arguments of the call that a history repeats."""
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-test:streamGenerateContent",
    "ollama": "/api/chat",
    "cohere-v2": "/v2/chat",
    "gemini-interactions": "/v1beta/interactions",
    "bedrock-converse": "/model/test/converse-stream",
}
BINARY_US = 5.0
"""The goal for an AWS event stream, whose messages must be framed, because the end of a chunk does not show whether it
is complete."""


class Stream(NamedTuple):
    """An app's answer. `goal_us`: the time that callfuse may add to each chunk."""

    path: str
    chunks: list[bytes]
    goal_us: float
    content_type: bytes = b"text/event-stream"


def chat_chunks(deltas: Sequence[object], *, finish: str, padded: bool = False) -> list[bytes]:
    """Return OpenAI chat completion chunks. `padded`: each with a padding of random length, as OpenAI writes them."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1760000000, "model": "gpt-test"}
    bodies = [head | {"system_fingerprint": "fp_1", "choices": [{"index": 0, "delta": d, "logprobs": None,
              "finish_reason": None}]} | ({"obfuscation": "aZ3kQ9xY"[: at * 5 % 8 + 1]} if padded else {})
              for at, d in enumerate(deltas)]  # fmt: skip
    bodies.append(head | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}]})
    return [*events(bodies), b"data: [DONE]\n\n"]


def call_deltas(count: int) -> list[object]:
    """Return one OpenAI call with its arguments in `count` pieces."""
    function = {"name": TOOL, "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    first: object = {"role": "assistant", "content": None, "tool_calls": [call]}
    pieces = ['{"text": "', *(json.dumps(words(at))[1:-1] for at in range(count - 2)), '"}']
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]


def words(at: int) -> str:
    """Return the text of a piece, by its number. All are different, and every eighth ends a line."""
    return f"words {at:<4}{chr(10) if at % 8 == 7 else ' '}"


def scripted(dialect: str, answer: Answer, piece_chars: int) -> list[bytes]:
    """Return an answer as the scripted vendor streams it."""
    path, chunks = PATHS[dialect], []

    async def receive() -> Message:
        return {"type": "http.request", "body": request(path), "more_body": False}

    async def send(message: Message) -> None:
        if message.get("body"):
            chunks.append(message["body"])

    asyncio.run(ScriptedVendor([answer], piece_chars=piece_chars)(scope_of(path), receive, send))
    return chunks


def gemini_payloads(parts: Sequence[object]) -> list[object]:
    """Gemini's chunks, a part in each."""
    counts = {"promptTokenCount": 120, "totalTokenCount": 120}
    usage = counts | {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 120}]}
    head = {"usageMetadata": usage, "modelVersion": "gemini-test", "responseId": "resp-1"}
    said = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
    end = {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate]} | head for candidate in (*said, end)]


def gemini_pieces(count: int) -> list[object]:
    """Return one Gemini call with its arguments in `count` pieces."""
    pieces = [{"jsonPath": "$.text", "stringValue": words(at), "willContinue": True} for at in range(count - 2)]
    grown = [{"functionCall": {"partialArgs": [piece], "willContinue": True}} for piece in pieces]
    return [{"functionCall": {"name": TOOL, "willContinue": True}}, *grown, {"functionCall": {}}]


def events(payloads: Iterable[object], end: bytes = b"\n\n") -> list[bytes]:
    """Server-sent events without names."""
    return [b"data: " + json.dumps(payload).encode() + end for payload in payloads]


def array(payloads: Iterable[object], indent: int | None) -> list[bytes]:
    """Return one JSON array, an element in each chunk."""
    elements = [json.dumps(payload, indent=indent).encode() for payload in payloads]
    return [b"[" + elements[0], *(b",\r\n" + element for element in elements[1:]), b"]"]


def streams(count: int) -> dict[str, Stream]:
    """Return streams of `count` chunks by name."""
    said = [f" word{n % 7}" for n in range(count)]
    text = Answer(text="".join(said))
    call = Answer(calls=[Call(TOOL, {"text": "".join(map(words, range(count)))})])
    calls = [Call(TOOL, {"path": f"src/file_{n}.py", "text": "some words to be written"}) for n in range(count)]
    chat, lines = PATHS["openai-chat"], b"application/x-ndjson"
    found = {
        "openai-chat text": Stream(chat, chat_chunks([{"content": word} for word in said], finish="stop"), TEXT_US),
        "openai-chat call": Stream(chat, chat_chunks(call_deltas(count), finish="tool_calls"), CALL_US),
        "openai-chat call, padded": Stream(
            chat, chat_chunks(call_deltas(count), finish="tool_calls", padded=True), CALL_US
        ),
    }
    for dialect in ("openai-responses", "anthropic", "cohere-v2", "gemini-interactions"):
        found[f"{dialect} text"] = Stream(PATHS[dialect], scripted(dialect, text, len(said[0])), TEXT_US)
        found[f"{dialect} call"] = Stream(PATHS[dialect], scripted(dialect, call, len(words(0))), CALL_US)
    dialect = "bedrock-converse"
    for kind, answer, chars in (("text", text, len(said[0])), ("call", call, len(words(0)))):
        chunks = scripted(dialect, answer, chars)
        found[f"{dialect} {kind}"] = Stream(PATHS[dialect], chunks, BINARY_US, MEDIA_TYPE)
    for kind, answer, goal_us in (("text", text, TEXT_US), ("whole calls", Answer(calls=calls), CALL_US)):
        found[f"ollama {kind}"] = Stream(PATHS["ollama"], scripted("ollama", answer, len(said[0])), goal_us, lines)
    wholes: list[object] = [{"functionCall": {"name": one.name, "args": one.arguments}} for one in calls]
    for kind, parts, goal_us in (
        ("text", [{"text": word} for word in said], TEXT_US),
        ("whole calls", wholes, CALL_US),
        ("partialArgs", gemini_pieces(count), CALL_US),
    ):
        payloads = gemini_payloads(parts)
        found[f"gemini {kind}"] = Stream(PATHS["gemini"], events(payloads, b"\r\n\r\n"), goal_us)
        for printed, indent in (("indented", 2), ("one line", None)):
            chunks = array(payloads, indent)
            found[f"gemini array, {printed}, {kind}"] = Stream(PATHS["gemini"], chunks, goal_us * ARRAY, JSON)
    return found


def request(path: str, *, repeats: int = 0, arguments: Mapping[str, object] = REPEATED) -> bytes:
    """Return a request with a tool, and a history in which one call was repeated `repeats` times."""
    said: object = {"role": "user", "content": "Go on."}
    schema = {"name": TOOL, "parameters": {"type": "object"}}
    tool: object = {"type": "function", "function": schema}
    history = "messages"
    if path == PATHS["gemini"]:
        said = {"role": "user", "parts": [{"text": "Go on."}]}
        history, tool = "contents", {"functionDeclarations": [schema]}
    elif path == PATHS["openai-responses"]:
        history, tool = "input", {"type": "function"} | schema
    elif path == PATHS["anthropic"]:
        tool = {"name": TOOL, "description": "", "input_schema": {"type": "object"}}
    elif path == PATHS["gemini-interactions"]:
        said, history, tool = {"type": "user_input", "content": "Go on."}, "input", {"type": "function"} | schema
    elif path == PATHS["bedrock-converse"]:
        said = {"role": "user", "content": [{"text": "Go on."}]}
    said_and_done = [said, *(item for n in range(repeats) for item in round_of(path, f"c{n}", arguments))]
    body = {"model": "test", "max_tokens": 100, "stream": True, "tools": [tool], history: said_and_done}
    if path == PATHS["bedrock-converse"]:
        body = {"messages": said_and_done, "toolConfig": {"tools": [{"toolSpec": {"name": TOOL}}]}}
    return json.dumps(body).encode()


def round_of(path: str, id_: str, arguments: Mapping[str, object]) -> list[object]:
    """Return the repeated call and its result, in the format of a request to this path."""
    if path == PATHS["gemini"]:
        call: object = {"functionCall": {"name": TOOL, "args": arguments}}
        result: object = {"functionResponse": {"name": TOOL, "response": {"output": "ok"}}}
        return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    if path == PATHS["openai-responses"]:
        call = {"type": "function_call", "call_id": id_, "name": TOOL, "arguments": json.dumps(arguments)}
        return [call, {"type": "function_call_output", "call_id": id_, "output": "ok"}]
    if path == PATHS["gemini-interactions"]:
        call = {"type": "function_call", "id": id_, "name": TOOL, "arguments": arguments}
        return [call, {"type": "function_result", "call_id": id_, "result": "ok"}]
    if path == PATHS["bedrock-converse"]:
        call = {"toolUse": {"toolUseId": id_, "name": TOOL, "input": arguments}}
        result = {"toolResult": {"toolUseId": id_, "content": [{"text": "ok"}]}}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    if path == PATHS["anthropic"]:
        call = {"type": "tool_use", "id": id_, "name": TOOL, "input": arguments}
        result = {"type": "tool_result", "tool_use_id": id_, "content": "ok"}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    written = arguments if path == PATHS["ollama"] else json.dumps(arguments)
    call = {"id": id_, "type": "function", "function": {"name": TOOL, "arguments": written}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [turn, {"role": "tool", "tool_call_id": id_, "content": "ok"}]


class Streaming:
    """An app that answers with these chunks. `seconds`: the CPU time that sending them last took."""

    def __init__(self, chunks: list[bytes], content_type: bytes = b"text/event-stream") -> None:
        headers = [(b"content-type", content_type)]
        self._start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
        self._messages: list[Message] = [
            {"type": "http.response.body", "body": chunk, "more_body": True} for chunk in chunks
        ]
        self.seconds = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one answer."""
        await receive()
        await send(self._start)
        begin = time.process_time()
        for message in self._messages:
            await send(message)
        self.seconds = time.process_time() - begin
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def app_of(chunks: list[bytes]) -> ASGIApp:
    """Return an app that answers with these events."""
    return Streaming(chunks)


def naive(app: ASGIApp) -> ASGIApp:
    """Return a middleware that parses and rewrites the object in each chunk."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sender(message: Message) -> None:
            body = message.get("body", b"")
            before, behind = (
                (12, 4) if body.startswith(b"\0") else (0, 0)
            )  # lengths and checksums, which may contain a brace
            begin, end = body.find(b"{", before), body.rfind(b"}", 0, len(body) - behind) + 1
            if begin >= 0:
                value = json.loads(body[begin:end])
                message = {**message, "body": body[:begin] + json.dumps(value).encode() + body[end:]}
            await send(message)

        await app(scope, receive, sender)

    return wrapped


async def medians(
    bare: Streaming, apps: dict[str, ASGIApp], path: str, bodies: Callable[[str], bytes], rounds: int
) -> dict[str, tuple[float, float]]:
    """Return each app's median time over interleaved rounds: of its chunks, and of the exchange."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in apps}
    for _ in range(rounds):
        for name, app in apps.items():
            whole = await timed(app, path, bodies(name))
            times[name].append((bare.seconds, whole))
    return {name: (_median(found, 0), _median(found, 1)) for name, found in times.items()}


def _median(found: list[tuple[float, float]], which: int) -> float:
    return statistics.median(times[which] for times in found)


def _beyond(times: tuple[float, float], base: tuple[float, float]) -> tuple[float, float]:
    return times[0] - base[0], times[1] - base[1]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--only", default="", help="measure the streams whose names hold this")
    options = parser.parse_args(arguments)
    names = ("callfuse", "goal", "disabled", "naive", "whole", "held")
    print(f"{'us a chunk added to':<36}{''.join(f'{name:>9}' for name in names)}   callfuse of naive")
    for name, stream in streams(options.chunks).items():
        if options.only not in name:
            continue
        bare = Streaming(stream.chunks, stream.content_type)
        apps: dict[str, ASGIApp] = {
            "bare": bare,
            "callfuse": CallFuseMiddleware(bare, NO_FLOOD),
            "disabled": CallFuseMiddleware(bare, {"tool_call_loop": {"enabled": False}}),
            "naive": naive(bare),
            "held": CallFuseMiddleware(bare, NO_FLOOD),
        }

        def bodies(which: str, path: str = stream.path) -> bytes:
            return request(path, repeats=2 if which == "held" else 0)

        found = asyncio.run(medians(bare, apps, stream.path, bodies, options.rounds))
        us = {which: [added / len(stream.chunks) * 1e6 for added in _beyond(pair, found["bare"])]
              for which, pair in found.items()}  # fmt: skip
        callfuse, whole = us["callfuse"]
        figures = (callfuse, stream.goal_us, us["disabled"][0], us["naive"][0], whole, us["held"][1])
        row = "".join(f"{figure:>9.2f}" for figure in figures)
        print(f"{name:<36}{row}   {callfuse / us['naive'][0]:.1%}{'' if callfuse <= stream.goal_us else '  over'}")


if __name__ == "__main__":
    main()
