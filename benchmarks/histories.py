"""What a healthy request costs beyond the bare app, against one orjson parse of its body.

    python -m benchmarks.histories [--rounds 301] [--tools 5] [--mode chance_then_block]

In process: the added time is reading the request, finding its lane and timeline, and keeping what the answer brings.
Every other message of the history is a result of 3 KB. Four rows for each request, by what comes:

    call     the app answers with a call
    text     the app answers with a text
    user     the user has spoken since the last result, and the app answers with a text
    first    as `text`, in a conversation that the ledger does not know: errors are looked for in all of its results
             if one tool has several rounds in a row (`--tools 1`), and only in what is new once that is done

The app answers whole. The runs are interleaved; the figures are medians of CPU time.
"""

import argparse
import asyncio
import json
import statistics
import time
from itertools import product

import orjson

from benchmarks.chunks import timed
from callfuse import CallFuseMiddleware
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send

RESULT = "The quick brown fox jumps over the lazy dog while the build goes on. " * 44
"""A result of 3 KB."""

SPOKEN = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks. And the other one?"}]


def chat_history(messages: int, kinds: int, *, spoken: bool) -> bytes:
    """A user message, then calls of so many tools by turns, each with a result of its own."""
    tools = [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}} for n in range(kinds)
    ]
    history: list[object] = [
        {"role": "system", "content": "You are an agent. " * 100},
        {"role": "user", "content": "Fix it."},
    ]
    for n in range((messages - 2) // 2):
        function = {"name": f"tool_{n % kinds}", "arguments": json.dumps({"path": f"src/file_{n}.py", "line": n})}
        history.append({"role": "assistant", "content": None,
                        "tool_calls": [{"id": f"call_{n}", "type": "function", "function": function}]})  # fmt: skip
        history.append({"role": "tool", "tool_call_id": f"call_{n}", "content": f"{n}: {RESULT}"})
    said = SPOKEN if spoken else []
    return json.dumps({"model": "gpt-test", "messages": history + said, "tools": tools}).encode()


def anthropic_history(messages: int, kinds: int, *, spoken: bool) -> bytes:
    """The same for Anthropic."""
    tools = [{"name": f"tool_{n}", "input_schema": {"type": "object"}} for n in range(kinds)]
    history: list[object] = [{"role": "user", "content": "Fix it."}]
    for n in range((messages - 1) // 2):
        use = {
            "type": "tool_use",
            "id": f"t{n}",
            "name": f"tool_{n % kinds}",
            "input": {"path": f"file_{n}.py", "line": n},
        }
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{n}: {RESULT}"}
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"model": "claude-test", "max_tokens": 1000, "system": "You are an agent. " * 100}
    said = SPOKEN if spoken else []
    return json.dumps(body | {"messages": history + said, "tools": tools}).encode()


def app_of(answer: bytes) -> ASGIApp:
    """An app that reads its request and gives this whole answer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    return app


def chat_answer(message: dict[str, object]) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-test"}
    return orjson.dumps(head | {"choices": [choice]})


def anthropic_answer(block: dict[str, object]) -> bytes:
    """A whole answer."""
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-test", "content": [block]}
    end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return orjson.dumps(head | end)


_CALL = {"id": "call_new", "type": "function", "function": {"name": "tool_0", "arguments": '{"path": "new.py"}'}}
CHAT_CALL = chat_answer({"content": None, "tool_calls": [_CALL]})
CHAT_TEXT = chat_answer({"content": "It is done."})
ANTHROPIC_CALL = anthropic_answer({"type": "tool_use", "id": "t_new", "name": "tool_0", "input": {"path": "new.py"}})
ANTHROPIC_TEXT = anthropic_answer({"type": "text", "text": "It is done."})


DIALECTS = (
    ("openai-chat", "/v1/chat/completions", chat_history, CHAT_CALL, CHAT_TEXT),
    ("anthropic", "/v1/messages", anthropic_history, ANTHROPIC_CALL, ANTHROPIC_TEXT),
)


async def measured(
    path: str, body: bytes, answer: bytes, rounds: int, mode: str, *, known: bool
) -> tuple[float, float]:
    """Median seconds: what callfuse adds, and one orjson parse. `known`: it is one conversation throughout."""
    bare = app_of(answer)
    guarded = CallFuseMiddleware(bare, {"tool_call_loop": {"mode": mode}})
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    for at in range(rounds):
        headers = [(b"x-callfuse-session-id", b"%d" % (0 if known else at))]
        times[0].append(await timed(bare, path, body, headers))
        times[1].append(await timed(guarded, path, body, headers))
        begin = time.process_time()
        orjson.loads(body)
        times[2].append(time.process_time() - begin)
    bare_s, guarded_s, parse_s = (statistics.median(values) for values in times)
    return guarded_s - bare_s, parse_s


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=301)
    parser.add_argument("--tools", type=int, default=5)
    parser.add_argument("--mode", default="chance_then_block")
    options = parser.parse_args(arguments)
    print(f"{'request':<36}{'body KB':>9}{'parse us':>10}{'added us':>10}   added / parse")
    for messages, (name, path, history, call, text) in product((4, 20, 200, 400), DIALECTS):
        for row, answer, spoken, known in (
            ("call", call, False, True),
            ("text", text, False, True),
            ("user", text, True, True),
            ("first", text, False, False),
        ):
            body = history(messages, options.tools, spoken=spoken)
            added, parse = asyncio.run(measured(path, body, answer, options.rounds, options.mode, known=known))
            label = f"{name}, {messages} messages, {row}"
            figures = f"{len(body) / 1024:>9.1f}{parse * 1e6:>10.1f}{added * 1e6:>10.1f}"
            print(f"{label:<36}{figures}   {added / parse:.2f}")


if __name__ == "__main__":
    main()
