"""Count the calls of callfuse's own functions in one exchange, and the files with these functions.

    python -m benchmarks.ways [--functions WAY | --rooms WAY]

In process, under the default settings unless a row says otherwise, by cProfile, after a few exchanges of the same kind.
These counts do not depend on the machine or its load, so `tests/project/test_ways.py` has limits for them. The ways of
data:

    short         a stream of 10 chunks of text, one tool, a new conversation
    long          a text in 600 events, in pieces of 4 KB that end anywhere
    agent         40 messages and 10 tools, a new conversation; the same answer
    longer        an agent's 20th to 23rd request, each with all before; the answer is a call in 20 pieces
    call          10 tools, a new conversation; the answer is a call in 40 pieces, a frame a chunk
    coalesced     the same, four frames a chunk
    held          under `block`: a call in 40 pieces that differs from a loop only in its last piece
    blocked       a looping call in 40 pieces; the model is asked again, and repeats it

`--functions` prints the functions of one way, by calls; `--rooms` prints the packages, by their share of the time that
160 exchanges spend in Python functions, under the profiler.
"""

import argparse
import asyncio
import cProfile
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import callfuse
from benchmarks.driving import Message, Receive, Scope, Send, scope_of
from callfuse import CallFuseMiddleware

HOME: Final = str(Path(callfuse.__file__).parent)
PATH: Final = "/v1/chat/completions"
BEFORE: Final = 3
"""The number of exchanges of the same kind before the measured ones."""
MEASURED: Final = 4
"""The number of measured exchanges, whose mean is reported."""
RUNS: Final = 40
"""How often the exchanges are repeated to divide their time by packages."""


@dataclass(frozen=True)
class Exchange:
    """The body of one request, and the chunks of the app's successive answers to it."""

    body: bytes
    answer: Sequence[bytes]


@dataclass(frozen=True)
class Way:
    """The exchanges of each session (`sessions`), of which the last `MEASURED` are measured."""

    sessions: Callable[[], Iterator[Exchange]]
    config: dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """The calls of callfuse's own functions in one exchange, and their files."""

    calls: int
    files: int
    functions: Counter[str]


def _frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _text() -> list[bytes]:
    return [*[_frame({"content": f"word {at} "}) for at in range(8)], _frame({}, "stop"), b"data: [DONE]\n\n"]


