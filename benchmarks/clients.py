"""Measure HTTP clients for the proxy: requests per second, and CPU time for a chunk of a stream.

    python -m benchmarks.clients [--seconds 3] [--clients 16]

One process has the client, another one a vendor that writes raw bytes: streams of 10 chunks, and of 110, a millisecond
apart, so that each is read by itself. Each client is used as in a proxy: bodies unchanged, connections kept. All
figures are by CPU time of the client's process: streams of 10 chunks per second, and the cost of a further chunk, from
the difference between long and short streams. Needs httpx and httpx2.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import uvloop

CHUNK: Final = b'data: {"choices":[{"delta":{"content":"word "}}]}\n\n'
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY: Final = b'{"model":"m","messages":[{"role":"user","content":"Go on."}]}'
PACE_S: Final = 0.001
CHUNKS: Final = (10, 110)
MOST_SECONDS: Final = 30.0
Ask = Callable[[], Awaitable[int]]


async def _vendor(ports: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"transfer-encoding" in head.lower():
                    await reader.readuntil(b"0\r\n\r\n")
                else:
                    await reader.readexactly(len(BODY))
                writer.write(HEAD)
                for _ in range(int(head.split(b" ", 2)[1].strip(b"/"))):
                    writer.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
                    await asyncio.sleep(PACE_S)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    ports.put(server.sockets[0].getsockname()[1])
    await asyncio.sleep(300)


def _run_vendor(ports: Any) -> None:
    uvloop.run(_vendor(ports))


async def _with_aiohttp(url: str, stack: AsyncExitStack, clients: int) -> Ask:
    connector = aiohttp.TCPConnector(limit=clients)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, auto_decompress=False))

    async def ask() -> int:
        seen = 0
        async with session.post(url, data=BODY) as response:
            while not response.content.at_eof():
                seen += len(await response.content.readany())
        return seen

    return ask


def _with(library: Any) -> Callable[[str, AsyncExitStack, int], Awaitable[Ask]]:
    async def make(url: str, stack: AsyncExitStack, clients: int) -> Ask:
        limits = library.Limits(max_connections=clients, max_keepalive_connections=clients)
        client = await stack.enter_async_context(library.AsyncClient(limits=limits, timeout=60, trust_env=False))

        async def ask() -> int:
            seen = 0
            async with client.stream("POST", url, content=BODY) as response:
                async for chunk in response.aiter_raw():
                    seen += len(chunk)
            return seen

        return ask

    return make


KINDS: Final = {"aiohttp": _with_aiohttp, "httpx2": _with(httpx2), "httpx": _with(httpx)}


async def _measure(kind: str, url: str, seconds: float, clients: int) -> float:
    """CPU seconds per request."""
    async with AsyncExitStack() as stack:
        ask = await KINDS[kind](url, stack, clients)
        await asyncio.gather(*[ask() for _ in range(clients)])
        began, cpu, done = time.perf_counter(), time.process_time(), 0

        async def client() -> None:
            nonlocal done
            while time.perf_counter() - began < seconds:
                await ask()
                done += 1

        await asyncio.gather(*[client() for _ in range(clients)])
        return (time.process_time() - cpu) / done


def main() -> None:
    """Measure each client in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    ports: Any = multiprocessing.Queue()
    vendor = multiprocessing.Process(target=_run_vendor, args=(ports,), daemon=True)
    vendor.start()
    url = f"http://127.0.0.1:{ports.get(timeout=30)}"
    print("client    requests a CPU second   us of CPU a chunk")
    for kind in KINDS:
        seconds = min(options.seconds, MOST_SECONDS)
        short, long = (uvloop.run(_measure(kind, f"{url}/{of}", seconds, options.clients)) for of in CHUNKS)
        print(f"{kind:9} {1 / short:21.0f} {(long - short) / (CHUNKS[1] - CHUNKS[0]) * 1e6:19.1f}")
    vendor.terminate()


if __name__ == "__main__":
    main()
