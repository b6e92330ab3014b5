"""Compare the simulation's predictions for `callfuse serve` with 1, 2 and 4 workers with measurements of the same run.

    python -m benchmarks.predicting [--rounds 3] [--seconds 4] [--only 2]

Each round measures, with one worker and a low load, the cost of a stream for client, worker and vendor (answers of 5
and of 60 events). Then each number of workers gets streams at random times, of 30 events, 20 ms apart: a quarter, three
quarters, and twice as many as one worker has CPU for. `benchmarks.simulation` gets the same times, the costs, and the
number of cores that were available to these processes under the highest load: on an idle machine, all.

It prints medians over the rounds, and the median of measured / predicted in each round:

    streams/s     ended streams per second, from the first begin to the last end
    first event   average milliseconds from the beginning of a stream
    event         average milliseconds from the vendor to the client

Everything is on loopback and ends by itself: a load after its streams, every process by an alarm.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple, cast

import uvloop

from benchmarks.fleet import WORKERS, processes
from benchmarks.proxy import END, GRACE_S, NUMBER, PATH, ROOT, Vendor, cpu_s, event, request_body, started
from benchmarks.simulation import Cost, Machine, Stream, Work, poisson, simulate

EVENTS: Final = 30
FEW: Final = 5
MANY: Final = 60
PAUSE_S: Final = 0.02
LOADS: Final = (0.25, 0.75, 2.0)
"""Loads, as a share of the streams that one worker has CPU for."""
LOW_PER_S: Final = 60.0
"""Streams per second for measuring their cost."""
STAMP: Final = b"0000000.000000"
"""The placeholder in an event for the time when the vendor sends it."""
STAMPED: Final = re.compile(rb'"content": "(\d{7}\.\d{6})"')
SETTLE_S: Final = 3.0
MOST_SECONDS: Final = 10.0
MOST_STREAMS: Final = 10_000
"""The most streams of one load."""
LAST_S: Final = 60.0
"""The time for streams that are still open when the last one has begun."""


def pieces(events: int) -> list[bytes]:
    """Return an HTTP answer of `events` events, each a piece of its own with a placeholder for its time."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    one = event({"content": STAMP.decode()})
    all_of_them = [b"%x\r\n%b\r\n" % (len(one), one)] * events
    return [head + all_of_them[0], *all_of_them[1:-1], all_of_them[-1] + END[2:]]


class StampingVendor(Vendor):
    """A vendor that writes the sending time into each event."""

    def _write(self, at: int) -> None:
        self.transport.write(self.pieces[at].replace(STAMP, b"%014.6f" % time.monotonic()))
        if at + 1 < len(self.pieces):
            asyncio.get_running_loop().call_later(PAUSE_S, self._write, at + 1)


async def vend(events: int) -> None:
    """Serve until terminated. The address is the first line of the output."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StampingVendor(pieces(events)), "127.0.0.1", 0, backlog=2048)
    print(f"on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


class OneStream(asyncio.Protocol):
    """One stream on its own connection, with the times of its events."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.begun_s = time.monotonic()
        self.first_s = self.ended_s = 0.0
        self.delays_s: list[float] = []
        self.tail = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self.first_s = self.first_s or now_s
        self.delays_s += [now_s - float(sent) for sent in STAMPED.findall(data)]
        self.tail = (self.tail + data)[-len(END) :]
        if self.tail == END:
            self.ended_s = now_s

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(None)


class Seen(NamedTuple):
    """The result of a load: ended streams per second, and average seconds."""

    per_s: float
    first_s: float
    event_s: float


def summary(streams: Sequence[Stream | OneStream]) -> Seen:
    """Return the figures of streams, simulated or real."""
    lasted_s = max(one.ended_s for one in streams) - min(one.begun_s for one in streams)
    return Seen(
        len(streams) / lasted_s,
        mean(one.first_s - one.begun_s for one in streams),
        mean(delay_s for one in streams for delay_s in one.delays_s),
    )


async def load(url: str, arrivals: Sequence[float]) -> None:
    """Begin a stream at each of these times. Print the result, and the CPU time of this process."""
    host, port = url.removeprefix("http://").split(":")
    if host != "127.0.0.1" or len(arrivals) > MOST_STREAMS:
        raise ValueError(f"{len(arrivals)} streams to {url}: loopback, {MOST_STREAMS}")
    body = request_body(40, 10)
    head = f"POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nauthorization: Bearer k\r\n"
    head += f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    before, after = (head.encode() + body).split(NUMBER)
    loop = asyncio.get_running_loop()
    idle_begun_s, cpu_begun_s, begun_s = idle_s(), time.process_time(), time.monotonic()
    streams: list[OneStream] = []
    connecting: list[asyncio.Task[Any]] = []
    for number, at_s in enumerate(arrivals):
        await asyncio.sleep(max(0.0, begun_s + at_s - time.monotonic()))
        stream = OneStream(b"%b%08d%b" % (before, number, after))
        streams.append(stream)
        connecting.append(loop.create_task(loop.create_connection(lambda one=stream: one, host, int(port))))  # type: ignore[misc]
    await asyncio.wait([asyncio.ensure_future(stream.done) for stream in streams], timeout=LAST_S)
    failed = sum(not stream.ended_s for stream in streams)
    if failed:
        raise RuntimeError(f"{failed} of {len(streams)} streams did not end")
    cpu_s, lasted_s = time.process_time() - cpu_begun_s, time.monotonic() - begun_s
    found = {"client_s": cpu_s, "idle_s": idle_s() - idle_begun_s, "lasted_s": lasted_s, "seen": summary(streams)}
    print(json.dumps(found), flush=True)


