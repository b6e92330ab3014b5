"""Requests a second through the reverse proxy, with and without the guard.

In: nothing but this machine. Out: a table with, for each of two servers on loopback, the median requests a second and
the server's own CPU time a request, and the ratio that matters: the guarded proxy to the bare one. Each request has so
many earlier calls of one tool (`--calls`): the first of a conversation none, and two are the fewest that a guard must
compare. Each answer has so many chunks (`--chunks`), so far apart (`--pace-ms`): a model's tokens come one by one. With
0 they come as fast as they can be written, several at once, and a chunk costs next to nothing beside its request.

    proxy     ReverseProxy in front of a scripted vendor
    guarded   CallFuseMiddleware(ReverseProxy) in front of it

Every server is a process with uvicorn, uvloop and httptools; the load is one more, with raw keep-alive connections. The
server under test has a core to itself where there are two; vendor and load share the other. The two are measured by
turns, so that a noisy neighbour meets both alike, and each round has processes of its own: where one lies in memory is
worth up to a tenth of its speed for as long as it lives. Even so rounds differ by a quarter: it takes many.

    benchmarks/proxy.py [--rounds 15] [--seconds 1.5] [--clients 192] [--calls 0 2] [--chunks 10 20 100] [--pace-ms 1]
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, cast

import uvicorn
import uvloop

from callfuse.cli.serve import calm_collector
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.settings import ServeSettings

PATH = "/v1/chat/completions"
TICKS_S = os.sysconf("SC_CLK_TCK")
END = b"\r\n0\r\n\r\n"


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def stream(chunks: int) -> list[bytes]:
    """A chat stream of so many chunks."""
    words = [event({"content": f" word {at}"}) for at in range(chunks - 2)]
    return [event({"role": "assistant", "content": ""}), *words, event({}, "stop") + b"data: [DONE]\n\n"]


def request_body(calls: int) -> bytes:
    """A healthy conversation: so many different calls with their results, and the next turn to come."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Go."}]
    for at in range(calls):
        call = {"id": f"call_{at}", "type": "function", "function": {"name": "read", "arguments": f'{{"line": {at}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": f"line {at}"})
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    return json.dumps({"model": "m", "stream": True, "messages": messages, "tools": [tool]}).encode()


def vendor(chunks: int, pace_s: float) -> Any:
    """An ASGI app that streams so many chunks, so many seconds apart, or one loop turn."""
    answer = stream(chunks)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body", False):
            continue
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in answer:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(pace_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def guard() -> Any:
    """The middleware, or None where this version has none."""
    return getattr(import_module("callfuse"), "CallFuseMiddleware", None)


def serve(kind: str, upstream: str, chunks: int, pace_s: float) -> None:
    """Serve one of the three until terminated; the port is the first line of the output."""
    app: Any = vendor(chunks, pace_s) if kind == "vendor" else ReverseProxy(ServeSettings(upstream=upstream))
    if kind == "guarded":
        app = guard()(app)
    calm_collector()  # as `callfuse serve` does
    config = uvicorn.Config(app, log_level="warning", access_log=False, loop="uvloop", http="httptools", ws="none")
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no chunk waits for an ACK
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[listener])


class Client(asyncio.Protocol):
    """One keep-alive connection: asks, reads to the end of the stream, asks again."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answers = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none of asyncio's classes
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-len(END) :] if len(data) < len(END) else data[-len(END) :]
        if self.tail == END:
            self.answers += 1
            self.transport.write(self.request)


async def load(url: str, clients: int, seconds: float, calls: int) -> None:
    """Ask as fast as answers come, and print how many came in how long."""
    host, port = url.removeprefix("http://").split(":")
    body = request_body(calls)
    head = f"POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nauthorization: Bearer k\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Client(request), host, int(port)) for _ in range(clients)]
    await asyncio.sleep(0.3)  # connections, caches and pools are warm
    before, began_s = sum(client.answers for _, client in pairs), time.perf_counter()
    await asyncio.sleep(seconds)
    answers, lasted_s = sum(client.answers for _, client in pairs) - before, time.perf_counter() - began_s
    for transport, _ in pairs:
        transport.close()
    print(json.dumps({"answers": answers, "seconds": lasted_s}), flush=True)


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test."""

    kind: str
    url: str
    pid: int


@contextmanager
def started(kind: str, upstream: str, chunks: int, pace_s: float, core: int | None) -> Iterator[Server]:
    """A server process for the length of the block."""
    command = [sys.executable, __file__, "--serve", kind, "--upstream", upstream, *pin(core)]
    command += ["--chunks", str(chunks), "--pace-ms", str(1000 * pace_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError(f"the server {kind!r} did not start; its error is above")
            yield Server(kind, f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()


def pin(core: int | None) -> list[str]:
    """The options that keep a process on a core."""
    return [] if core is None else ["--core", str(core)]


def cores() -> tuple[int | None, int | None]:
    """A core for the server under test and one for the rest; none where there are no two or they cannot be chosen."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (available[0], available[1]) if len(available) > 1 else (None, None)


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far, where the system tells; else 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def measure(server: Server, clients: int, seconds: float, calls: int, core: int | None) -> tuple[float, float]:
    """Requests a second, and the server's CPU time a request in microseconds, its warming up included on both sides."""
    command = [sys.executable, __file__, "--load", server.url, "--clients", str(clients), "--seconds", str(seconds)]
    command += ["--calls", str(calls)]
    began_s = cpu_s(server.pid)
    done = subprocess.run([*command, *pin(core)], check=True, capture_output=True, text=True, timeout=seconds + 60)
    result = json.loads(done.stdout)
    if not result["answers"]:
        raise RuntimeError(f"the server {server.kind!r} gave no whole answer")
    per_s = result["answers"] / result["seconds"]
    warm = 1 + 0.3 / result["seconds"]
    return per_s, (cpu_s(server.pid) - began_s) / (result["answers"] * warm) * 1e6


def compare(
    rounds: int, seconds: float, clients: int, calls: int, chunks: int, pace_s: float
) -> dict[str, list[tuple[float, float]]]:
    """The figures of each server, a pair a round."""
    tested, rest = cores()
    kinds = ["proxy", "guarded"] if guard() is not None else ["proxy"]
    figures: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for at in range(rounds):
        with ExitStack() as running:
            behind = running.enter_context(started("vendor", "", chunks, pace_s, rest))
            servers = [running.enter_context(started(kind, behind.url, chunks, pace_s, tested)) for kind in kinds]
            for server in servers if at % 2 else servers[::-1]:
                figures[server.kind].append(measure(server, clients, seconds, calls, rest))
    return figures


def report(figures: dict[str, list[tuple[float, float]]]) -> None:
    """The table, and the ratio of the guarded proxy to the bare one, round by round and then the median."""
    print(f"{'server':<10}{'requests/s':>12}{'CPU us/request':>18}")
    for kind, pairs in figures.items():
        per_s, cpu_us = (median(values) for values in zip(*pairs, strict=True))
        print(f"{kind:<10}{per_s:>12,.0f}{cpu_us:>18,.0f}")
    if "guarded" not in figures:
        print("guarded: this version of callfuse has no CallFuseMiddleware")
        return
    rounds = list(zip(figures["proxy"], figures["guarded"], strict=True))
    by_requests = median(guarded[0] / bare[0] for bare, guarded in rounds)
    by_cpu = median(bare[1] / guarded[1] for bare, guarded in rounds if guarded[1]) if rounds[0][1][1] else None
    print(f"guarded / proxy: {by_requests:.2f} in requests/s (goal >= 0.80)", end="")
    print(f", {by_cpu:.2f} in requests a CPU second" if by_cpu else "")


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the processes of the measurement come in here too."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5, help="of load for each server in each round")
    parser.add_argument("--clients", type=int, default=192)
    parser.add_argument("--calls", type=int, nargs="+", default=[0, 2], help="earlier calls in each request")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10, 20, 100], help="in each answer")
    parser.add_argument("--pace-ms", type=float, default=1.0, help="between two chunks")
    for internal in ("--serve", "--upstream", "--load"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    if options.serve:
        serve(options.serve, options.upstream, options.chunks[0], options.pace_ms / 1000)
    elif options.load:
        uvloop.run(load(options.load, options.clients, options.seconds, options.calls[0]))
    else:
        for chunks, calls in product(options.chunks, options.calls):
            print(f"requests with {calls} earlier calls, answers of {chunks} chunks")
            report(compare(options.rounds, options.seconds, options.clients, calls, chunks, options.pace_ms / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
