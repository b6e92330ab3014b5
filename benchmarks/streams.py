"""Define the streams of `benchmarks.soak`: the kind of each, the vendor's answer, and what its client must get.

A stream and its answer are functions of a seed and a number. The vendor recognises a stream by the model's name.
"""

import asyncio
import json
import random
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import uvicorn

from benchmarks.driving import Message, Receive, Scope, Send, scope_of
from callfuse.model import MARKER
from callfuse.testing import Answer, Call, Fault, ScriptedVendor, VendorRequest

Kind = Literal["healthy", "loops", "dies", "dies in hold", "leaves", "leaves in hold", "aborts"]
FAULTY: Final[tuple[Kind, ...]] = ("loops", "dies", "dies in hold", "leaves", "leaves in hold", "aborts")
PATHS: Final = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
MOST_STREAMS: Final = 2000
RAMP_S: Final = 2.0
"""The time in which the streams begin, one after another."""
STREAM_S: Final = 120.0
"""The longest that one stream may take."""
RESULT: Final = "The quick brown fox jumps over the lazy dog while the build goes on. " * 15
REPEATED: Final = Call("search_web", {"query": "the zebra crossing", "limit": 5})
CALL_MARK: Final = b"scripted_1_0_0"
"""A part of the id of the first call in an answer of the scripted vendor."""
UPLOAD: Final = 200_000
"""The declared bytes of an aborted upload, which sends half of them."""
REPEATING: Final = b'{"model": "soak:loops:0", "stream": true, "messages": []}'
BEFORE_END: Final = {"openai-chat": 3, "anthropic": 4}
"""The number of frames at the end of an answer that are needed for a complete call."""
RESET: Final = struct.pack("ii", 1, 0)
"""The value of `SO_LINGER` that makes closing a socket reset the connection."""


class Plan(NamedTuple):
    """The plan of one stream: its kind, its number, and the number of rounds of its conversation."""

    kind: Kind
    number: int
    dialect: str
    rounds: int

    @property
    def model(self) -> str:
        """The name of the model, which selects the vendor's answer."""
        return f"soak:{self.kind}:{self.number}"


def plan(seed: int, number: int, share: float) -> Plan:
    """Return the plan of the stream with this number."""
    dice = random.Random(f"{seed} {number}")
    drawn = dice.random()
    kind: Kind = FAULTY[int(drawn / share)] if drawn < share * len(FAULTY) else "healthy"
    return Plan(kind, number, dice.choice(list(PATHS)), dice.randrange(8))


def answer(model: str, dialect: str) -> Answer | Fault:
    """Return the vendor's answer: text, and a call that is new except in loops."""
    _, kind, number = model.split(":")
    text = f"Number {number} looks at it. " * 6
    loop = Answer(text, [REPEATED])
    if kind in ("loops", "leaves in hold"):
        return loop
    if kind == "dies in hold":
        return Fault.cut(loop, after_frames=len(frames(REPEATING, dialect)) - BEFORE_END[dialect])
    if kind == "dies":
        return Fault.cut(Answer(text), after_frames=7)
    return Answer(text, [Call("search_web", {"query": f"number {number}", "page": int(number)})])


def script(request: VendorRequest) -> Answer | Fault:
    """Return the vendor's script, a function of the model's name."""
    return answer(request.model, request.dialect)


def body_of(one: Plan) -> bytes:
    """Return the client's request."""
    loops = one.kind in ("loops", "dies in hold", "leaves in hold")
    calls = [Call("read_file", {"path": f"src/{one.number}/{at}.py"}) for at in range(one.rounds)]
    calls += [REPEATED] * 2 if loops else []
    results = [RESULT + str(at) for at in range(one.rounds)] + (["nothing was found"] * 2 if loops else [])
    talk = _chat if one.dialect == "openai-chat" else _messages
    return json.dumps({"model": one.model, "stream": True, **talk(calls, results, one.number)}).encode()