def idle_s() -> float:
    """Return the seconds for which all cores together were idle, if the system shows it; else 0."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU time of a load by process, the cores available to the processes, and the result."""

    client_s: float
    worker_s: float
    vendor_s: float
    cores: float
    seen: Seen


def itself(*arguments: str) -> list[str]:
    """Return the command of this program."""
    return [sys.executable, "-m", "benchmarks.predicting", *arguments]


class Running(NamedTuple):
    """A running server with its vendor."""

    url: str
    pids: list[int]
    vendor: int

    def put(self, arrivals: Sequence[float]) -> Used:
        """Run a load against it from another process."""
        before = [cpu_s(pid) for pid in (self.vendor, *self.pids)]
        given = json.dumps(arrivals)
        done = subprocess.run(
            itself("--load", self.url), input=given, check=True, capture_output=True, text=True, cwd=ROOT, timeout=200
        )
        vendor_s, *workers_s = (
            cpu_s(pid) - begun_s for pid, begun_s in zip((self.vendor, *self.pids), before, strict=True)
        )
        found = json.loads(done.stdout)
        client_s, worker_s = found["client_s"], sum(workers_s)
        could_have = (client_s + worker_s + vendor_s + found["idle_s"]) / found["lasted_s"]
        return Used(client_s, worker_s, vendor_s, min(could_have, cores()), Seen(*found["seen"]))


def serve(running: ExitStack, workers: int, events: int) -> Running:
    """Start the server and its vendor."""
    life_s = 3 * (MOST_SECONDS + LAST_S) + GRACE_S
    vendor = running.enter_context(started(itself("--vendor", str(events)), None, life_s))
    command = [sys.executable, "-m", "callfuse", "serve", "--port", "0", "--upstream", vendor.url]
    server = running.enter_context(started([*command, "--workers", str(workers)], None, life_s))
    first = Running(server.url, [], vendor.pid)
    first.put([at / LOW_PER_S for at in range(int(SETTLE_S * LOW_PER_S))])  # until all workers have started
    return first._replace(pids=processes(server.pid) or [server.pid])


def costs(options: argparse.Namespace, rng: random.Random) -> Work:
    """Return the cost of a stream for each process, measured at a low load with one worker."""
    found = []
    for events in (FEW, MANY):
        with ExitStack() as running:
            arrivals = poisson(LOW_PER_S, options.seconds, rng)
            used = serve(running, 1, events).put(arrivals)
            found.append([seconds / len(arrivals) for seconds in used[:3]])
    client, worker, vendor = (_cost(few, many) for few, many in zip(*found, strict=True))
    return Work(worker, vendor, client, EVENTS, PAUSE_S)


def _cost(few_s: float, many_s: float) -> Cost:
    event_s = max(0.0, many_s - few_s) / (MANY - FEW)
    return Cost(max(0.0, few_s - FEW * event_s), event_s)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pair(NamedTuple):
    """The prediction and the measurement for a number of workers and a load."""

    predicted: Seen
    measured: Seen


def one_round(options: argparse.Namespace, rng: random.Random) -> dict[tuple[int, float], Pair]:
    """Measure the costs, then predict and measure each load with each number of workers."""
    work, found = costs(options, rng), {}
    most_per_s = 1 / work.worker.of(EVENTS)
    for name in ("client", "worker", "vendor"):
        cost: Cost = getattr(work, name)
        print(f"{name}: {cost.exchange_s * 1e6:,.0f} us CPU, {cost.event_s * 1e6:.0f} an event", flush=True)
    for workers in options.only or WORKERS:
        with ExitStack() as running:
            server = serve(running, workers, EVENTS)
            loads = {share: poisson(share * most_per_s, options.seconds, rng) for share in LOADS}
            used = {share: server.put(arrivals) for share, arrivals in loads.items()}
        machine = Machine(workers, used[max(LOADS)].cores)
        print(f"{workers} workers: {machine.cores:.2f} cores", flush=True)
        for share, arrivals in loads.items():
            found[workers, share] = Pair(summary(simulate(arrivals, work, machine)), used[share].seen)
    return found


def report(rounds: Sequence[dict[tuple[int, float], Pair]]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'':<16}{'streams/s':>24}{'first event, ms':>24}{'event, ms':>24}"]
    lines.append(f"{'workers, load':<16}" + f"{'predicted':>10}{'meas.':>8}{'ratio':>6}" * 3)
    for workers, share in rounds[0]:
        pairs = [one[workers, share] for one in rounds]
        line = f"{f'{workers}, {share:g}':<16}"
        for at, scale in enumerate((1, 1000, 1000)):
            predicted, measured = (median(pair[side][at] for pair in pairs) * scale for side in (0, 1))
            ratio = median(pair.measured[at] / pair.predicted[at] for pair in pairs)
            digits = 0 if scale == 1 else 2
            line += f"{predicted:>10.{digits}f}{measured:>8.{digits}f}{ratio:>6.2f}"
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Predict, measure and print. This is also the entry point of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of workers")
    parser.add_argument("--vendor", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= MOST_SECONDS:
        parser.error(f"at most {MOST_SECONDS:g} seconds")
    if options.vendor:
        uvloop.run(vend(options.vendor))
    elif options.load:
        uvloop.run(load(options.load, json.load(sys.stdin)))
    else:
        rng = random.Random(1)
        print("\n".join(["", *report([one_round(options, rng) for _ in range(options.rounds)])]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