def _pieces(call_id: str, name: str, arguments: str, pieces: int) -> list[bytes]:
    """Return the frames of an answer with one call, its arguments in `pieces` pieces."""
    opening = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    size = -(-len(arguments) // pieces)
    parts = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    grown = [_frame({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in parts]
    return [_frame({"tool_calls": [opening]}), *grown, _frame({}, "tool_calls"), b"data: [DONE]\n\n"]


def _tools(count: int) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": f"tool_{at}", "description": "It does.", "parameters": parameters}}
        for at in range(count)
    ]


def _round(at: int, name: str, arguments: str, result: str) -> list[dict[str, Any]]:
    call = {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{at}", "content": result},
    ]


def _body(session: int, tools: int, rounds: Sequence[list[dict[str, Any]]]) -> bytes:
    opening = {"role": "user", "content": f"Please look into the matter number {session}."}
    messages = [opening, *[message for one in rounds for message in one]]
    return json.dumps({"model": "m", "stream": True, "tools": _tools(tools), "messages": messages}).encode()


def _news(at: int) -> list[dict[str, Any]]:
    """Return a round with a new call and a new result."""
    return _round(at, f"tool_{at % 10}", json.dumps({"query": f"part {at}"}), f"Found the part {at} in the shop.")


def _long_arguments(end: str) -> str:
    """Return arguments of 400 characters with this end."""
    return json.dumps({"query": "a" * (385 - len(end)) + end})


def _loop(end: str, rounds: int) -> list[list[dict[str, Any]]]:
    return [_round(at, "tool_1", _long_arguments(end), "Nothing has changed.") for at in range(rounds)]


def _short() -> Iterator[Exchange]:
    for session in range(BEFORE + MEASURED):
        yield Exchange(_body(session, 1, ()), _text())


def _long() -> Iterator[Exchange]:
    answer = b"".join([_frame({"content": f"word {at} "}) for at in range(600)] + _text()[-2:])
    pieces = [answer[at : at + 4096] for at in range(0, len(answer), 4096)]
    for session in range(BEFORE + MEASURED):
        yield Exchange(_body(session, 1, ()), pieces)


def _agent() -> Iterator[Exchange]:
    for session in range(BEFORE + MEASURED):
        yield Exchange(_body(session, 10, [_news(at) for at in range(20)][:20]), _text())


def _longer() -> Iterator[Exchange]:
    for rounds in range(19 + MEASURED):
        arguments = json.dumps({"query": f"part {rounds}"})
        answer = _pieces(f"call_{rounds}", f"tool_{rounds % 10}", arguments, 20)
        yield Exchange(_body(0, 10, [_news(at) for at in range(rounds)]), answer)


def _call(frames: int) -> Iterator[Exchange]:
    for session in range(BEFORE + MEASURED):
        answer = _pieces("call_1", "tool_1", _long_arguments("z"), 40)
        chunks = [b"".join(answer[at : at + frames]) for at in range(0, len(answer), frames)]
        yield Exchange(_body(session, 10, ()), chunks)


def _held() -> Iterator[Exchange]:
    for session in range(BEFORE + MEASURED):
        yield Exchange(_body(session, 10, _loop("y", 2)), _pieces("call_2", "tool_1", _long_arguments("z"), 40))


def _blocked() -> Iterator[Exchange]:
    for session in range(BEFORE + MEASURED):
        yield Exchange(_body(session, 10, _loop("y", 2)), _pieces("call_2", "tool_1", _long_arguments("y"), 40))


WAYS: Final = {
    "short": Way(_short, {}),
    "long": Way(_long, {}),
    "agent": Way(_agent, {}),
    "longer": Way(_longer, {}),
    "call": Way(lambda: _call(1), {}),
    "coalesced": Way(lambda: _call(4), {}),
    "held": Way(_held, {"mode": "block"}),
    "blocked": Way(_blocked, {}),
}


class _App:
    """Answers each request with the next chunks of the current exchange."""

    def __init__(self) -> None:
        self.answer: Sequence[bytes] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in self.answer:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _exchange(app: CallFuseMiddleware, body: bytes) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        """Drop a message."""

    await app(scope_of(PATH, ((b"content-type", b"application/json"),)), receive, send)


async def drive(way: Way, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Send the exchanges of a way to a guarded app, and call `begin` and `end` around each measured one."""
    app = _App()
    guarded = CallFuseMiddleware(app, {"tool_call_loop": way.config})
    exchanges = list(way.sessions())
    for one in exchanges[:-MEASURED]:
        app.answer = one.answer
        await _exchange(guarded, one.body)
    for one in exchanges[-MEASURED:]:
        app.answer = one.answer
        begin()
        await _exchange(guarded, one.body)
        end()


def measure(name: str) -> Cost:
    """Return the cost of an exchange on one of the `WAYS`."""
    profile = cProfile.Profile(builtins=False)
    asyncio.run(drive(WAYS[name], profile.enable, profile.disable))
    functions: Counter[str] = Counter()
    files: set[str] = set()
    for entry in profile.getstats():
        code = entry.code
        if not isinstance(code, str) and code.co_filename.startswith(HOME):
            file = code.co_filename.removeprefix(HOME)
            files.add(file)
            functions[f"{file}:{code.co_firstlineno} {code.co_name}"] += entry.callcount
    return Cost(round(functions.total() / MEASURED), len(files), functions)


def share_of_rooms(name: str) -> dict[str, float]:
    """The time of an exchange on one of the `WAYS` by callfuse's packages, in parts of 1; what is not callfuse's is
    `other`."""
    profile = cProfile.Profile(time.process_time, builtins=False)
    for _ in range(RUNS):
        asyncio.run(drive(WAYS[name], profile.enable, profile.disable))
    seconds = defaultdict[str, float](float)
    for entry in profile.getstats():
        file = "" if isinstance(entry.code, str) else entry.code.co_filename
        room = file.removeprefix(HOME).strip("/").partition("/")[0] if file.startswith(HOME) else "other"
        seconds[room] += entry.inlinetime
    total = sum(seconds.values())
    return {room: spent / total for room, spent in seconds.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    detail = parser.add_mutually_exclusive_group()
    detail.add_argument("--functions", choices=list(WAYS))
    detail.add_argument("--rooms", choices=list(WAYS))
    options = parser.parse_args()
    if options.functions is not None:
        for name, calls in measure(options.functions).functions.most_common():
            print(f"{calls / MEASURED:9.1f}  {name}")
        return
    if options.rooms is not None:
        for room, share in sorted(share_of_rooms(options.rooms).items(), key=lambda one: -one[1]):
            print(f"{share:6.1%}  {room}")
        return
    print(f"{'way':12} {'calls':>7} {'files':>6}")
    for name in WAYS:
        cost = measure(name)
        print(f"{name:12} {cost.calls:7} {cost.files:6}")


if __name__ == "__main__":
    main()
