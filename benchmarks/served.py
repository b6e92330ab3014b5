"""Measure chunks per second from a saturated uvicorn, with and without the guard.

    python -m benchmarks.served [--rounds 101] [--chunks 2000]

A server process streams text chunks as fast as it can, bare and under callfuse, each in its own turn of the event loop,
like those of a model: several in one turn would sometimes be written at once, depending on the reader. This process
reads them over loopback, one stream at a time. If there are two cores, each process has its own. The rounds are
interleaved; the figures are medians.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import uvicorn

from benchmarks.chunks import app_of, chat_chunks, request
from benchmarks.driving import Message, Receive, Scope, Send
from callfuse import CallFuseMiddleware

PATH = "/v1/chat/completions"


def serve(chunks: int) -> None:
    """Serve until terminated: `/bare/...` without the guard, the rest with it. The port is the first line printed."""
    bare = app_of(chat_chunks([{"content": f" word{n % 7}"} for n in range(chunks)], finish="stop"))
    guarded = CallFuseMiddleware(bare, {})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def in_a_turn(message: Message) -> None:
            await send(message)
            await asyncio.sleep(0)

        if scope["type"] == "http":
            await (bare if scope["path"].startswith("/bare") else guarded)(scope, receive, in_a_turn)

    config = uvicorn.Config(app, log_level="warning", access_log=False, loop="uvloop", http="httptools", lifespan="off")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # so that chunks do not wait for ACKs
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def stream_s(port: int, prefix: str) -> float:
    """Return the seconds of one stream to its last byte."""
    body = request(PATH)
    head = (
        f"POST {prefix}{PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        begin = time.perf_counter()
        connection.sendall(head.encode() + body)
        tail = b""
        while part := connection.recv(1 << 20):
            tail = (tail + part)[-64:]
        if b"[DONE]" not in tail:
            raise RuntimeError("the stream has not come to its end")
        return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    if options.serve:
        os.sched_setaffinity(0, cores[:1])
        serve(options.chunks)
        return
    command = [sys.executable, "-m", "benchmarks.served", "--serve", "--chunks", str(options.chunks)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            os.sched_setaffinity(
                0, cores[-1:]
            )  # only now: a server that is started later would inherit the choice of cores
            times: dict[str, list[float]] = {"/bare": [], "": []}
            for _ in range(options.rounds):
                for prefix, found in times.items():
                    found.append(stream_s(port, prefix))
        finally:
            server.terminate()
    rates = {prefix: options.chunks / statistics.median(found) for prefix, found in times.items()}
    print(f"bare     {rates['/bare']:>10,.0f} chunks/s")
    print(f"guarded  {rates['']:>10,.0f} chunks/s")
    print(f"guarded / bare: {rates[''] / rates['/bare']:.2f}")


if __name__ == "__main__":
    main()
