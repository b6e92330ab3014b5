"""Measure the cost of a healthy request, without the bare app, relative to one orjson parse of its body.

    python -m benchmarks.histories [--rounds 101] [--messages 4 20 200 400] [--result 3036]

In process, under the default settings: the added time is for reading the request, finding its lane and timeline, and
storing the answer's results. Every other message of the history is a result of 3 KB (`--result`: its characters).
`kept` and `none kept`: with the last request of the session in memory, and without it (`max_kept_bytes: 0`). Rows for
each request:

    first          the session is unknown; the app answers with a text
    restart        the same, as the second request of a new middleware; a text
    second         it continues a session with one earlier request; a text
    later, call    it continues a session, and the app answers with a call
    later, text    it continues a session, and the app answers with a text
    later, user    it continues a session with a new user message, and the app answers with a text

`one tool`: all calls use one tool; otherwise five tools in turn. A continued session has a dozen earlier requests, each
with the rounds of the one before. The app answers without streaming. The runs are interleaved; the figures are medians
of CPU time. The goal is for 200 messages.
"""

import argparse
import asyncio
import json
import statistics
import time
from itertools import product
from typing import Any, Final, NamedTuple, Protocol

import orjson

from benchmarks.driving import Message, Receive, Scope, Send, timed
from callfuse import CallFuseMiddleware

GOAL: Final = 2.6
"""The goal, in parses of the body."""

PROSE: Final = "The quick brown fox jumps over the lazy dog while the build goes on. "
RESULT: Final = 44 * len(PROSE)
"""The default number of characters of a result."""

CONFIGS: Final[tuple[dict[str, Any], ...]] = ({}, {"tool_call_loop": {"max_kept_bytes": 0}})

EARLIER = 12
"""The number of earlier requests in a continued session."""

SPOKEN = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks. And the other one?"}]


class Row(NamedTuple):
    """The known part of a session, and its next request."""

    earlier: int = 0
    spoken: bool = False
    calls: bool = False
    restarted: bool = False


ROWS: Final = {
    "first": Row(),
    "restart": Row(restarted=True),
    "second": Row(earlier=1),
    "later, call": Row(EARLIER, calls=True),
    "later, text": Row(EARLIER),
    "later, user": Row(EARLIER, spoken=True),
}


class Wire(Protocol):
    """One vendor's requests and answers."""

    name: str
    path: str

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """Return a request whose history has `rounds` rounds of `kinds` tools in turn, and a new user message if
        `spoken`."""
        ...

    def answer(self, call: int | None, kinds: int) -> bytes:
        """Return a whole answer: the call of this round, or a text."""
        ...


def _result(at: int, length: int) -> str:
    """Return a result of `length` characters, different in each round."""
    return f"{at}: {PROSE * (length // len(PROSE) + 1)}"[:length]


