"""Measure the memory of open streams: what callfuse adds to the bare app for each, and what stays after their end.

    python -m benchmarks.memory [--held 300] [--open 1000] [--only held]

In process, as counted by Python's allocator. There are two tables:

    held    streams of 74 kB with an incomplete suspect call: memory without the request's body, as a multiple of the
            stream's bytes. Then they end: the call turns out to be new and is released. Or they are cut off: the
            exchanges are cancelled.
    open    healthy streams after 200 chunks of text and of a call, with histories of 200 messages (about 320 kB,
            results of 3 KB): memory without the body, and the body, which each stream has for itself. In the rows
            `first`, the sessions were unknown; in `later`, each had an earlier request.

Every round is done twice with the same sessions. Memory that stays is the difference after the second and the first,
because the ledger's data for each session, which is bounded, is in both.
"""

import argparse
import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final, NamedTuple

from benchmarks.chunks import PATHS, TOOL, request, scripted, words
from benchmarks.driving import ASGIApp, Message, Receive, Scope, Send, scope_of
from benchmarks.histories import Chat, Messages, Wire
from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call

HELD_BYTES: Final = 74_000
MULTIPLE: Final = 2.5
"""The goal for a held stream: its memory, as a multiple of its bytes."""
BEYOND_KB: Final = 8.0
"""The goal for an open healthy stream, without its body."""
STAYS_BYTES: Final = 64
"""The limit for an ended exchange. Less is noise from growing dictionaries."""
OPENS_S: Final = 10.0
SETTLES_S: Final = 0.1
LONG_S: Final = 3600
"""The longest hold, long enough for any machine."""
HISTORY: Final = 99
"""The rounds in a history of 200 messages."""
TOOLS: Final = 5
SUSPECT: Final = 2
"""The repeats in the history of a held stream's request, so that the next call may be the third."""
DIALECTS: Final = ("openai-chat", "anthropic")


