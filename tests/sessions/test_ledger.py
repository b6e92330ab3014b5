"""The memory ledger: bounded in lanes and in time."""

import pytest

from callfuse.policy.tiers import Overrides
from callfuse.sessions.identity import Lane
from callfuse.sessions.ledger import KeptRound, LaneState, Ledger, MemoryLedger, SessionKey, SessionList, SessionState


def lane(number: int) -> Lane:
    """A lane of its own."""
    return Lane(b"credential", f"session-{number}", b"", "x-callfuse-session-id")


def state(position: int = 1) -> LaneState:
    """A state that can be told from others."""
    return LaneState([KeptRound(position, 0.0, b"", ())])


async def rounds_of(ledger: Ledger, lane: Lane, now: float) -> list[KeptRound]:
    """What is kept of a lane."""
    return (await ledger.read(lane, now))[0].rounds


async def test_what_was_written_is_read() -> None:
    """And a lane that nobody has written is empty."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write({lane(1): state(7)}, 0)
    assert (await rounds_of(ledger, lane(1), 1))[0].position == 7
    assert await rounds_of(ledger, lane(2), 1) == []
    assert await rounds_of(ledger, lane(1)._replace(credential=b"other"), 1) == []
    assert await rounds_of(ledger, lane(1)._replace(fingerprint=b"other"), 1) == []


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


async def test_a_state_that_nobody_wrote_is_nobodys() -> None:
    """What is read for an unknown lane is not shared."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    (await rounds_of(ledger, lane(1), 0)).append(state().rounds[0])
    assert await rounds_of(ledger, lane(1), 0) == []


def session(number: int) -> SessionKey:
    """A session of its own."""
    return b"credential", f"session-{number}"


async def set_by(ledger: Ledger, session: SessionKey, now: float) -> SessionState:
    """What a session has set, as an exchange of a lane without state reads it."""
    credential, name = session
    return (await ledger.read(Lane(credential, name, b"", "x-callfuse-session-id"), now))[1]


TTL = SessionState(Overrides({"ttl_seconds": 9.0}), (b"turn",))


async def test_what_a_session_has_set() -> None:
    """It is read under the session's own name and credential only."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write_session(session(1), TTL, 0)
    assert await set_by(ledger, session(1), 1) == TTL
    assert await set_by(ledger, session(2), 1) == SessionState()
    assert await set_by(ledger, (b"other", "session-1"), 1) == SessionState()


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


async def test_the_lane_knows_its_session() -> None:
    """By the id of an answer a chain goes on; what holds is what the session has set that began it."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write_session(session(1), TTL, 0)
    await ledger.write({lane(2): LaneState(session="session-1")}, 0)
    assert await ledger.read(lane(2), 1) == (LaneState(session="session-1"), TTL)
    assert (await ledger.read(lane(2)._replace(credential=b"other"), 1))[1] == SessionState()


async def test_lanes_are_written_together() -> None:
    """The place where an answer's id leads, and that of the request."""
    ledger = MemoryLedger(max_lanes=10, ttl_s=100)
    await ledger.write({lane(1): state(1), lane(2): state(2)}, 0)
    assert [(await rounds_of(ledger, lane(number), 1))[0].position for number in (1, 2)] == [1, 2]
