"""Nodes that are killed and replaced under load, and slots that move: no exchange fails, and nothing that one has
brought is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.crc import key_slot

from callfuse.asgi.changes import change_lanes
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptRound, LaneState, Read, SessionState
from callfuse.policy.tiers import Overrides
from callfuse.stores.ahead import LanesAhead
from callfuse.stores.keys import lane_key
from callfuse.stores.redis import RedisLedger
from tests.stores.gate import Gate
from tests.stores.test_down import PATIENCE_S, Beside, beside
from tests.support.kept import rounds_of, session, set_by, state
from tests.support.redis import RedisServer
from tests.support.redis_nodes import Cluster, Watched, wait_for

TIMEOUT_S = 5.0
"""A dead process refuses at once; whoever waits longer is only busy."""
LONGEST_S = 100.0
"""How long a test waits for servers; it takes a second or two."""


def lane_of(number: int) -> Lane:
    """The lane of a client of its own."""
    return Lane(bytes([number]) * 16, "session", b"", "x-callfuse-session-id")


async def exchange(ledger: RedisLedger, lane: Lane, number: int) -> None:
    """Bring one round to a lane, as an exchange does."""
    read = Read(lane, *await ledger.read(lane, number))
    brought = KeptRound(number, float(number), b"turn", ())

    async def make(state: LaneState | None) -> dict[Lane, LaneState]:
        there = read.state if state is None else state
        return {lane: replace(there, rounds=(*there.rounds, brought))}

    assert await change_lanes(ledger, read, make, number)


async def positions(ledger: RedisLedger, lane: Lane, now: float) -> list[int]:
    """The rounds that are kept of a lane."""
    return [one.position for one in await rounds_of(ledger, lane, now)]


class Load:
    """Exchanges of many lanes, by two workers in turns, until it is ended."""

    def __init__(self, workers: Sequence[Beside], lanes: Sequence[Lane]) -> None:
        self.workers = workers
        self.lanes = lanes
        self.rounds = 0

    async def step(self) -> None:
        """One exchange of each lane."""
        worker = self.workers[self.rounds % len(self.workers)]
        await asyncio.gather(*(exchange(worker.ledger, lane, self.rounds) for lane in self.lanes))
        self.rounds += 1

    async def during(self, work: Callable[[], object]) -> None:
        """Exchanges while something happens to the servers, and until all workers use them again."""
        working = asyncio.create_task(asyncio.to_thread(work))
        async with asyncio.timeout(LONGEST_S):
            while not working.done() or not all(one.ledger._connection.closed for one in self.workers):
                for one in self.workers:
                    one.now += 5  # pauses of circuits are over sooner
                await self.step()
                await asyncio.sleep(0.05)
        await working

    def errors(self) -> int:
        """How often a worker could not use the store."""
        return sum(one.counts.of("store_errors") for one in self.workers)


@asynccontextmanager
async def load(url: str, clients: int) -> AsyncIterator[Load]:
    """Two workers over a store."""
    async with beside(url, TIMEOUT_S) as one, beside(url, TIMEOUT_S) as other:
        found = Load((one, other), [lane_of(number) for number in range(clients)])
        for _ in range(4):
            await found.step()
        yield found


async def lost(url: str, under: Load) -> int:
    """How many rounds a new worker does not find, after each worker has had one exchange more."""
    for _ in under.workers:
        await under.step()
    async with beside(url, PATIENCE_S) as fresh:
        found = [set(await positions(fresh.ledger, lane, under.rounds)) for lane in under.lanes]
    return sum(len(set(range(under.rounds)) - one) for one in found)


@pytest.mark.search
async def test_nodes_of_a_cluster_die_in_turn(path: str, tmp_path: Path) -> None:
    """Each has a replica that takes its place, at last the one that was dead first. Clients of the other nodes do not
    notice: their lanes are read and written as ever."""
    cluster = Cluster(tmp_path, replicas=True, path=path)
    try:
        cluster.start()
        async with load(cluster.url, 24) as under:
            first, *others = cluster.masters
            successor = cluster.replicas[0]
            for dead in (first, *others, successor):
                if dead is successor:
                    await under.during(lambda: cluster.bring_back(first))
                errors = under.errors()
                await under.during(lambda dead=dead: cluster.replace(dead))  # type: ignore[misc]
                assert under.errors() > errors
            assert any(cluster.owner(lane_key(lane)) is first for lane in under.lanes)
            assert await lost(cluster.url, under) == 0
    finally:
        cluster.end()


@pytest.mark.search
async def test_a_server_is_replaced(path: str, tmp_path: Path) -> None:
    """Sentinels name its replica, one of them dead; the old one comes back as a replica of it, and takes its place in
    turn."""
    watched = Watched(tmp_path, path=path)
    try:
        watched.start()
        async with load(watched.url, 12) as under:
            watched.sentinels[0].end()
            old = watched.master
            await under.during(watched.replace)
            assert watched.master is not old
            await under.during(watched.bring_back)
            await under.during(watched.replace)
            assert watched.master is old
            assert await lost(watched.url, under) == 0
    finally:
        watched.end()


async def test_slots_move(cluster: Cluster) -> None:
    """Before, while and after the keys of a client go from one node to another, one by one: a script that needs keys
    of both nodes is run over the memory of the process, and the node is not blamed."""
    async with beside(cluster.url, PATIENCE_S) as one, beside(cluster.url, PATIENCE_S) as other:
        lane, second = lane_of(1), lane_of(1)._replace(session="other")
        key = lane_key(lane)
        slot, source = key_slot(key.encode()), cluster.owner(lane_key(lane))
        target = next(node for node in cluster.masters if node is not source)
        number = 0

        async def turns() -> None:
            nonlocal number
            for worker in (one, other):
                for at in (lane, second):
                    await exchange(worker.ledger, at, number)
                number += 1

        await turns()
        cluster.begin_move(slot, source, target)
        await turns()
        for _ in range(2):
            cluster.move_keys(slot, source, target, 1)
            await turns()
        cluster.move_keys(slot, source, target)
        await turns()
        cluster.end_move(slot, target)
        await turns()
        for at in (lane, second):
            await positions(one.ledger, at, number)
            assert await positions(other.ledger, at, number) == list(range(number))
        assert one.ledger._connection.closed
        assert other.ledger._connection.closed
        assert {"callfuse:probe"} & set(target.stored()) == set()
        assert key in target.stored()
        cluster.begin_move(slot, target, source)
        cluster.move_keys(slot, target, source)
        cluster.end_move(slot, source)


async def test_slots_move_under_load(cluster: Cluster) -> None:
    """Those of some clients, all the while they are used; the nodes send exchanges elsewhere, and none is blamed."""
    async with load(cluster.url, 12) as under:
        keys = [lane_key(lane) for lane in under.lanes[:3]]
        places = [(key_slot(key.encode()), cluster.owner(key)) for key in keys]

        def go_on() -> None:
            """Let each worker have an exchange."""
            before = under.rounds
            wait_for(lambda: under.rounds > before + len(under.workers), "no exchange ends")

        def move() -> None:
            for slot, source in places:
                target = next(node for node in cluster.masters if node is not source)
                cluster.move(slot, source, target, go_on)

        try:
            await under.during(move)
            assert all(cluster.owner(key) is not source for key, (_, source) in zip(keys, places, strict=True))
            assert await lost(cluster.url, under) == 0
            assert all(not one.ledger._connection._circuits for one in under.workers)
            assert {"MOVED", "ASK", "TRYAGAIN"} <= set().union(*(node.refusals() for node in cluster.masters))
        finally:
            for slot, source in places:
                if (owner := cluster.owner_of_slot(slot)) is not source:
                    cluster.move(slot, owner, source)


async def test_a_node_without_a_replica(program_there: None, tmp_path: Path) -> None:
    """Its clients are served from memory until it is back; those of other nodes share their lanes as ever. It is used
    again though none of its clients has come."""
    alone = Cluster(tmp_path)
    try:
        alone.start()
        async with beside(alone.url, TIMEOUT_S) as one, beside(alone.url, TIMEOUT_S) as other:
            lanes = [lane_of(number) for number in range(12)]
            for lane in lanes:
                await exchange(one.ledger, lane, 0)
            dead = alone.owner(lane_key(lanes[0]))
            others = [lane for lane in lanes if alone.owner(lane_key(lane)) is not dead]
            dead.end()
            for number, worker in ((1, one), (2, other), (3, one)):
                for lane in lanes:
                    await exchange(worker.ledger, lane, number)
            for lane in lanes:
                assert await positions(one.ledger, lane, 4) == ([0, 1, 2, 3] if lane in others else [0, 1, 3])
            assert (one.told().get("store_errors read"), one.told().get("store_errors write")) == (1, None)
            dead.start()
            await used_again(one, others[0], 4)
    finally:
        alone.end()


async def test_a_node_whose_slots_others_have(program_there: None, tmp_path: Path) -> None:
    """It is not down any longer, though none of its clients was there when that was noticed."""
    alone = Cluster(tmp_path)
    try:
        alone.start()
        async with beside(alone.url, TIMEOUT_S) as one:
            lanes = [lane_of(number) for number in range(12)]
            for lane in lanes:
                await exchange(one.ledger, lane, 0)
            dead, target, _ = alone.masters
            of_dead, of_target = (next(x for x in lanes if alone.owner(lane_key(x)) is node) for node in (dead, target))
            dead.end()
            await exchange(one.ledger, of_dead, 1)
            alone.give(dead, target)
            await exchange(one.ledger, of_target, 1)
            async with asyncio.timeout(LONGEST_S):
                while lane_key(of_dead) not in target.stored():
                    await exchange(one.ledger, of_dead, 2)
                    await asyncio.sleep(0.05)
            await used_again(one, of_target, 2)
            assert {*await positions(one.ledger, of_dead, 3)} == {0, 1, 2}
    finally:
        alone.end()


async def used_again(worker: Beside, lane: Lane, number: int) -> None:
    """After a pause, while this lane is in use."""
    async with asyncio.timeout(LONGEST_S):
        while not worker.ledger._connection.closed:
            worker.now += 5
            await exchange(worker.ledger, lane, number)
            await asyncio.sleep(0.05)


async def test_what_sessions_set_on_both_sides(another: Callable[..., RedisServer], program_there: None) -> None:
    """Each holds, though one worker could not reach the store when it was set."""
    server = another()
    async with (
        Gate(server.port).standing() as gate,
        beside(server.url) as other,
        beside(f"redis://127.0.0.1:{gate.port}", 0.05) as one,
    ):
        gate.shut()
        mine = SessionState(Overrides({"ttl_seconds": 9.0}), (b"mine",), revision="aa")
        await one.ledger.write_session(session(1), mine, 0, SessionState())
        theirs = SessionState(Overrides({"max_repeats": 7}), (b"theirs",), revision="bb")
        await other.ledger.write_session(session(1), theirs, 0, SessionState())
        gate.open = True
        one.now += 1
        one.ledger._connection._timeout_s = PATIENCE_S
        await one.ledger.read(lane_of(3), 0)
        await one.until(lambda: one.ledger._connection.closed)
        for worker in (one, other):
            found = await set_by(worker.ledger, session(1), 0)
            assert found.overrides.values == {"ttl_seconds": 9.0, "max_repeats": 7}
            assert set(found.ran) == {b"mine", b"theirs"}


def test_a_lane_that_memory_has_dropped() -> None:
    """Of it the store's word counts; of one that it still has, its own, as long as nobody else has written it."""
    ahead, lane, there = LanesAhead(), lane_of(1), replace(state(1), revision="a1")
    ahead.note(lane, there)
    assert ahead.join(lane, there, replace(state(2), revision="b2")) == state(2)
    assert ahead.join(lane, there, LaneState(last_used=1.0)) == there
    assert lane not in ahead


@pytest.mark.parametrize("writes", [1, 3])
async def test_a_store_that_has_gone_back(another: Callable[..., RedisServer], writes: int) -> None:
    """As a replica that had not got the last writes: what this process has seen of them is brought back."""
    server = another()
    async with beside(server.url) as one, beside(server.url) as other:
        lane = lane_of(1)
        await exchange(one.ledger, lane, 0)
        key = lane_key(lane)
        before = server.ask("GET", key)
        for number in range(1, 1 + writes):
            await exchange(one.ledger, lane, number)
        server.ask("SET", key, before)
        await exchange(other.ledger, lane, 7)
        await exchange(one.ledger, lane, 8)
        assert await positions(other.ledger, lane, 9) == [*range(1 + writes), 7, 8]
