"""Measure the share of a core that the event feed takes: fifty readers over loopback, a thousand events per second.

    python -m benchmarks.feed [--readers 50] [--rate 1000] [--seconds 10]

A process serves the admin app under uvicorn with uvloop, as `callfuse serve` does, and emits events as exchanges do:
calls, and an exchange for every four of them. Another process reads. The figures are CPU time of the server, including
the kernel's part, divided by wall time: at rest, without readers (`kept`), with readers that all want the same, with
readers of ten different sessions, and with one reader that does not read. The events that were read are checked.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import uvicorn
import uvloop

from callfuse import CallFuseMiddleware
from callfuse.admin import AdminApp
from callfuse.model import ToolCall
from callfuse.observe.events import CallSeen, ExchangeEnded, Where

GOAL = 15.0
TOKEN = "the-token-of-the-benchmark"
TICK_S = 0.01
SESSIONS = 10


async def no_app(*_: Any) -> None:
    """Act as the vendor, which is never called."""


def where(number: int) -> Where:
    """Return the place of an event."""
    return Where(f"session-{number % SESSIONS}", "x-session-id", f"main.{number % 40:08x}", "gpt-4o", "openai", "chat")


def emit(fuse: CallFuseMiddleware, number: int) -> None:
    """Emit the events of one number; each call is a new one."""
    if number % 5 == 4:
        event = ExchangeEnded(where(number), "guarded", "complete", "", 200, 4, "", 1.5, 0.0)
        fuse.bus.emit(event)
    else:
        arguments = {"query": f"what is number {number}", "limit": number % 50, "language": "en"}
        fuse.bus.emit(CallSeen(where(number), ToolCall(f"call_{number}", "search_web", arguments), "none"))


async def emitting(fuse: CallFuseMiddleware, rate: int, seconds: float) -> tuple[int, float, float]:
    """Emit at a rate. Returns the number of events, and the CPU and wall time."""
    loop = asyncio.get_running_loop()
    begin, cpu, sent = loop.time(), time.process_time(), 0
    while (passed := loop.time() - begin) < seconds:
        while sent < passed * rate:
            emit(fuse, sent)
            sent += 1
        await asyncio.sleep(TICK_S)
    await asyncio.sleep(0.3)
    return sent, time.process_time() - cpu, loop.time() - begin


def serve(listener: socket.socket, orders: Connection) -> None:
    """Run the server's process: emit on command, and report the time."""

    async def main() -> None:
        fuse = CallFuseMiddleware(no_app, {})
        admin = AdminApp(fuse, token=TOKEN)
        config = uvicorn.Config(admin, log_level="warning", lifespan="off", interface="asgi3")
        serving = asyncio.create_task(uvicorn.Server(config).serve(sockets=[listener]))
        while order := await asyncio.to_thread(orders.recv):
            orders.send(await emitting(fuse, *order))
        serving.cancel()

    uvloop.run(main())


async def read(port: int, query: str, *, idle: bool) -> tuple[int, asyncio.StreamWriter]:
    """Open the feed. Returns when the answer has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024)
    writer.write(f"GET /events{query} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    if not idle:
        asyncio.get_running_loop().create_task(count(reader, query))
    return 0, writer


counted: dict[str, int] = {}


async def count(reader: asyncio.StreamReader, query: str) -> None:
    """Count the events of a reader."""
    rest = b""
    while chunk := await reader.read(1 << 20):
        chunk = rest + chunk
        counted[query] = counted.get(query, 0) + chunk.count(b"\nevent: ")
        rest = chunk[-8:] if not chunk.endswith(b"\n\n") else b""


def consume(port: int, queries: list[tuple[str, bool]], ready: Connection) -> None:
    """Run the readers' process."""

    async def main() -> None:
        opened = [await read(port, query, idle=idle) for query, idle in queries]
        ready.send("ready")
        await asyncio.to_thread(ready.recv)
        ready.send(sum(counted.values()))
        for _, writer in opened:
            writer.close()

    asyncio.run(main())


KINDS: dict[str, Callable[[int], list[tuple[str, bool]]]] = {
    "kept": lambda _: [],
    "same": lambda readers: [("", False)] * readers,
    "filtered": lambda readers: [(f"?session=session-{number % SESSIONS}", False) for number in range(readers)],
    "one idle": lambda readers: [("", False)] * (readers - 1) + [("", True)],
}


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args(arguments)
    print(f"{'% of a core':<12}{'rate':>8}{'readers':>9}{'read':>10}{'rest':>8}{'feed':>8}{'goal':>8}")
    spawn = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        orders, theirs = spawn.Pipe()
        server = spawn.Process(target=serve, args=(listener, theirs), daemon=True)
        server.start()
        for name, queries in KINDS.items():
            one_round(name, queries(options.readers), port, orders, options)
        orders.send(None)
        server.join()


def one_round(
    name: str, queries: list[tuple[str, bool]], port: int, orders: Connection, options: argparse.Namespace
) -> None:
    """Measure one kind of readers."""
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    readers = spawn.Process(target=consume, args=(port, queries, theirs), daemon=True)
    readers.start()
    mine.recv()
    orders.send((0, 1.0))
    _, resting, waited = orders.recv()
    orders.send((options.rate, options.seconds))
    sent, cpu, wall = orders.recv()
    mine.send("done")
    read_ = mine.recv()
    readers.join()
    expected = sent * sum(1 for query, idle in queries if not idle and not query) or sent * len(queries) // SESSIONS
    rest, share = 100 * resting / waited, 100 * cpu / wall
    wrong = "" if read_ == expected else f"  {expected - read_} of {expected} not read"
    over = "  over" if share > GOAL else ""
    print(f"{name:<12}{options.rate:>8}{len(queries):>9}{read_:>10}{rest:>8.1f}{share:>8.1f}{GOAL:>8.1f}{over}{wrong}")


if __name__ == "__main__":
    os.environ.pop("CALLFUSE_CONFIG", None)
    main()
