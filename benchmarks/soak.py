"""Hundreds of streams at once through `callfuse serve`, some of which go wrong: what comes, and what is left behind.

    python -m benchmarks.soak [--streams 500] [--seconds 60] [--waves 1] [--share 0.01] [--seed 1] [--pause 0.2]

Three processes on loopback: a scripted vendor (`callfuse.testing`), the command itself, and this one, which holds so
many streams open for so many seconds, one after another on each connection's place. Most are healthy. Of each kind
below there is the given share:

    loops           the model makes the same call again, whatever it is told
    dies            the vendor's connection ends in the midst of the answer
    dies in hold    it ends in the midst of a call that is held
    leaves          the client goes in the midst of the answer
    leaves in hold  it goes while a call is held
    aborts          it goes in the midst of its upload

Checked are: each healthy stream has the vendor's bytes and its end; of a loop nothing but callfuse's text arrives; an
answer that broke off has the vendor's bytes and no end. And, against a shorter load of the same shape: memory
(`--most-mb`), tasks, sockets and descriptors of the server when all is over, after several loads one after another
(`--waves`), too. Exit code 1 where anything is not so.

Everything ends by itself: the load after its time, the processes by an alarm.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from unittest.mock import patch

import uvicorn

from benchmarks.driving import Message, Receive, Scope, Send, scope_of
from benchmarks.proxy import READY, SETTINGS
from callfuse.__main__ import main as main_of_callfuse
from callfuse.cli import serve
from callfuse.model import MARKER
from callfuse.testing import Answer, Call, Fault, ScriptedVendor, VendorRequest

Kind = Literal["healthy", "loops", "dies", "dies in hold", "leaves", "leaves in hold", "aborts"]
FAULTY: Final[tuple[Kind, ...]] = ("loops", "dies", "dies in hold", "leaves", "leaves in hold", "aborts")
PATHS: Final = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages"}
ROOT: Final = Path(__file__).parents[1]
MOST_STREAMS: Final = 2000
MOST_SECONDS: Final = 7200.0
WARM_SHARE: Final = 0.4
"""Of the seconds, for the load before: caches, pools and the store's lanes are full then."""
RAMP_S: Final = 2.0
"""In which the streams begin, one after another."""
SETTLES_S: Final = 40.0
"""Within which all must be given back: an idle connection to the upstream is kept for a while."""
STREAM_S: Final = 120.0
"""The longest that one stream may take."""
GRACE_S: Final = 240
"""After the longest that a process could be needed for, the system ends it."""
RESULT: Final = "The quick brown fox jumps over the lazy dog while the build goes on. " * 15
REPEATED: Final = Call("search_web", {"query": "the zebra crossing", "limit": 5})
CALL_MARK: Final = b"scripted_1_0_0"
"""In the id of the first call of an answer of the scripted vendor."""
UPLOAD: Final = 200_000
"""Bytes of which an upload that is aborted brings half."""


TASKS_PATH: Final = "/soak/tasks"
"""Where the server tells of its tasks."""
REPEATING: Final = b'{"model": "soak:loops:0", "stream": true, "messages": []}'
BEFORE_END: Final = {"openai-chat": 3, "anthropic": 4}
"""Frames at the end of an answer without which its call is not complete."""
LOOK_S: Final = 20.0
START_S: Final = 60.0


class Plan(NamedTuple):
    """What one stream is: its kind, its number, and how many rounds its conversation has."""

    kind: Kind
    number: int
    dialect: str
    rounds: int

    @property
    def model(self) -> str:
        """The name of the model, by which the vendor knows what to answer."""
        return f"soak:{self.kind}:{self.number}"


def plan(seed: int, number: int, share: float) -> Plan:
    """The stream of this number."""
    dice = random.Random(f"{seed} {number}")
    drawn = dice.random()
    kind: Kind = FAULTY[int(drawn / share)] if drawn < share * len(FAULTY) else "healthy"
    return Plan(kind, number, dice.choice(list(PATHS)), dice.randrange(8))


def answer(model: str, dialect: str) -> Answer | Fault:
    """What the vendor answers: text, and a call that only loops have seen before."""
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
    """The vendor's script, a function of the model's name."""
    return answer(request.model, request.dialect)


