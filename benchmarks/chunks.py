"""Time that the middleware adds to each chunk of a stream, in process, over the bare app.

    python -m benchmarks.chunks [--rounds 41] [--chunks 2000]

An app sends the same chunks to a `send` that does nothing: bare, under callfuse, under callfuse disabled, and under a
middleware that parses and writes each chunk anew, as a naive guard would. The runs are interleaved; the figures are
medians. `held` is a suspect call until its verdict, for comparison: it is rare.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable

from callfuse import CallFuseMiddleware
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send


def chat_chunks(deltas: list[object], *, finish: str) -> list[bytes]:
    """OpenAI chat completion chunks."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1760000000, "model": "gpt-test"}
    bodies = [head | {"system_fingerprint": "fp_1", "choices": [{"index": 0, "delta": d, "logprobs": None,
              "finish_reason": None}]} for d in deltas]  # fmt: skip
    bodies.append(head | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}]})
    return [b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies] + [b"data: [DONE]\n\n"]


def anthropic_chunks(start: object, deltas: list[object], *, finish: str) -> list[bytes]:
    """Anthropic message events."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message: object = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "content": [],
                       "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": finish, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def call_deltas(count: int) -> list[object]:
    """One OpenAI call in so many pieces of arguments."""
    function = {"name": "write_file", "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    first: object = {"role": "assistant", "content": None, "tool_calls": [call]}
    pieces = ['{"text": "', *["some words "] * (count - 2), '"}']
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]


def streams(count: int) -> dict[str, tuple[str, list[bytes]]]:
    """Path and chunks by name."""
    chat, messages = "/v1/chat/completions", "/v1/messages"
    words: list[object] = [{"content": f" word{n % 7}"} for n in range(count)]
    texts: list[object] = [{"type": "text_delta", "text": f" word{n % 7}"} for n in range(count)]
    pieces = ['{"text": "', *["some words "] * (count - 2), '"}']
    inputs: list[object] = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    tool = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {}}
    return {
        "openai-chat text": (chat, chat_chunks(words, finish="stop")),
        "openai-chat tool call": (chat, chat_chunks(call_deltas(count), finish="tool_calls")),
        "anthropic text": (
            messages,
            anthropic_chunks({"type": "text", "text": ""}, texts, finish="end_turn"),
        ),
        "anthropic tool call": (messages, anthropic_chunks(tool, inputs, finish="tool_use")),
    }


def request(path: str, *, repeats: int = 0) -> bytes:
    """A request with tools, and a history in which one call has been repeated so often."""
    tool = {"name": "write_file", "description": "", "input_schema": {"type": "object"}}
    if path.endswith("/messages"):
        messages: list[object] = [{"role": "user", "content": "Go on."}]
        for n in range(repeats):
            use = {"type": "tool_use", "id": f"t{n}", "name": "write_file", "input": {"a": 1}}
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        body = {"model": "claude-test", "max_tokens": 100, "stream": True, "tools": [tool], "messages": messages}
        return json.dumps(body).encode()
    messages = [{"role": "user", "content": "Go on."}]
    for n in range(repeats):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "write_file", "arguments": '{"a":1}'}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": f"c{n}", "content": "ok"}]  # fmt: skip
    function = {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object"}}}
    return json.dumps({"model": "gpt-test", "stream": True, "tools": [function], "messages": messages}).encode()


def app_of(chunks: list[bytes]) -> ASGIApp:
    """An app that answers with these chunks."""
    start: Message = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"text/event-stream")],
    }
    messages: list[Message] = [{"type": "http.response.body", "body": chunk, "more_body": True} for chunk in chunks]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start)
        for message in messages:
            await send(message)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def naive(app: ASGIApp) -> ASGIApp:
    """A middleware that parses and writes each chunk anew."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def sender(message: Message) -> None:
            body = message.get("body", b"")
            if body.startswith(b"data: {"):
                value = json.loads(body[6:])
                message = {**message, "body": b"data: " + json.dumps(value).encode() + b"\n\n"}
            elif b"\ndata: " in body:
                head, _, data = body.partition(b"\ndata: ")
                message = {**message, "body": head + b"\ndata: " + json.dumps(json.loads(data)).encode() + b"\n\n"}
            await send(message)

        await app(scope, receive, sender)

    return wrapped


async def timed(app: ASGIApp, path: str, body: bytes) -> float:
    """Seconds that one exchange takes."""
    scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": [], "root_path": ""}

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        """The server's end, which costs nothing here."""

    begin = time.perf_counter()
    await app(scope, receive, send)
    return time.perf_counter() - begin


async def medians(apps: dict[str, ASGIApp], path: str, bodies: Callable[[str], bytes], rounds: int) -> dict[str, float]:
    """Each app's median time over interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in apps}
    for _ in range(rounds):
        for name, app in apps.items():
            times[name].append(await timed(app, path, bodies(name)))
    return {name: statistics.median(values) for name, values in times.items()}


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--chunks", type=int, default=2000)
    options = parser.parse_args(arguments)
    print(f"{'stream':<24}{'callfuse':>10}{'disabled':>10}{'naive':>10}{'held':>10}   us a chunk added; of naive")
    for name, (path, chunks) in streams(options.chunks).items():
        bare = app_of(chunks)
        off = {"tool_call_loop": {"enabled": False}}
        apps: dict[str, ASGIApp] = {
            "bare": bare,
            "callfuse": CallFuseMiddleware(bare, {}),
            "disabled": CallFuseMiddleware(bare, off),
            "naive": naive(bare),
            "held": CallFuseMiddleware(bare, {}),
        }

        def bodies(which: str, path: str = path) -> bytes:
            return request(path, repeats=2 if which == "held" else 0)

        found = asyncio.run(medians(apps, path, bodies, options.rounds))
        added = {which: (found[which] - found["bare"]) / len(chunks) * 1e6 for which in apps}
        row = "".join(f"{added[which]:>10.2f}" for which in ("callfuse", "disabled", "naive", "held"))
        print(f"{name:<24}{row}   {added['callfuse'] / added['naive']:.1%}")


if __name__ == "__main__":
    main()
