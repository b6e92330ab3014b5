"""Calculate how many cores a number of streams needs and what breaks first, and compare the model with measurements.

    python -m benchmarks.fleet [--streams 1000000] [--events 30] [--answer-s 20]
    python -m benchmarks.fleet --measure [--seconds 4] [--clients 32]

The first calculates from `FIGURES`. The second measures them: CPU time of `callfuse serve` for an exchange and for an
event of its answer, with 1 worker. Then it runs 1, 2 and 4 workers, and compares CPU time and the share of the busiest
worker with the model. Only CPU time is compared, because it hardly depends on other work of the machine.

Everything is on loopback and ends by itself, with the processes of `benchmarks.proxy`.
"""

import argparse
import json
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

import uvloop

from benchmarks.proxy import GRACE_S, ROOT, cpu_s, in_pieces, itself, started, text_events, vend

SHORT: Final = 10
LONG: Final = 110
"""The events of a long answer; each arrives by itself."""
WORKERS: Final = (1, 2, 4)
DRAWS: Final = 2000
SETTLE_S: Final = 3.0


class Figures(NamedTuple):
    """The input of the calculation."""

    exchange_us: float = 2300.0
    """CPU of an exchange with 40 messages, without the events of its answer: `--measure`."""
    event_us: float = 13.0
    """CPU of an event: `--measure`."""
    stream_kb: float = 24.0
    """Memory of an open stream without its request: `python -m benchmarks.memory`."""
    request_kb: float = 31.0
    trips: int = 2
    """Round trips to the store for an exchange."""
    store_trips_per_s: float = 50_000.0
    """Round trips of one Redis process; an assumption."""
    busy: float = 0.6
    """The planned load of a core; an assumption."""
    core_dollars_h: float = 0.04
    output_dollars_m: float = 10.0
    """The price of a million tokens of a model's output; a token is an event. Both prices are assumptions."""


class Load(NamedTuple):
    """Open streams, events per second of each, and seconds of an answer."""

    streams: int
    events_per_s: float
    answer_s: float


class Demand(NamedTuple):
    """The resources that a load needs."""

    cores: float
    streams_per_core: float
    memory_gb: float
    exchanges_per_s: float
    stores: float
    dollars_h: float
    model_dollars_h: float


def demand(load: Load, figures: Figures) -> Demand:
    """Return the demand of a steady load: each stream is an exchange, and another one follows it."""
    exchanges = load.streams / load.answer_s
    busy_us = load.streams * load.events_per_s * figures.event_us + exchanges * figures.exchange_us
    cores = busy_us / 1e6 / figures.busy
    return Demand(
        cores,
        load.streams / cores,
        load.streams * (figures.stream_kb + figures.request_kb) / 1e6,
        exchanges,
        exchanges * figures.trips / figures.store_trips_per_s,
        cores * figures.core_dollars_h,
        load.streams * load.events_per_s * 3600 / 1e6 * figures.output_dollars_m,
    )


def limits(load: Load, figures: Figures) -> dict[str, float]:
    """Return how many streams one worker can have before it reaches each of its limits, with the default settings."""
    return {
        "one core": demand(load, figures).streams_per_core,
        "serve.max_connections": 1000,
        "max_total_bytes": 512 * 1048.576 / figures.request_kb,
    }


def busiest_share(clients: int, workers: int, rng: random.Random) -> float:
    """Return the share of all requests that the worker with the most connections gets, if each connection goes to a
    random worker: the mean of many draws."""
    shares = []
    for _ in range(DRAWS):
        drawn = rng.choices(range(workers), k=clients)
        shares.append(max(map(drawn.count, range(workers))) / clients)
    return mean(shares)


class Measured(NamedTuple):
    """The figures of one run: CPU time per request, and the share of the busiest worker."""

    cpu_us: float
    busiest: float


def measure(workers: int, events: int, options: argparse.Namespace) -> Measured:
    """Run a load against `callfuse serve` with this number of workers."""
    life_s = options.seconds + 2 * GRACE_S
    program = [sys.executable, "-m"]
    with ExitStack() as running:
        vendor = running.enter_context(started([*program, "benchmarks.fleet", "--vendor", str(events)], None, life_s))
        serve = [*program, "callfuse", "serve", "--port", "0", "--upstream", vendor.url, "--workers", str(workers)]
        server = running.enter_context(started(serve, None, life_s))
        load = itself("--load", server.url, "--row", "agent's request", core=None, life_s=life_s)
        load += ["--clients", str(options.clients), "--seconds"]
        for seconds in (SETTLE_S, options.seconds):  # the first lasts until all workers have started
            pids = processes(server.pid) if workers > 1 else [server.pid]
            before = [cpu_s(pid) for pid in pids]
            done = subprocess.run([*load, str(seconds)], check=True, capture_output=True, text=True, cwd=ROOT)
        used = [cpu_s(pid) - begun for pid, begun in zip(pids, before, strict=True)]
    result = json.loads(done.stdout)
    if result["failures"]:
        raise RuntimeError(f"{result['failures']} of {result['every']} requests failed")
    return Measured(sum(used) / result["every"] * 1e6, max(used) / sum(used))


def processes(pid: int) -> list[int]:
    """Return the worker processes of a process."""
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [one for one in children if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()]


def compare(options: argparse.Namespace) -> None:
    """Measure the figures with one worker, and print the model's predictions for more workers next to measurements."""
    short, long = (measure(1, events, options).cpu_us for events in (SHORT, LONG))
    event_us = (long - short) / (LONG - SHORT)
    exchange_us = short - SHORT * event_us
    print(f"an exchange {exchange_us:,.0f} us, an event {event_us:.1f} us\n")
    print(f"{'workers':<10}{'CPU us/request':>22}{'busiest worker':>22}")
    print(f"{'':<10}{'model':>11}{'measured':>11}{'model':>11}{'measured':>11}")
    rng = random.Random(1)
    for workers in WORKERS:
        found = measure(workers, SHORT, options)
        share = busiest_share(options.clients, workers, rng)
        print(f"{workers:<10}{short:>11,.0f}{found.cpu_us:>11,.0f}{share:>11.2f}{found.busiest:>11.2f}", flush=True)


def report(load: Load, figures: Figures) -> list[str]:
    """Return the lines of the calculation."""
    found = demand(load, figures)
    first = min(limits(load, figures).items(), key=lambda limit: limit[1])
    return [
        f"{load.streams:,} streams with {load.events_per_s:g} events a second, answers of {load.answer_s:g} s",
        f"cores: {found.cores:,.0f}, {found.streams_per_core:,.0f} streams each",
        f"memory: {found.memory_gb:,.0f} GB beside 75 MB of each worker",
        f"exchanges a second: {found.exchanges_per_s:,.0f}; processes of the store: {found.stores:.1f}",
        f"dollars an hour: {found.dollars_h:,.0f}; of the models' output: {found.model_dollars_h:,.0f}",
        f"a worker's first limit: {first[0]}, at {first[1]:,.0f} streams",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Calculate, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--events", type=float, default=30, help="of each stream, a second")
    parser.add_argument("--answer-s", type=float, default=20)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--vendor", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.vendor:
        events = text_events(options.vendor)
        uvloop.run(vend(in_pieces(events, len(events))))
    elif options.measure:
        compare(options)
    else:
        print("\n".join(report(Load(options.streams, options.events, options.answer_s), Figures())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