class Waiting:
    """An app that sends these chunks, each as separate bytes, waits until `go_on`, and sends the rest."""

    def __init__(self, chunks: Sequence[bytes], rest: Sequence[bytes]) -> None:
        self.chunks, self.rest = chunks, rest
        self.go_on = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send one answer."""
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": own(chunk), "more_body": True})
        self.waiting.release()
        await self.go_on.wait()
        for chunk in self.rest:
            await send({"type": "http.response.body", "body": own(chunk), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def own(text: bytes) -> bytes:
    """Return a copy in its own memory, as from the network."""
    return bytes(bytearray(text))


class Client:
    """Sends one request and counts the bytes of the answer, but keeps neither."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = own(body)
        self.came = 0

    async def receive(self) -> Message:
        """Return the request, and then wait forever."""
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Count the bytes of the answer."""
        self.came += len(message.get("body", b""))


class Load(NamedTuple):
    """A number of streams of one kind."""

    path: str
    streams: int
    body: bytes
    chunks: list[bytes]
    rest: list[bytes]
    cut: bool = False


class Figures(NamedTuple):
    """Bytes while all streams are open, and bytes left after their end; bytes that each client has got by then."""

    open: int
    left: int
    came: float


async def opened(app: Waiting, around: ASGIApp, load: Load) -> Figures:
    """Return the figures of a load in a round."""
    before = used()
    clients = [Client(load.body) for _ in range(load.streams)]
    tasks = []
    for at, client in enumerate(clients):
        scope = scope_of(load.path, [(b"x-callfuse-session-id", b"%d" % at)])
        tasks.append(asyncio.ensure_future(around(scope, client.receive, client.send)))
        del scope
        await asyncio.wait_for(app.waiting.acquire(), OPENS_S)
    figures = used() - before
    came = sum(client.came for client in clients) / load.streams
    if load.cut:
        _ = [task.cancel() for task in tasks]  # a name for a task would keep it alive
    app.go_on.set()
    await asyncio.gather(*tasks, return_exceptions=load.cut)
    app.go_on.clear()
    del tasks, client, clients
    await asyncio.sleep(SETTLES_S)
    return Figures(figures, used() - before, came)


def used() -> int:
    """Return bytes in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def beyond(load: Load, earlier: Sequence[bytes] = ()) -> Figures:
    """Return the bytes that callfuse adds to the bare app for each stream; how many of them stay; and those that
    clients got."""
    app = Waiting(load.chunks, load.rest)
    guarded = CallFuseMiddleware(app, {"tool_call_loop": {"max_hold_s": LONG_S}})
    found = {}
    for name, around in (("bare", app), ("guarded", guarded)):
        for body in earlier if around is guarded else ():
            await opened(app, around, load._replace(body=body))
        first = await opened(app, around, load)
        second = await opened(app, around, load)
        found[name] = first.open, second.left, second.came
    (bare, bare_left, _), (held, left, came) = found["bare"], found["guarded"]
    return Figures((held - bare) // load.streams, (left - bare_left) // load.streams, came)


def held_stream(dialect: str) -> tuple[bytes, list[bytes], list[bytes]]:
    """Return a request, the chunks of a call up to a number of bytes, and the rest, which differs from the earlier
    calls."""

    def written(pieces: int) -> dict[str, str]:
        return {"text": "".join(map(words, range(pieces)))}

    def of(pieces: int) -> list[bytes]:
        return scripted(dialect, Answer(calls=[Call(TOOL, written(pieces))]), len(words(0)))

    each = (sum(map(len, of(200))) - sum(map(len, of(100)))) / 100
    pieces = round(HELD_BYTES / each)
    chunks = of(pieces)
    return request(PATHS[dialect], repeats=SUSPECT, arguments=written(pieces + 1)), chunks[:-5], chunks[-5:]


def measured(load: Load, earlier: Sequence[bytes] = ()) -> Figures:
    """Return the figures of a load, with an event loop and a memory count of its own."""
    tracemalloc.start()
    try:
        return asyncio.run(beyond(load, earlier))
    finally:
        tracemalloc.stop()


def print_held(count: int) -> None:
    """Print the first table."""
    print(f"{f'{count} held streams':<28}{'kB each':>9}{'multiple':>10}{'stays B':>9}{'client got':>12}")
    for dialect, cut in product(DIALECTS, (False, True)):
        body, chunks, rest = held_stream(dialect)
        size = sum(map(len, chunks))
        found = measured(Load(PATHS[dialect], count, body, chunks, rest, cut))
        if found.came > size / 2:
            raise RuntimeError(f"{dialect}: the streams are not held, their clients got {found.came:,.0f} bytes each")
        multiple = (found.open - len(body)) / size
        label = f"{dialect}, {'cut off' if cut else 'end'}"
        print(f"{label:<28}{found.open / 1000:>9.1f}{multiple:>10.2f}{found.left:>9,}{found.came:>12,.0f}", end="")
        print(over(multiple > MULTIPLE, found), flush=True)


def print_open(count: int) -> None:
    """Print the second table."""
    print(f"{f'{count} open streams':<28}{'body kB':>9}{'kB each':>10}{'beyond':>9}{'of body':>9}{'stays B':>9}")
    wires: tuple[Wire, ...] = (Chat(), Messages())
    for wire, later in product(wires, (False, True)):
        said = Answer(text="word " * 100, calls=[Call("tool_0", {"text": "".join(map(words, range(150)))})])
        chunks = scripted(wire.name, said, len(words(0)))
        body = wire.body(HISTORY, TOOLS, spoken=False)
        load = Load(wire.path, count, body, chunks[:200], chunks[200:])
        found = measured(load, [wire.body(HISTORY - 1, TOOLS, spoken=False)] if later else [])
        beyond_kb = (found.open - len(body)) / 1000
        label = f"{wire.name}, {'later' if later else 'first'}"
        figures = f"{len(body) / 1000:>9.1f}{found.open / 1000:>10.1f}{beyond_kb:>9.1f}{found.open / len(body):>9.2f}"
        print(f"{label:<28}{figures}{found.left:>9,}{over(beyond_kb > BEYOND_KB, found)}", flush=True)


def over(is_over: bool, figures: Figures) -> str:
    """Return the mark of a row that misses a goal."""
    return "  over" if is_over or figures.left > STAYS_BYTES else ""


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held", type=int, default=300)
    parser.add_argument("--open", type=int, default=1000)
    parser.add_argument("--only", choices=("held", "open"))
    options = parser.parse_args(arguments)
    tables: dict[str, Callable[[], None]] = {
        "held": lambda: print_held(options.held),
        "open": lambda: print_open(options.open),
    }
    for name, table in tables.items():
        if options.only in (None, name):
            table()


if __name__ == "__main__":
    main()
