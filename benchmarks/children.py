"""Manage the processes of `benchmarks.soak`, and count their open resources."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fleet import processes
from benchmarks.proxy import READY, ROOT, SETTINGS, cpu_s

TASKS_PATH: Final = "/soak/tasks"
"""The path at which the server lists its tasks."""
SETTLES_S: Final = 40.0
"""The time within which all resources must be released: an idle connection to the upstream is kept for a while."""
LOOK_S: Final = 20.0
START_S: Final = 120.0
LISTENS: Final = "0A"
"""The state of a listening socket in the system's table."""
QUIET_S: Final = 0.1
"""CPU time per second of a process at rest. A starting process takes more."""


@dataclass
class Process:
    """A child process, its address, and its output without findings."""

    process: asyncio.subprocess.Process
    url: str = ""
    said: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    async def read(self, ready: asyncio.Event) -> None:
        """Read its output to the end."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            if not self.url and (found := READY.search(line)):
                self.url = found[1]
                ready.set()
            elif " INFO " not in line and "detected in session" not in line:
                self.said.append(line.rstrip())
        ready.set()

    async def hears(self, text: str, since: int) -> str:
        """Return the first line with this text after the first `since` lines; empty if there is none in time."""
        ends_s = time.monotonic() + LOOK_S
        while time.monotonic() < ends_s:
            if found := next((line for line in self.said[since:] if text in line), ""):
                return found
            await asyncio.sleep(0.02)
        return ""

    async def open_tasks(self) -> dict[str, int]:
        """Return its tasks by the names of their coroutines, including those that serve this request."""
        host, port = self.url.removeprefix("http://").split(":")
        async with asyncio.timeout(LOOK_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET %b HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n" % TASKS_PATH.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server does not tell of its tasks: {head!r}")
        found: dict[str, int] = json.loads(body)
        return found


@asynccontextmanager
async def started(life_s: float, *arguments: str) -> AsyncIterator[Process]:
    """Run this program as another process during the block."""
    own = {name: value for name, value in os.environ.items() if not SETTINGS.match(name)}
    command = [sys.executable, "-m", "benchmarks.soak", "--life-s", str(int(life_s)), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=own
    )
    child, ready = Process(process), asyncio.Event()
    reading = asyncio.create_task(child.read(ready))
    try:
        async with asyncio.timeout(START_S):
            await ready.wait()
        if not child.url:
            raise RuntimeError(f"{arguments} did not start: {child.said}")
        yield child
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(LOOK_S):
                await process.wait()
        except TimeoutError:
            process.kill()
        await reading


class Figures(NamedTuple):
    """The figures of the server at rest. With workers: its own plus those of the largest worker, without tasks."""

    rss_mb: float
    descriptors: int
    sockets: int
    tasks: int

    def __str__(self) -> str:
        return (
            f"{self.rss_mb:.1f} MB, {self.descriptors} descriptors, {self.sockets} sockets of them, {self.tasks} tasks"
        )


async def figures_of(server: Process, store_port: int = 0) -> Figures:
    """Return a server's open resources, without its connections to the store, because as many as were needed at once
    stay open."""
    own = _of_system(server.pid, store_port)
    if not (workers := processes(server.pid)):
        return Figures(*own, sum((await server.open_tasks()).values()))
    each = [_of_system(pid, store_port) for pid in workers]
    most = [max(figures) for figures in zip(*each, strict=True)]
    rss_mb, descriptors, sockets = map(sum, zip(own, most, strict=True))
    return Figures(rss_mb, int(descriptors), int(sockets), 0)


def _of_system(pid: int, store_port: int) -> tuple[float, int, int]:
    """Return memory in MB, the number of descriptors, and how many of these are sockets."""
    rss_kb = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    links = links_of(pid)
    to_store = sum(there == store_port for _, there in ports_of(pid)) if store_port else 0
    return rss_kb / 1024, len(links) - to_store, sum(link.startswith("socket:") for link in links) - to_store


def links_of(pid: int) -> list[str]:
    """Return the targets of a process's descriptors."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(path.readlink()))
    return links


def ports_of(pid: int) -> list[tuple[int, int]]:
    """Return the connections of a process: its own port, and the remote one."""
    sockets = {link[len("socket:[") : -1] for link in links_of(pid) if link.startswith("socket:")}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    own = [row for row in rows if row[9] in sockets and row[3] != LISTENS]
    here, there = ([int(row[at].rpartition(":")[2], 16) for row in own] for at in (1, 2))
    return list(zip(here, there, strict=True))


async def started_all(server: Process, workers: int) -> None:
    """Wait until all workers exist and have started, which shows by their CPU use."""
    ends_s = time.monotonic() + START_S
    quiet = 0
    while quiet < 2 and time.monotonic() < ends_s:
        pids = processes(server.pid)
        before_s = sum(map(cpu_s, pids))
        await asyncio.sleep(1)
        quiet = quiet + 1 if len(pids) == workers and sum(map(cpu_s, pids)) - before_s < QUIET_S else 0


async def at_rest(server: Process, begun: Figures, store_port: int = 0) -> Figures:
    """Return the figures once no more resources are released, or after `SETTLES_S`."""
    ends_s = time.monotonic() + SETTLES_S
    while True:
        found = await figures_of(server, store_port)
        if found[1:] <= begun[1:] or time.monotonic() > ends_s:
            return found
        await asyncio.sleep(1)
