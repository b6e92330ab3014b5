"""What a healthy request costs beyond the bare app, against one orjson parse of its body.

    python -m benchmarks.histories [--rounds 101] [--tools 5] [--mode chance_then_block]

In process: the added time is reading the request, finding its lane and timeline, and keeping what the answer brings.
Every other message of the history is a result of 3 KB. Four rows for each request:

    call     it goes on a session, and the app answers with a call
    text     it goes on a session, and the app answers with a text
    user     it goes on a session in which the user has just spoken, and the app answers with a text
    first    nothing is known of its session, as after a restart, and the app answers with a text: errors are looked for
             in the whole history, in all results where one tool has several rounds in a row (`--tools 1`)

A session that goes on has had a dozen requests before, each with the rounds of the one before it. The app answers
whole. The runs are interleaved; the figures are medians of CPU time.
"""

import argparse
import asyncio
import json
import statistics
import time
from itertools import product
from typing import Any, Protocol

import orjson

from benchmarks.chunks import timed
from callfuse import CallFuseMiddleware
from callfuse.asgi.types import Message, Receive, Scope, Send

RESULT = "The quick brown fox jumps over the lazy dog while the build goes on. " * 44
"""A result of 3 KB."""

EARLIER = 12
"""Requests of a session before the one that is measured."""

SPOKEN = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks. And the other one?"}]


class Wire(Protocol):
    """One vendor's requests and answers."""

    name: str
    path: str

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """A request whose history has so many rounds of so many tools by turns, and what the user has said since."""
        ...

    def answer(self, call: int | None, kinds: int) -> bytes:
        """A whole answer: the call of this round, or a text."""
        ...


class Chat:
    """OpenAI chat completions."""

    name, path = "openai-chat", "/v1/chat/completions"

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """A request."""
        tools = [
            {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}}
            for n in range(kinds)
        ]
        history: list[object] = [
            {"role": "system", "content": "You are an agent. " * 100},
            {"role": "user", "content": "Fix it."},
        ]
        for n in range(rounds):
            history.append(self._turn(n, kinds))
            history.append({"role": "tool", "tool_call_id": f"call_{n}", "content": f"{n}: {RESULT}"})
        said = SPOKEN if spoken else []
        return json.dumps({"model": "gpt-test", "messages": history + said, "tools": tools}).encode()

    def answer(self, call: int | None, kinds: int) -> bytes:
        """A whole answer."""
        message = {"role": "assistant", "content": "It is done."} if call is None else self._turn(call, kinds)
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-test"}
        return orjson.dumps(head | {"choices": [choice]})

    def _turn(self, at: int, kinds: int) -> dict[str, Any]:
        function = {"name": f"tool_{at % kinds}", "arguments": json.dumps({"path": f"src/file_{at}.py", "line": at})}
        call = {"id": f"call_{at}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


class Messages:
    """Anthropic messages."""

    name, path = "anthropic", "/v1/messages"

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """A request."""
        tools = [{"name": f"tool_{n}", "input_schema": {"type": "object"}} for n in range(kinds)]
        history: list[object] = [{"role": "user", "content": "Fix it."}]
        for n in range(rounds):
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{n}: {RESULT}"}
            history.append({"role": "assistant", "content": [self._use(n, kinds)]})
            history.append({"role": "user", "content": [result]})
        said = SPOKEN if spoken else []
        body = {"model": "claude-test", "max_tokens": 1000, "system": "You are an agent. " * 100}
        return json.dumps(body | {"messages": history + said, "tools": tools}).encode()

    def answer(self, call: int | None, kinds: int) -> bytes:
        """A whole answer."""
        block = {"type": "text", "text": "It is done."} if call is None else self._use(call, kinds)
        head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-test", "content": [block]}
        end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        return orjson.dumps(head | end)

    def _use(self, at: int, kinds: int) -> dict[str, Any]:
        arguments = {"path": f"file_{at}.py", "line": at}
        return {"type": "tool_use", "id": f"t{at}", "name": f"tool_{at % kinds}", "input": arguments}


class App:
    """An app that reads its request and gives this whole answer."""

    answer: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange."""
        message: Message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": self.answer, "more_body": False})


async def measured(wire: Wire, rounds: int, row: str, options: argparse.Namespace) -> tuple[int, float, float]:
    """Bytes of the request, and median seconds: what callfuse adds to it, and one orjson parse."""
    app, kinds = App(), options.tools
    guarded = CallFuseMiddleware(app, {"tool_call_loop": {"mode": options.mode}})
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    before = [
        (wire.body(at, kinds, spoken=False), wire.answer(at, kinds)) for at in range(max(0, rounds - EARLIER), rounds)
    ]
    if row == "user":
        before.append((wire.body(rounds, kinds, spoken=False), wire.answer(None, kinds)))
    body = wire.body(rounds, kinds, spoken=row == "user")
    for at in range(options.rounds):
        headers = [(b"x-callfuse-session-id", b"%d" % at)]
        for earlier, answer in before if row != "first" else ():
            app.answer = answer
            await timed(guarded, wire.path, earlier, headers)
        app.answer = wire.answer(rounds if row == "call" else None, kinds)
        times[0].append(await timed(app, wire.path, body, headers))
        times[1].append(await timed(guarded, wire.path, body, headers))
        begin = time.process_time()
        orjson.loads(body)
        times[2].append(time.process_time() - begin)
    bare_s, guarded_s, parse_s = (statistics.median(values) for values in times)
    return len(body), guarded_s - bare_s, parse_s


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--tools", type=int, default=5)
    parser.add_argument("--mode", default="chance_then_block")
    options = parser.parse_args(arguments)
    print(f"{'request':<34}{'body KB':>9}{'parse us':>10}{'added us':>10}   added / parse")
    wires: tuple[Wire, ...] = (Chat(), Messages())
    for messages, wire, row in product((4, 20, 200, 400), wires, ("call", "text", "user", "first")):
        size, added_s, parse_s = asyncio.run(measured(wire, messages // 2 - 1, row, options))
        label = f"{wire.name}, {messages} messages, {row}"
        figures = f"{size / 1024:>9.1f}{parse_s * 1e6:>10.1f}{added_s * 1e6:>10.1f}"
        print(f"{label:<34}{figures}   {added_s / parse_s:.2f}")


if __name__ == "__main__":
    main()
