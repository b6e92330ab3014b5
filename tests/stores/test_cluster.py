"""A real Cluster of three nodes: each client's keys are on one of them, and all of them are found."""

from callfuse.conversations.ledger import LaneState, SessionState
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.log import LogSink
from callfuse.stores import open_ledger
from callfuse.stores.redis import RedisLedger
from tests.support.kept import TTL, lane, rounds_of, set_by, state
from tests.support.redis_nodes import Cluster


async def test_clients_are_spread_over_the_nodes(cluster: Cluster) -> None:
    """By one URL, and with one round trip each where a lane is in another session's name, too."""
    counts = Counts()
    nodes, url = cluster.masters, cluster.masters[0].url.replace("redis://", "redis+cluster://")
    ledger = open_ledger(url, max_lanes=100, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
    assert isinstance(ledger, RedisLedger)
    clients = [lane(at)._replace(credential=bytes([at]) * 16) for at in range(16)]
    try:
        for at, one in enumerate(clients):
            chained = one._replace(session="the-next-answer")
            there = LaneState(state(at).rounds, session=one.session)
            await ledger.write({one: state(at), chained: there}, 0)
            await ledger.write_session((one.credential, one.session), TTL, 0)
            assert (await rounds_of(ledger, one, 0))[0].position == at
            found, kept = await ledger.read(chained, 0)
            assert (found.rounds[0].position, kept) == (at, TTL)
    finally:
        await ledger.aclose()
    assert counts.of("store_errors") == 0
    tags = [{key.partition("}")[0] for key in node.stored()} for node in nodes]
    assert all(tags)
    assert sum(map(len, tags)) == len(set().union(*tags)), "those of a client are on one node"
    assert sum(len(node.stored()) for node in nodes) == 5 * len(clients), (
        "two lanes with the times of their last use, and what the session has set"
    )


async def test_sessions_are_found_on_all_nodes(cluster: Cluster) -> None:
    """By any process, whoever their clients are; the index lies on them, too."""
    counts = Counts()
    nodes, url = cluster.masters, cluster.masters[0].url.replace("redis://", "redis+cluster://")
    ledgers = [open_ledger(url, max_lanes=100, ttl_s=100, timeout_s=20, bus=Bus(counts)) for _ in range(2)]
    one, other = (ledger for ledger in ledgers if isinstance(ledger, RedisLedger))
    one.index_sessions()
    clients = [bytes([at]) * 16 for at in range(16)]
    try:
        for at, client in enumerate(clients):
            await one.write({lane(at)._replace(credential=client, session="the-same"): state()}, 0)
            await one.write_session((client, f"session-{at}"), TTL, 0)
        await one.aclose()
        assert {found.key[0] for found in await other.find_sessions("the-same", 0)} == set(clients)
        assert sorted(found.key[0] for found in await other.sessions(0)) == clients
        for at, client in enumerate(clients):
            (found,) = await other.find_sessions(f"session-{at}", 0)
            assert (found.key[0], found.state) == (client, TTL)
        states = {(clients[3], f"session-{at}"): SessionState(reset=7.0) for at in range(20)}
        await other.write_sessions(states, 0)
        assert {(await set_by(one, key, 0)).reset for key in states} == {7.0}
    finally:
        for ledger in (one, other):
            await ledger.aclose()
    assert counts.of("store_errors") == 0
    assert sum(any(":name:" in key for key in node.stored()) for node in nodes) > 1