def _chat(calls: list[Call], results: list[str], number: int) -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": f"Fix issue {number % MOST_STREAMS}."}]
    for at, (call, result) in enumerate(zip(calls, results, strict=True)):
        made = {"id": f"call_h{at}", "type": "function", "function": {"name": call.name, "arguments": call.text}}
        said.append({"role": "assistant", "content": None, "tool_calls": [made]})
        said.append({"role": "tool", "tool_call_id": f"call_h{at}", "content": result})
    tools = [{"type": "function", "function": {"name": name}} for name in ("search_web", "read_file")]
    return {"messages": said, "tools": tools}


def _messages(calls: list[Call], results: list[str], number: int) -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": f"Fix issue {number % MOST_STREAMS}."}]
    for at, (call, result) in enumerate(zip(calls, results, strict=True)):
        made = {"type": "tool_use", "id": f"toolu_h{at}", "name": call.name, "input": json.loads(call.text)}
        told = {"type": "tool_result", "tool_use_id": f"toolu_h{at}", "content": result}
        said += [{"role": "assistant", "content": [made]}, {"role": "user", "content": [told]}]
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("search_web", "read_file")]
    return {"messages": said, "tools": tools, "max_tokens": 1000}


def frames(body: bytes, dialect: str) -> list[bytes]:
    """Return the frames of the answer to a request, as the vendor sends them."""
    found: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message.get("body"):
            found.append(message["body"])

    answered = ScriptedVendor(script)(scope_of(PATHS[dialect]), receive, send)
    try:
        answered.send(None)
    except StopIteration:
        return found
    raise RuntimeError("the scripted vendor waits for something")


async def vend(pause_s: float) -> None:
    """Serve as the vendor until terminated. The address is the first line of the output. SIGUSR1 resets all of its
    connections, and prints their number."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # A new vendor for each request, so that the request numbers in ids are always 1.
        await ScriptedVendor(script, chunk_delay_s=pause_s)(scope, receive, send)

    def reset() -> None:
        transports = [connection.transport for connection in server.server_state.connections]
        for transport in transports:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            transport.abort()
        loop.call_soon(lambda: print(f"reset {len(transports)}", flush=True))  # after they are closed

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, reset)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off", backlog=2048))
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await server.serve(sockets=[listener])


@dataclass(eq=False, slots=True)
class Stream:
    """A running stream: its client's port once it is connected, and whether a kill may have cut it."""

    plan: Plan
    port: int = 0
    may_be_cut: bool = False


class Seen(NamedTuple):
    """The answer that a client got: the status, the body so far, and whether it is complete."""

    status: int
    body: bytes
    complete: bool


