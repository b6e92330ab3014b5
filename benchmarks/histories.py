"""What a healthy request costs beyond the bare app, against one orjson parse of its body.

    python -m benchmarks.histories [--rounds 301]

In process, with an app that answers whole with one call: the added time is reading the request, finding its lane and
timeline, and keeping the answer's round. So the ledger knows the conversation from the second request on; in one that
it does not know, errors are looked for in the whole history, which costs more than twice as much. Every other message
is a result of 3 KB. The runs are interleaved; the figures are medians.
"""

import argparse
import asyncio
import json
import statistics
import time

import orjson

from benchmarks.chunks import timed
from callfuse import CallFuseMiddleware
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send

RESULT = "The quick brown fox jumps over the lazy dog while the build goes on. " * 44
"""A result of 3 KB."""


def chat_history(messages: int) -> bytes:
    """A user message, then calls of five tools, each with a result of its own."""
    tools = [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}} for n in range(5)
    ]
    history: list[object] = [
        {"role": "system", "content": "You are an agent. " * 100},
        {"role": "user", "content": "Fix it."},
    ]
    for n in range((messages - 2) // 2):
        function = {"name": f"tool_{n % 5}", "arguments": json.dumps({"path": f"src/file_{n}.py", "line": n})}
        history.append({"role": "assistant", "content": None,
                        "tool_calls": [{"id": f"call_{n}", "type": "function", "function": function}]})  # fmt: skip
        history.append({"role": "tool", "tool_call_id": f"call_{n}", "content": f"{n}: {RESULT}"})
    return json.dumps({"model": "gpt-test", "messages": history, "tools": tools}).encode()


def anthropic_history(messages: int) -> bytes:
    """The same for Anthropic."""
    tools = [{"name": f"tool_{n}", "input_schema": {"type": "object"}} for n in range(5)]
    history: list[object] = [{"role": "user", "content": "Fix it."}]
    for n in range((messages - 1) // 2):
        use = {"type": "tool_use", "id": f"t{n}", "name": f"tool_{n % 5}", "input": {"path": f"file_{n}.py", "line": n}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{n}: {RESULT}"}
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"model": "claude-test", "max_tokens": 1000, "system": "You are an agent. " * 100}
    return json.dumps(body | {"messages": history, "tools": tools}).encode()


def app_of(answer: bytes) -> ASGIApp:
    """An app that reads its request and gives this whole answer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    return app


_CALL = {"id": "call_new", "type": "function", "function": {"name": "tool_1", "arguments": '{"path": "new.py"}'}}
_MESSAGE = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": _MESSAGE}
CHAT_ANSWER = orjson.dumps(
    {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-test", "choices": [_CHOICE]}
)
ANTHROPIC_ANSWER = orjson.dumps({"id": "m", "type": "message", "role": "assistant", "model": "claude-test",
    "content": [{"type": "tool_use", "id": "t_new", "name": "tool_1", "input": {"path": "new.py"}}],
    "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})  # fmt: skip


async def measured(path: str, body: bytes, answer: bytes, rounds: int) -> tuple[float, float, float]:
    """Median seconds of the bare app, of callfuse, and of one orjson parse."""
    bare = app_of(answer)
    guarded = CallFuseMiddleware(bare, {})
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        times[0].append(await timed(bare, path, body))
        times[1].append(await timed(guarded, path, body))
        begin = time.perf_counter()
        orjson.loads(body)
        times[2].append(time.perf_counter() - begin)
    bare_s, guarded_s, parse_s = (statistics.median(values) for values in times)
    return bare_s, guarded_s, parse_s


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=301)
    options = parser.parse_args(arguments)
    print(f"{'request':<30}{'body KB':>9}{'parse us':>10}{'added us':>10}   added / parse")
    for messages in (4, 20, 200, 400):
        for name, path, body, answer in (
            ("openai-chat", "/v1/chat/completions", chat_history(messages), CHAT_ANSWER),
            ("anthropic", "/v1/messages", anthropic_history(messages), ANTHROPIC_ANSWER),
        ):
            bare_s, guarded_s, parse_s = asyncio.run(measured(path, body, answer, options.rounds))
            added = guarded_s - bare_s
            label = f"{name}, {messages} messages"
            row = f"{len(body) / 1024:>9.1f}{parse_s * 1e6:>10.1f}{added * 1e6:>10.1f}"
            print(f"{label:<30}{row}   {added / parse_s:.2f}")


if __name__ == "__main__":
    main()