def body_of(one: Plan) -> bytes:
    """The client's request."""
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
    """The frames of the answer to a request, as the vendor sends them."""
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
    """Serve as the vendor until terminated; the address is the first line of the output."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # One for each request: their numbers, which are in the ids, are all 1 then.
        await ScriptedVendor(script, chunk_delay_s=pause_s)(scope, receive, send)

    config = uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off", backlog=2048)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


def become(arguments: list[str]) -> None:
    """Become `callfuse` with these arguments; on top of its paths, `TASKS_PATH` tells of its tasks."""
    build = serve.build_app

    def build_app(setup: serve.ServeSetup) -> serve.App:
        app = build(setup)

        async def tell(scope: Scope, receive: Receive, send: Send) -> None:
            if scope.get("path") != TASKS_PATH:
                await app(scope, receive, send)
                return
            names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
            body = json.dumps(names).encode()
            length = (b"content-length", str(len(body)).encode())
            await send({"type": "http.response.start", "status": 200, "headers": [length]})
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return tell

    sys.argv = ["callfuse", *arguments]
    with patch.object(serve, "build_app", build_app):
        main_of_callfuse()


@dataclass
class Process:
    """A child process, its address, and what it has printed but for findings."""

    process: asyncio.subprocess.Process
    url: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Its id."""
        return self.process.pid

    async def read(self, ready: asyncio.Event) -> None:
        """Read what it prints to the end."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            if not self.url and (found := READY.search(line)):
                self.url = found[1]
                ready.set()
            elif "detected in session" not in line:
                self.said.append(line.rstrip())
        ready.set()

    async def open_tasks(self) -> dict[str, int]:
        """Its tasks by the names of their coroutines, with those that tell of them."""
        host, port = self.url.removeprefix("http://").split(":")
        async with asyncio.timeout(LOOK_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET %b HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n" % TASKS_PATH.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server does not tell of its tasks: {head!r}")
        found: dict[str, int] = json.loads(body)
        return found


@asynccontextmanager
async def started(life_s: float, *arguments: str) -> AsyncIterator[Process]:
    """This program as another process for the length of the block."""
    own = {name: value for name, value in os.environ.items() if not SETTINGS.match(name)}
    command = [sys.executable, "-m", "benchmarks.soak", "--life-s", str(int(life_s)), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=own
    )
    child, ready = Process(process), asyncio.Event()
    reading = asyncio.create_task(child.read(ready))
    try:
        async with asyncio.timeout(START_S):
            await ready.wait()
        if not child.url:
            raise RuntimeError(f"{arguments} did not start: {child.said}")
        yield child
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(LOOK_S):
                await process.wait()
        except TimeoutError:
            process.kill()
        await reading


class Seen(NamedTuple):
    """What a client has got: the status, the body so far, and whether it came to its end."""

    status: int
    body: bytes
    complete: bool


async def ask(url: str, one: Plan, leave_at: bytes = b"") -> Seen:
    """One stream on a connection of its own; where `leave_at` has come, the client goes."""
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
    try:
        writer.write(head + (body[: UPLOAD // 2] if one.kind == "aborts" else body))
        await writer.drain()
        return Seen(0, b"", complete=False) if one.kind == "aborts" else await _read(reader, leave_at)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, leave_at: bytes) -> Seen:
    body, complete, status = b"", False, 0
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            return Seen(status, await reader.read(), complete=True)
        while not (leave_at and leave_at in body):
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                complete = True
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    return Seen(status, body, complete)


def fault(one: Plan, seen: Seen) -> str:
    """What is wrong with what a client has got; empty if nothing is."""
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


@dataclass
class Load:
    """The streams of one load."""

    url: str
    seed: int
    share: float
    numbers: Iterator[int]
    done: Counter[Kind] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    open: int = 0
    most_open: int = 0

    async def run(self, streams: int, seconds: float) -> None:
        """So many at a time, for so many seconds."""
        ends_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for at in range(streams):
                tasks.create_task(self._place(at / streams * RAMP_S, ends_s))

    async def _place(self, begins_s: float, ends_s: float) -> None:
        await asyncio.sleep(begins_s)
        while time.monotonic() < ends_s:
            one = plan(self.seed, next(self.numbers), self.share)
            self.open += 1
            self.most_open = max(self.open, self.most_open)
            try:
                async with asyncio.timeout(STREAM_S):
                    wrong = fault(one, await ask(self.url, one, leave_at(one)))
            except (TimeoutError, OSError) as error:
                wrong = f"{type(error).__name__} {error}"
            self.open -= 1
            self.done[one.kind] += 1
            if wrong:
                self.faults[f"{one.kind}: {wrong}"] += 1


def leave_at(one: Plan) -> bytes:
    """The text with which a client goes."""
    if one.kind == "leaves":
        return b"looks at"
    return b"at it" if one.kind == "leaves in hold" else b""


class Figures(NamedTuple):
    """Of the server at rest."""

    rss_mb: float
    descriptors: int
    sockets: int
    tasks: int

    def __str__(self) -> str:
        return (
            f"{self.rss_mb:.1f} MB, {self.descriptors} descriptors, {self.sockets} sockets of them, {self.tasks} tasks"
        )


async def figures_of(server: Process) -> Figures:
    """What a process has open."""
    tasks = await server.open_tasks()
    return Figures(*_of_system(server.pid), sum(tasks.values()))


def _of_system(pid: int) -> tuple[float, int, int]:
    """Memory in MB, descriptors, and sockets of them."""
    rss_kb = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(path.readlink()))
    return rss_kb / 1024, len(links), sum(link.startswith("socket:") for link in links)


async def at_rest(server: Process, begun: Figures) -> Figures:
    """The figures once nothing more is given back, or as they are after `SETTLES_S`."""
    ends_s = time.monotonic() + SETTLES_S
    while True:
        found = await figures_of(server)
        if found[1:] <= begun[1:] or time.monotonic() > ends_s:
            return found
        await asyncio.sleep(1)


def is_error(line: str) -> bool:
    """Whether a line of the server's log tells of an error. That an answer broke off is meant to be told."""
    return (" ERROR " in line and "returned without completing response" not in line) or "Traceback" in line


