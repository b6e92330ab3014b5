"""The memory ledger: bounded in lanes and in time. What it keeps as any other does: `tests/stores`."""

import pytest

from callfuse.conversations.ledger import LaneState, SessionList, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.model.spent import Spent
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state


async def test_the_one_unused_for_longest_goes_first() -> None:
    """Beyond `max_lanes`."""
    ledger = MemoryLedger(max_lanes=3, ttl_s=100)
    for number in (1, 2, 3, 1, 4):
        await ledger.write({lane(number): state()}, number)
    assert len(ledger) == 3
    assert [bool(await rounds_of(ledger, lane(number), 5)) for number in (1, 2, 3, 4)] == [True, False, True, True]


@pytest.mark.parametrize(("now", "known"), [(100, True), (101, False)])
async def test_lanes_out_of_time_are_forgotten(now: float, known: bool) -> None:
    """They are not read, and go when anything is written."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write({lane(1): state()}, 0)
    assert bool(await rounds_of(ledger, lane(1), now)) is known
    await ledger.write({lane(2): state()}, now)
    assert len(ledger) == 1 + known


async def test_what_a_session_has_set_lives_as_long_as_it_is_used() -> None:
    """Each exchange of the session reads it."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write_session(session(1), TTL, 0)
    assert await set_by(ledger, session(1), 90) == TTL
    assert await set_by(ledger, session(1), 180) == TTL
    assert await set_by(ledger, session(1), 281) == SessionState()


async def test_sessions_are_bounded() -> None:
    """The one unused for longest goes first, and so do those out of time."""
    ledger = MemoryLedger(max_lanes=2, ttl_s=100)
    for number in range(2):
        await ledger.write_session(session(number), TTL, number)
    await set_by(ledger, session(0), 2)
    await ledger.write_session(session(2), TTL, 3)
    assert [await set_by(ledger, session(number), 4) == TTL for number in range(3)] == [True, False, True]
    await ledger.write_session(session(3), TTL, 500)
    assert [await set_by(ledger, session(number), 500) == TTL for number in range(4)] == [False] * 3 + [True]


async def test_sessions_are_listed() -> None:
    """The last used one first; neither those out of time nor those that have set nothing. No look keeps one alive."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    assert isinstance(ledger, SessionList)
    assert await ledger.sessions(0) == []
    for number in range(3):
        await ledger.write_session(session(number), TTL, number)
    await ledger.write_session(session(3), SessionState(ran=(b"turn",)), 3)
    await set_by(ledger, session(0), 50)
    assert await ledger.sessions(50) == [(session(0), TTL, 50), (session(2), TTL, 2), (session(1), TTL, 1)]
    assert [kept.key for kept in await ledger.sessions(102)] == [session(0), session(2)]
    assert [kept.key for kept in await ledger.sessions(103)] == [session(0)]


async def test_what_was_spent_in_a_period_is_kept_to_its_end() -> None:
    """Whatever is forgotten meanwhile; lanes of many other clients do not push it out, and it has bounds of its own."""
    dropped: list[str] = []
    ledger = MemoryLedger(max_lanes=3, ttl_s=100, on_drop=dropped.append)
    own = [lane(at) for at in range(5)]
    await ledger.write({own[0]: LaneState(spent=Spent(0.0, tokens=5, until=1000.0))}, 0)
    for at in range(9):
        await ledger.write({lane(100 + at): LaneState(length=at)}, 10 + at)
    assert (await ledger.read(own[0], 900))[0].spent.tokens == 5
    assert (await ledger.read(own[0], 1001))[0].spent == Spent()
    dropped.clear()
    for one in own:
        await ledger.write({one: LaneState(spent=Spent(0.0, tokens=5, until=1000.0))}, 950)
    assert [(await ledger.read(one, 990))[0].spent.tokens for one in own] == [0, 0, 5, 5, 5]
    assert dropped == ["max_sessions"] * 2
    await ledger.write({own[4]: LaneState(spent=Spent(0.0, tokens=7))}, 960)
    assert (await ledger.read(own[4], 970))[0].spent.tokens == 7
    assert (await ledger.read(own[4], 1061))[0].spent == Spent()
