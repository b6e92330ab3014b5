"""Memory of open streams: what callfuse keeps for each beyond the bare app, and what stays once they are gone.

    python -m benchmarks.memory [--held 300] [--open 1000] [--only held]

In process, as Python's allocator counts it. Two tables:

    held    streams of 74 kB whose call is suspect and not at its end; beyond the request's body, a multiple of the
            stream's bytes. They end: the call turns out to be new and leaves. Or they are cut off: the exchanges are
            cancelled.
    open    healthy streams, 200 chunks of text and of a call in, with histories of 200 messages (about 320 kB, every
            result 3 KB); beyond the body, and the body, of which each has one of its own. In the rows `first`
            nothing was known of the sessions, in `later` each had a request before.

Every round is done twice with the same sessions. What stays is what the second leaves beyond the first: what the ledger
keeps for each session, which is bounded, is in both.
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
"""Goal: bytes for a held stream, by its own."""
BEYOND_KB: Final = 8.0
"""Goal: for an open healthy stream beyond its body."""
STAYS_BYTES: Final = 64
"""For an exchange that is gone: less is the noise of dictionaries that grow."""
OPENS_S: Final = 10.0
SETTLES_S: Final = 0.1
LONG_S: Final = 3600
"""The longest hold, however slow the machine is."""
HISTORY: Final = 99
"""Rounds of a history of 200 messages."""
TOOLS: Final = 5
SUSPECT: Final = 2
"""Repeats in the history of a held stream's request: the next call may be the third."""
DIALECTS: Final = ("openai-chat", "anthropic")


class Waiting:
    """An app that sends these chunks, each in bytes of its own, waits until `go_on`, and sends the rest."""

    def __init__(self, chunks: Sequence[bytes], rest: Sequence[bytes]) -> None:
        self.chunks, self.rest = chunks, rest
        self.go_on = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One answer."""
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
    """Return the same in memory of its own, as the network brings it."""
    return bytes(bytearray(text))


class Client:
    """Sends one request and counts what comes; it keeps neither."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = own(body)
        self.came = 0

    async def receive(self) -> Message:
        """Return the request, and then nothing."""
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """The answer."""
        self.came += len(message.get("body", b""))


class Load(NamedTuple):
    """So many streams of one kind."""

    path: str
    streams: int
    body: bytes
    chunks: list[bytes]
    rest: list[bytes]
    cut: bool = False


class Figures(NamedTuple):
    """Bytes while all are open, and what is left of them; bytes that each client has got by then."""

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
        _ = [task.cancel() for task in tasks]  # a name for one of them would keep it
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
    """Return what callfuse adds to the bare app, each stream; what of it stays; what clients got."""
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
    """Return a request, the chunks of a call up to so many bytes, and those to its end, where it differs from those
    before."""

    def written(pieces: int) -> dict[str, str]:
        return {"text": "".join(map(words, range(pieces)))}

    def of(pieces: int) -> list[bytes]:
        return scripted(dialect, Answer(calls=[Call(TOOL, written(pieces))]), len(words(0)))

    each = (sum(map(len, of(200))) - sum(map(len, of(100)))) / 100
    pieces = round(HELD_BYTES / each)
    chunks = of(pieces)
    return request(PATHS[dialect], repeats=SUSPECT, arguments=written(pieces + 1)), chunks[:-5], chunks[-5:]


def measured(load: Load, earlier: Sequence[bytes] = ()) -> Figures:
    """Return the figures of a load, in a loop and under a count of their own."""
    tracemalloc.start()
    try:
        return asyncio.run(beyond(load, earlier))
    finally:
        tracemalloc.stop()


def print_held(count: int) -> None:
    """The first table."""
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
    """The second table."""
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
    """Return what a row says that misses a goal."""
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