async def soak(options: argparse.Namespace) -> list[str]:
    """Run, print, and return what is not as it should be."""
    numbers = count()
    life_s = options.seconds * (options.waves + WARM_SHARE) + GRACE_S * options.waves
    wrong: list[str] = []
    async with (
        started(life_s, "--vendor", "--pause", str(options.pause)) as vendor,
        started(life_s, "--become", json.dumps(["serve", "--port", "0", "--upstream", vendor.url])) as server,
    ):
        begun = await figures_of(server)
        print(f"at the start   {begun}", flush=True)
        rest: list[Figures] = []
        waves = [("load", options.seconds)] * options.waves
        for name, seconds in (("warm-up", options.seconds * WARM_SHARE), *waves):
            load = Load(server.url, options.seed, options.share, numbers)
            await load.run(options.streams, seconds)
            rest.append(await at_rest(server, begun))
            print(f"after {name:<8} {rest[-1]}", flush=True)
            print(f"               {load.most_open} streams at once; " + ", ".join(
                f"{number} {kind}" for kind, number in load.done.most_common()), flush=True)  # fmt: skip
            wrong += [f"{number} streams, {text}" for text, number in load.faults.most_common()]
        before, after = rest[0], rest[-1]
        if after.rss_mb > before.rss_mb + options.most_mb:
            wrong.append(f"{after.rss_mb - before.rss_mb:.1f} MB more than after the warm-up")
        for name in ("descriptors", "sockets", "tasks"):
            if getattr(after, name) > getattr(begun, name):
                wrong.append(f"{getattr(after, name) - getattr(begun, name)} {name} left: {await server.open_tasks()}")
        wrong += [f"the server says: {line}" for line in server.said if is_error(line)][:10]
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the processes come in here, too."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--waves", type=int, default=1, help="loads, one after another")
    parser.add_argument("--share", type=float, default=0.01, help="of each kind that goes wrong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two events of the vendor's")
    parser.add_argument("--most-mb", type=float, default=20.0, help="that memory may have grown since the warm-up")
    parser.add_argument("--become", help=argparse.SUPPRESS)
    parser.add_argument("--vendor", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--life-s", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    of_all_s = options.seconds * options.waves
    if not (0 < options.streams <= MOST_STREAMS and 0 < of_all_s <= MOST_SECONDS and options.share * 6 < 1):
        parser.error(f"at most {MOST_STREAMS} streams, {MOST_SECONDS:g} seconds of all loads and a share of 0.16")
    if options.life_s:
        signal.alarm(options.life_s)  # whatever becomes of the one that has started it
    if options.vendor:
        asyncio.run(vend(options.pause))
    elif options.become:
        become(json.loads(options.become))
    else:
        wrong = asyncio.run(soak(options))
        print("\n".join(wrong) or "all is well")
        return int(bool(wrong))
    return 0


if __name__ == "__main__":
    sys.exit(main())