class Chat:
    """OpenAI chat completions. `result`: characters of each result."""

    name, path = "openai-chat", "/v1/chat/completions"

    def __init__(self, result: int = RESULT) -> None:
        self._result = result

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """Return a request."""
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
            history.append({"role": "tool", "tool_call_id": f"call_{n}", "content": _result(n, self._result)})
        said = SPOKEN if spoken else []
        return json.dumps({"model": "gpt-test", "messages": history + said, "tools": tools}).encode()

    def answer(self, call: int | None, kinds: int) -> bytes:
        """Return a whole answer."""
        message = {"role": "assistant", "content": "It is done."} if call is None else self._turn(call, kinds)
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-test"}
        return orjson.dumps(head | {"choices": [choice]})

    def _turn(self, at: int, kinds: int) -> dict[str, Any]:
        function = {"name": f"tool_{at % kinds}", "arguments": json.dumps({"path": f"src/file_{at}.py", "line": at})}
        call = {"id": f"call_{at}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


class Messages:
    """Anthropic messages. `result`: characters of each result."""

    name, path = "anthropic", "/v1/messages"

    def __init__(self, result: int = RESULT) -> None:
        self._result = result

    def body(self, rounds: int, kinds: int, *, spoken: bool) -> bytes:
        """Return a request."""
        tools = [{"name": f"tool_{n}", "input_schema": {"type": "object"}} for n in range(kinds)]
        history: list[object] = [{"role": "user", "content": "Fix it."}]
        for n in range(rounds):
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": _result(n, self._result)}
            history.append({"role": "assistant", "content": [self._use(n, kinds)]})
            history.append({"role": "user", "content": [result]})
        said = SPOKEN if spoken else []
        body = {"model": "claude-test", "max_tokens": 1000, "system": "You are an agent. " * 100}
        return json.dumps(body | {"messages": history + said, "tools": tools}).encode()

    def answer(self, call: int | None, kinds: int) -> bytes:
        """Return a whole answer."""
        block = {"type": "text", "text": "It is done."} if call is None else self._use(call, kinds)
        head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-test", "content": [block]}
        end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        return orjson.dumps(head | end)

    def _use(self, at: int, kinds: int) -> dict[str, Any]:
        arguments = {"path": f"file_{at}.py", "line": at}
        return {"type": "tool_use", "id": f"t{at}", "name": f"tool_{at % kinds}", "input": arguments}


class App:
    """An app that reads its request and returns this whole answer."""

    answer: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        message: Message = await receive()
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": self.answer, "more_body": False})


class Figures(NamedTuple):
    """Bytes of a request; median seconds that callfuse adds to it under each of `CONFIGS`, and those of one orjson
    parse."""

    size: int
    added_s: tuple[float, ...]
    parse_s: float


async def measured(wire: Wire, history: int, kinds: int, row: Row, rounds: int) -> Figures:
    """Return the figures of a request whose history has `history` rounds of `kinds` tools."""
    app = App()
    all_guarded = [CallFuseMiddleware(app, config) for config in CONFIGS]
    bare_s: list[float] = []
    guarded_s: list[list[float]] = [[] for _ in CONFIGS]
    parse_s: list[float] = []
    before = [
        (wire.body(at, kinds, spoken=False), wire.answer(at, kinds))
        for at in range(max(0, history - row.earlier), history)
    ]
    if row.spoken:
        before.append((wire.body(history, kinds, spoken=False), wire.answer(None, kinds)))
    body = wire.body(history, kinds, spoken=row.spoken)
    for at in range(rounds):
        headers = [(b"x-callfuse-session-id", b"%d" % at)]
        if row.restarted:
            all_guarded = [CallFuseMiddleware(app, config) for config in CONFIGS]
            for guarded in all_guarded:  # warms up work that is done once per process
                await timed(guarded, wire.path, wire.body(1, kinds, spoken=False))
        for guarded in all_guarded:
            for earlier, answer in before:
                app.answer = answer
                await timed(guarded, wire.path, earlier, headers)
        app.answer = wire.answer(history if row.calls else None, kinds)
        bare_s.append(await timed(app, wire.path, body, headers))
        for number in (0, 1) if at % 2 else (1, 0):  # the second one has warm CPU caches
            guarded_s[number].append(await timed(all_guarded[number], wire.path, body, headers))
        begin = time.process_time()
        orjson.loads(body)
        parse_s.append(time.process_time() - begin)
    median = statistics.median
    return Figures(len(body), tuple([median(taken_s) - median(bare_s) for taken_s in guarded_s]), median(parse_s))


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--messages", type=int, nargs="+", default=[4, 20, 200, 400])
    parser.add_argument("--result", type=int, default=RESULT)
    options = parser.parse_args(arguments)
    print(f"{'request':<48}{'body KB':>9}{'parse us':>10}{'kept us':>10}{'none kept':>10}   kept, none kept / parse")
    wires: tuple[Wire, ...] = (Chat(options.result), Messages(options.result))
    for messages, wire, kinds, name in product(options.messages, wires, (5, 1), ROWS):
        figures = asyncio.run(measured(wire, messages // 2 - 1, kinds, ROWS[name], options.rounds))
        label = f"{wire.name}, {messages} messages, {'one tool, ' if kinds == 1 else ''}{name}"
        ratio, without = (added_s / figures.parse_s for added_s in figures.added_s)
        shown = f"{figures.size / 1024:>9.1f}{figures.parse_s * 1e6:>10.1f}"
        shown += "".join(f"{added_s * 1e6:>10.1f}" for added_s in figures.added_s)
        over = "  over" if messages == 200 and ratio > GOAL else ""
        print(f"{label:<48}{shown}   {ratio:.2f}, {without:.2f}{over}", flush=True)


if __name__ == "__main__":
    main()