async def ask(url: str, stream: Stream) -> Seen:
    """Run one stream on its own connection."""
    one = stream.plan
    host, port = url.removeprefix("http://").split(":")
    body = body_of(one)
    if one.kind == "aborts":
        body += b" " * (UPLOAD - len(body))
    head = (
        f"POST {PATHS[one.dialect]} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer k\r\nx-callfuse-session-id: {one.number % MOST_STREAMS}\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    stream.port = writer.get_extra_info("sockname")[1]
    try:
        writer.write(head + (body[: UPLOAD // 2] if one.kind == "aborts" else body))
        await writer.drain()
        return Seen(0, b"", complete=False) if one.kind == "aborts" else await _read(reader, leave_at(one))
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, last: bytes) -> Seen:
    body, complete, status = b"", False, 0
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            return Seen(status, await reader.read(), complete=True)
        while not (last and last in body):
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                complete = True
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    return Seen(status, body, complete)


def fault(one: Plan, seen: Seen) -> str:
    """Return what is wrong with a client's answer; empty if nothing is."""
    if one.kind == "aborts":
        return ""
    if seen.status != 200:
        return f"status {seen.status}: {seen.body[:300]!r}"
    expected = b"".join(frames(body_of(one), one.dialect))
    if one.kind == "loops":
        text = MARKER.encode() in seen.body and CALL_MARK not in seen.body
        return "" if text and seen.complete else f"not caught: {seen.body[-300:]!r}"
    if one.kind.startswith("leaves"):
        return "" if expected.startswith(seen.body) else "bytes that are not the vendor's"
    if seen.body != expected:
        return f"{len(seen.body)} bytes for {len(expected)}, ending {seen.body[-100:]!r}"
    return "" if seen.complete is (one.kind == "healthy") else f"complete: {seen.complete}"


def fault_of_cut(one: Plan, seen: Seen) -> str:
    """Return what is wrong with the answer of a stream that a kill may have cut. Correct is an incomplete answer with
    the vendor's bytes, or callfuse's error that the vendor is gone."""
    if one.kind == "aborts":
        return ""
    if seen.status == 200 and seen.complete:
        return fault(one, seen)
    if seen.status not in (0, 200, 502):
        return f"status {seen.status}: {seen.body[:300]!r}"
    sent = frames(body_of(one), one.dialect)
    if one.kind == "loops":  # the model may have been asked again; held bytes are sent if its answer breaks off
        return f"not caught: {seen.body[-300:]!r}" if CALL_MARK in seen.body and sent[-1] in seen.body else ""
    return "" if seen.status == 502 or b"".join(sent).startswith(seen.body) else "bytes that are not the vendor's"


@dataclass
class Load:
    """The streams of one load. It lasts until `is_over`."""

    url: str
    seed: int
    share: float
    numbers: Iterator[int]
    begun_s: float = field(default_factory=time.monotonic)
    done: Counter[Kind] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    running: set[Stream] = field(default_factory=set)
    most_open: int = 0
    cut_ports: set[int] = field(default_factory=set)
    """The ports of clients whose streams a kill may cut."""
    may_cut_all: bool = False
    """Set while it is not known yet which streams a kill has cut."""
    cut: int = 0
    is_over: bool = False

    async def run(self, streams: int) -> None:
        """Run `streams` streams at a time; when one ends, another begins."""
        async with asyncio.TaskGroup() as tasks:
            for at in range(streams):
                tasks.create_task(self._place(at / streams * RAMP_S))

    def progress(self, count: int, seconds: float) -> float:
        """Return the finished part of the load, from 0 to 1: by the number of its streams, or by the time if `count` is
        0."""
        return self.done.total() / count if count else (time.monotonic() - self.begun_s) / seconds

    async def _place(self, begins_s: float) -> None:
        await asyncio.sleep(begins_s)
        while not self.is_over:
            stream = Stream(plan(self.seed, next(self.numbers), self.share))
            self.running.add(stream)
            self.most_open = max(len(self.running), self.most_open)
            wrong = await self._outcome(stream)
            self.running.discard(stream)
            self.done[stream.plan.kind] += 1
            if wrong:
                self.faults[f"{stream.plan.kind}: {wrong}"] += 1

    async def _outcome(self, stream: Stream) -> str:
        """Return what is wrong with a stream; empty if nothing is."""
        seen, error = Seen(0, b"", complete=False), ""
        try:
            async with asyncio.timeout(STREAM_S):
                seen = await ask(self.url, stream)
        except TimeoutError:
            return f"no end within {STREAM_S:g} s"
        except OSError as failure:
            error = f"{type(failure).__name__} {failure}"
        wrong = error or fault(stream.plan, seen)
        if wrong and (self.may_cut_all or stream.may_be_cut or stream.port in self.cut_ports):
            self.cut += 1
            return fault_of_cut(stream.plan, seen)
        return wrong


def leave_at(one: Plan) -> bytes:
    """Return the text at which a client disconnects."""
    if one.kind == "leaves":
        return b"looks at"
    return b"at it" if one.kind == "leaves in hold" else b""
