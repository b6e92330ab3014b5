"""Run hundreds of concurrent streams through `callfuse serve`, some with faults, and check answers and leaks.

    python -m benchmarks.soak [--streams 500] [--seconds 60] [--waves 1] [--share 0.01] [--seed 1] [--pause 0.2]
    python -m benchmarks.soak --workers 2 --kills 3 [...]

Three processes on loopback: a scripted vendor (`callfuse.testing`), the command itself, and this one, which keeps
`--streams` streams open for `--seconds` seconds; when one ends, another begins. Most are healthy. Each kind below has
the share `--share`:

    loops           the model makes the same call again, whatever it reads
    dies            the vendor's connection ends in the middle of the answer
    dies in hold    it ends in the middle of a held call
    leaves          the client disconnects in the middle of the answer
    leaves in hold  it disconnects while a call is held
    aborts          it disconnects in the middle of its upload

Checks: each healthy stream has the vendor's bytes and its end; a loop gets only callfuse's text; an answer that broke
off has the vendor's bytes and no end. Memory (`--most-mb`), tasks, sockets and descriptors of the server at the end are
compared with those after a shorter load of the same shape, also after several loads in sequence (`--waves`). The exit
code is 1 if any check fails.

With `--kills`, this number of kills is done in each load, in turn: the worker with the most streams, all connections of
the vendor, and the store's server, if one is installed (`benchmarks.kills`). Only streams that a kill may have cut are
excused, but their bytes must still be the vendor's. The killed parts must recover. Memory and descriptors are those of
the supervisor and of the largest worker.

Everything ends by itself: the load after its time, or after `--count` streams, and the processes by an alarm. Only the
store's server, if used, continues to run if this program is killed.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from typing import Final
from unittest.mock import patch

from tests.support.redis import RedisServer, program

from benchmarks.children import TASKS_PATH, Figures, at_rest, figures_of, started, started_all
from benchmarks.driving import Receive, Scope, Send
from benchmarks.kills import Fleet, Kill, kills_of, until
from benchmarks.streams import FAULTY, MOST_STREAMS, Load, vend
from callfuse.__main__ import main as main_of_callfuse
from callfuse.cli import serve

MOST_SECONDS: Final = 7200.0
WARM_SHARE: Final = 0.4
"""The share of the seconds for the load before, which fills caches, pools and the store's lanes."""
GRACE_S: Final = 240
"""The system ends a process this many seconds after its longest planned use."""


def become(arguments: list[str]) -> None:
    """Become `callfuse` with these arguments, with the additional path `TASKS_PATH`, which lists its tasks."""
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

    # Without this, the alarm would leave workers behind.
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
    sys.argv = ["callfuse", *arguments]
    with patch.object(serve, "build_app", build_app):
        main_of_callfuse()


def is_error(line: str) -> bool:
    """Whether a line of the server's log reports an error. Lines about answers that broke off are expected."""
    return (" ERROR " in line and "returned without completing response" not in line) or "Traceback" in line


async def run(load: Load, options: argparse.Namespace, part: float, kills: Sequence[Kill], fleet: Fleet) -> None:
    """Run a load for a part of its length, with these kills at equal intervals."""

    async def reach(share: float) -> None:
        await until(lambda: load.progress(options.count * part, options.seconds * part) >= share)

    running = asyncio.create_task(load.run(options.streams))
    try:
        for at, kill in enumerate(kills, 1):
            await reach(at / (len(kills) + 1))
            print(f"killed         {await kill(fleet, load)}", flush=True)
        await reach(1)
    finally:
        load.is_over = True
        await running


async def soak(options: argparse.Namespace) -> list[str]:
    """Run, print, and return the failed checks."""
    numbers = count()
    life_s = options.seconds * (options.waves + WARM_SHARE) + GRACE_S * options.waves * (1 + options.kills)
    wrong: list[str] = []
    with ExitStack() as stack:
        store = RedisServer() if options.kills and program() else None
        if store:
            stack.callback(store.end)
            store.start()
        async with started(life_s, "--vendor", "--pause", str(options.pause)) as vendor:
            command = ["serve", "--port", "0", "--upstream", vendor.url, "--workers", str(options.workers)]
            command += ["--store", store.url] if store else []
            async with started(life_s, "--become", json.dumps(command)) as server:
                fleet = Fleet(server, vendor, store)
                if options.workers > 1:
                    await started_all(server, options.workers)
                begun = await figures_of(server, fleet.store_port)
                print(f"at the start   {begun}", flush=True)
                rest: list[Figures] = []
                for name, part in (("warm-up", WARM_SHARE), *[("load", 1.0)] * options.waves):
                    load = Load(server.url, options.seed, options.share, numbers)
                    await run(load, options, part, kills_of(fleet, options.kills if rest else 0), fleet)
                    rest.append(await at_rest(server, begun, fleet.store_port))
                    wrong += tell(name, load, rest[-1])
                wrong += left(begun, rest, options.most_mb)
                if begun.tasks < rest[-1].tasks:
                    wrong.append(f"the tasks are {await server.open_tasks()}")
                wrong += [f"the server says: {line}" for line in server.said if is_error(line)][:10]
    return wrong


def tell(name: str, load: Load, after: Figures) -> list[str]:
    """Print the results of a load. Returns the faults of its streams."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in load.done.most_common())
    cut = f"; {load.cut} of them cut by what was killed" if load.cut else ""
    print(f"after {name:<8} {after}", flush=True)
    print(f"               {load.most_open} streams at once; {kinds}{cut}", flush=True)
    return [f"{number} streams, {text}" for text, number in load.faults.most_common()]


def left(begun: Figures, rest: Sequence[Figures], most_mb: float) -> list[str]:
    """Return the resources that the server has not released: memory since the warm-up, everything else since its
    start."""
    grown_mb = rest[-1].rss_mb - rest[0].rss_mb
    more = {name: getattr(rest[-1], name) - getattr(begun, name) for name in ("descriptors", "sockets", "tasks")}
    found = [f"{number} {name} left" for name, number in more.items() if number > 0]
    return ([f"{grown_mb:.1f} MB more than after the warm-up"] if grown_mb > most_mb else []) + found


def main(arguments: list[str] | None = None) -> int:
    """Run and print. This is also the entry point of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--waves", type=int, default=1, help="loads, one after another")
    parser.add_argument("--share", type=float, default=0.01, help="of each kind that goes wrong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two events of the vendor's")
    parser.add_argument("--count", type=int, default=0, help="streams of a load, instead of seconds")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0, help="in each load; for several workers")
    parser.add_argument("--most-mb", type=float, default=20.0, help="that memory may have grown since the warm-up")
    parser.add_argument("--become", help=argparse.SUPPRESS)
    parser.add_argument("--vendor", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--life-s", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    of_all_s = options.seconds * options.waves
    if not (0 < options.streams <= MOST_STREAMS and 0 < of_all_s <= MOST_SECONDS and options.share * len(FAULTY) < 1):
        parser.error(f"at most {MOST_STREAMS} streams, {MOST_SECONDS:g} seconds of all loads and a share of 0.16")
    if options.kills and options.workers < 2:
        parser.error("--kills needs --workers 2 or more: others serve while a dead worker is replaced")
    if options.life_s:
        signal.alarm(options.life_s)  # independent of the process that started it
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
