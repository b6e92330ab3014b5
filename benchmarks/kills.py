"""Kill parts of `benchmarks.soak` while streams run: a worker, the store's server, the vendor's connections.

Each kill returns a line about what it did, and adds anything that did not recover to `Load.faults`. Only streams that
it may cut are excused: those on the killed worker, which is first stopped to read its connections, and those that run
when the vendor resets all of its connections. The death of a store cuts no stream.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.redis import RedisServer

from benchmarks.children import START_S, Process, ports_of
from benchmarks.fleet import processes
from benchmarks.streams import STREAM_S, Load


class Fleet(NamedTuple):
    """The parts that can be killed. `store`: None if no server for it is installed."""

    server: Process
    vendor: Process
    store: RedisServer | None

    @property
    def store_port(self) -> int:
        """The port of the store; 0 for none."""
        return self.store.port if self.store else 0

    def clients(self, worker: int) -> set[int]:
        """Return the ports of the clients that a worker serves."""
        port = int(self.server.url.rpartition(":")[2])
        return {there for here, there in ports_of(worker) if here == port}

    def stopped_clients(self, worker: int) -> set[int]:
        """Stop a worker, and return the ports of its clients, which can no longer change."""
        os.kill(worker, signal.SIGSTOP)
        while not Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].startswith(" T"):
            pass  # takes some microseconds
        return self.clients(worker)

    def busiest(self) -> int:
        """Return the worker with the most clients; 0 if none has any."""
        clients = {worker: len(self.clients(worker)) for worker in processes(self.server.pid)}
        worker = max(clients, key=clients.__getitem__, default=0)
        return worker if clients.get(worker) else 0


async def kill_worker(fleet: Fleet, load: Load) -> str:
    """Kill the worker with the most streams, and wait until its replacement serves a stream."""
    if not await until(lambda: bool(fleet.busiest()), STREAM_S):
        load.faults["no worker serves"] += 1
        return "no worker serves"
    before, lines = processes(fleet.server.pid), len(fleet.server.said)
    worker = fleet.busiest() or before[0]
    cut = fleet.stopped_clients(worker)
    load.cut_ports |= cut
    os.kill(worker, signal.SIGKILL)
    begun_s = time.monotonic()
    if not await fleet.server.hears(f"worker {worker} is gone: it was ended by SIGKILL", lines):
        load.faults["the log does not name a worker that was killed"] += 1

    def replaced() -> bool:
        workers = processes(fleet.server.pid)
        return len(workers) == len(before) and any(fleet.clients(pid) for pid in workers if pid not in before)

    if not await until(replaced, START_S):
        load.faults["a worker that was killed is not replaced"] += 1
    return f"worker with {len(cut)} streams; another one served after {time.monotonic() - begun_s:.1f} s"


async def reset_upstream(fleet: Fleet, load: Load) -> str:
    """Make the vendor reset all of its connections, including idle ones, and wait for as many streams as are
    running."""
    lines = len(fleet.vendor.said)
    load.may_cut_all = True
    os.kill(fleet.vendor.pid, signal.SIGUSR1)
    told = await fleet.vendor.hears("reset ", lines)
    for stream in load.running:
        stream.may_be_cut = True
    load.may_cut_all = False
    if not told or not await more_streams(load):
        load.faults["no stream ended after the vendor's reset"] += 1
    return f"{told.removeprefix('reset ')} connections of the vendor"


async def restart_store(fleet: Fleet, load: Load) -> str:
    """Kill the store, wait for as many streams as are running, start it without its data, and wait until it is used
    again."""
    store = fleet.store
    assert store is not None
    await asyncio.to_thread(store.end)
    if not await more_streams(load):
        load.faults["no stream ended without the store"] += 1
    await asyncio.to_thread(store.start)
    begun_s = time.monotonic()

    async def is_used() -> bool:
        return bool(await asyncio.to_thread(store.ask, "DBSIZE"))

    if not await until(is_used, START_S):
        load.faults["the store is not used again"] += 1
    return f"store; used again {time.monotonic() - begun_s:.1f} s after its start"


async def more_streams(load: Load) -> bool:
    """Wait until as many streams have ended as are running now. Returns whether they have."""
    enough = load.done.total() + len(load.running)
    return await until(lambda: load.done.total() >= enough, STREAM_S)


async def until(holds: Callable[[], bool | Awaitable[bool]], most_s: float = float("inf")) -> bool:
    """Wait until a condition holds. Returns whether it does."""
    ends_s = time.monotonic() + most_s
    while time.monotonic() < ends_s:
        found = holds()
        if found if isinstance(found, bool) else await found:
            return True
        await asyncio.sleep(0.05)
    return False


Kill = Callable[[Fleet, Load], Awaitable[str]]
KILLS: Final[tuple[Kill, ...]] = (kill_worker, reset_upstream, restart_store)


def kills_of(fleet: Fleet, number: int) -> list[Kill]:
    """Return `number` kills, of each kind in turn."""
    return list(islice(cycle(KILLS if fleet.store else KILLS[:2]), number))
