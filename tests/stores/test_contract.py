"""What every ledger does, in memory or elsewhere."""

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

import pytest
from redis import Redis

from callfuse.conversations.ledger import KeptCall, KeptRound, LaneState, Ledger, SessionState
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.stores import open_ledger, probe
from callfuse.stores.keys import lane_key
from callfuse.stores.redis import RedisLedger
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state
from tests.support.redis import RedisServer, programs
from tests.support.redis_nodes import MASTER, Watched


class Forgetful(Protocol):
    """A store that can be emptied."""

    url: str

    def forget(self) -> None:
        """Empty it."""


KINDS = ["memory", "server", "cluster", "watched", *(["second"] if len(programs()) > 1 else [])]
"""Stores; the second one is Redis where the others are Valkey, or the other way round."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Forgetful | None:
    """An empty store of each kind; None for the memory of the process."""
    return None if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture
async def ledger(store: Forgetful | None) -> AsyncIterator[Ledger]:
    """An empty ledger of each kind."""
    url = "memory://" if store is None else store.url
    counts = Counts()
    one = open_ledger(url, max_lanes=10, ttl_s=100, timeout_s=20, bus=Bus(counts))
    assert isinstance(one, RedisLedger) is (store is not None)
    yield one
    assert counts.of("store_errors") == 0
    if isinstance(one, RedisLedger):
        await one.aclose()


async def test_what_was_written_is_read(ledger: Ledger) -> None:
    """And a lane that nobody has written is empty."""
    await ledger.write({lane(1): state(7)}, 0)
    assert (await rounds_of(ledger, lane(1), 1))[0].position == 7
    assert await rounds_of(ledger, lane(2), 1) == ()
    for other in ({"credential": b"other"}, {"fingerprint": b"other"}, {"source": "x"}, {"agent": "other"}):
        assert await rounds_of(ledger, lane(1)._replace(**other), 1) == ()


async def test_the_last_one_counts(ledger: Ledger) -> None:
    """A lane and a session have one state each."""
    for position in (1, 2):
        await ledger.write({lane(1): state(position)}, 0)
    await ledger.write_session(session(1), SessionState(ran=(b"earlier",)), 0)
    await ledger.write_session(session(1), TTL, 0)
    found, kept = await ledger.read(lane(1), 1)
    assert [one.position for one in found.rounds] == [2]
    assert kept == TTL


async def test_a_state_that_nobody_wrote_is_nobodys(ledger: Ledger) -> None:
    """What is read for an unknown lane may be written for another: it stays unknown."""
    unknown, _ = await ledger.read(lane(1), 0)
    await ledger.write({lane(2): replace(unknown, rounds=state().rounds)}, 0)
    assert await rounds_of(ledger, lane(1), 0) == ()


async def test_what_a_session_has_set(ledger: Ledger) -> None:
    """It is read under the session's own name and credential only."""
    await ledger.write_session(session(1), TTL, 0)
    assert await set_by(ledger, session(1), 1) == TTL
    assert await set_by(ledger, session(2), 1) == SessionState()
    assert await set_by(ledger, (b"other", "session-1"), 1) == SessionState()


async def test_the_lane_knows_its_session(ledger: Ledger) -> None:
    """By the id of an answer a chain goes on; what holds is what the session has set that began it."""
    await ledger.write_session(session(1), TTL, 0)
    await ledger.write({lane(2): LaneState(session="session-1")}, 0)
    found, kept = await ledger.read(lane(2), 1)
    assert found == LaneState(session="session-1")
    assert kept == TTL
    assert (await ledger.read(lane(2)._replace(credential=b"other"), 1))[1] == SessionState()
    await ledger.write_session(session(2), SessionState(ran=(b"own",)), 0)
    assert (await ledger.read(lane(2), 1))[1] == TTL


async def test_lanes_are_written_together(ledger: Ledger) -> None:
    """The place where an answer's id leads, and that of the request."""
    await ledger.write({lane(1): state(1), lane(2): state(2)}, 0)
    assert [(await rounds_of(ledger, lane(number), 1))[0].position for number in (1, 2)] == [1, 2]


async def test_a_lane_has_a_longest_state(ledger: Ledger) -> None:
    """Of one that is longer, the newest rounds are kept."""
    calls = tuple(KeptCall(f"call_{at}", "search", b"s" * 32) for at in range(2000))
    await ledger.write({lane(1): LaneState(tuple(KeptRound(at, 0.0, b"", calls) for at in range(60)))}, 0)
    kept = await rounds_of(ledger, lane(1), 1)
    assert 0 < len(kept) < 60
    assert kept[-1].position == 59


async def test_every_process_knows_when_a_lane_was_last_used(server: RedisServer) -> None:
    """Also one that has just begun, once the lane has gone from the server: a store that is shared has one memory."""
    one, other, fresh = (open_ledger(server.url, max_lanes=10, ttl_s=100, timeout_s=20, bus=Bus()) for _ in range(3))
    await one.write({lane(1): state(), lane(2): state()}, 1000)
    assert (await other.read(lane(1), 1001))[0].rounds == state().rounds
    with closing(Redis.from_url(server.url)) as client:
        lasting = [key for key in client.keys("*") if client.pttl(key) > 100_000]
        client.delete(lane_key(lane(1)), lane_key(lane(2)))  # its clock is its own: as if the time were up
    assert len(lasting) == 2
    for ledger, last_used in ((other, 1001), (fresh, 1000)):
        assert (await ledger.read(lane(1), 1150))[0] == LaneState(last_used=last_used)
        assert (await ledger.read(lane(3), 1150))[0] == LaneState()
    await one.write({lane(1): state(9)}, 1200)
    assert (await fresh.read(lane(1), 1201))[0].rounds == state(9).rounds
    for ledger in (one, other, fresh):
        assert isinstance(ledger, RedisLedger)
        await ledger.aclose()


async def test_a_forgotten_lane_says_when_it_was_last_used(ledger: Ledger, store: Forgetful | None) -> None:
    """Also after others have pushed it out, so that what its client still shows is not taken for new; a lane that
    nobody has written, and one that is used again, say nothing."""
    await ledger.write({lane(1): state(), lane(2): state()}, 0)
    if store is not None:  # its clock is its own: as if the time were up
        store.forget()
    assert (await ledger.read(lane(1), 101))[0] == LaneState(last_used=0)
    assert (await ledger.read(lane(12), 101))[0] == LaneState()
    await ledger.write({lane(number): state() for number in range(2, 14)}, 150)
    assert (await ledger.read(lane(1), 160))[0] == LaneState(last_used=0)
    await ledger.write({lane(1): state(9)}, 170)
    found, _ = await ledger.read(lane(1), 180)
    assert (found.rounds, found.last_used) == (state(9).rounds, None)


async def test_a_master_of_another_name(watched: Watched) -> None:
    """The Sentinels say that they do not know it, and so does callfuse."""
    with pytest.raises(OSError, match="knows no master of the name 'another'"):
        await probe(watched.url.replace(MASTER, "another"), 20)
    assert await probe(watched.url, 20) > 0
