"""Two versions of callfuse share a store: the older one reads what it knows of newer values, and destroys none."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callfuse.asgi.changes import change_session
from callfuse.conversations.ledger import SessionState, StoreUnavailable
from callfuse.policy.tiers import Overrides
from callfuse.stores.keys import lane_key, last_use_key, session_key
from callfuse.stores.values import VERSION, encode_lane, encode_session, is_foreign, version_of
from tests.stores.test_down import Beside, beside
from tests.stores.test_failover import exchange, lane_of, positions
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state
from tests.support.redis import RedisServer

LANE = lane_of(1)


@pytest.fixture
async def one(server: RedisServer) -> AsyncIterator[Beside]:
    """A worker of this version."""
    async with beside(server.url) as found:
        yield found


def of_version(value: bytes, version: int, *more: Any, revision: str = "") -> bytes:
    """A value as another version has it: with its number, and more items."""
    name, own, text = value.split(b"\n", 2)
    return b"\n".join((name, revision.encode() or own, json.dumps([version, *json.loads(text)[1:], *more]).encode()))


def full_lane(position: int) -> bytes:
    """A lane with all items of this version."""
    name, revision, text = encode_lane(state(position)).split(b"\n", 2)
    return b"\n".join((name, revision, json.dumps([*json.loads(text)[:8], None, [], []]).encode()))


NEWER = {
    "more items": of_version(full_lane(7), VERSION + 1, {"new": 1}, revision="ab"),
    "other items": b"\nab\n[99,{}]",
    "no items": b"\nab\n[99]",
    "what claims to be of this version": b'\nab\n[%d,"odd"]' % VERSION,
}


@pytest.mark.parametrize("value", NEWER.values(), ids=NEWER)
async def test_a_lane_of_a_newer_version_is_left_alone(
    server: RedisServer, one: Beside, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What this version knows of it is read; what it brings itself stays in its memory, and counts there."""
    caplog.set_level(logging.INFO, "callfuse")
    server.ask("SET", lane_key(LANE), value)
    there = [7] if value is NEWER["more items"] else []
    for number in range(8, 11):
        await exchange(one.ledger, LANE, number)
        assert server.ask("GET", lane_key(LANE)) == value
    kept = await positions(one.ledger, LANE, 11)
    assert kept[-3:] == [8, 9, 10]
    assert kept[:-3] == []  # of another turn, which is over
    async with beside(server.url) as fresh:
        assert await positions(fresh.ledger, LANE, 11) == there
    assert one.counts.of("store_errors", "newer") > 1
    assert one.counts.of("store_errors") == one.counts.of("store_errors", "newer")
    lines = [record.getMessage() for record in caplog.records if "newer version" in record.getMessage()]
    assert len(lines) == 2, "once a worker"
    server.ask("DEL", lane_key(LANE), last_use_key(LANE))
    await exchange(one.ledger, LANE, 11)
    assert (await positions(one.ledger, LANE, 12))[-4:] == [8, 9, 10, 11], "and is written as soon as it may be"
    assert version_of(server.ask("GET", lane_key(LANE))) == VERSION


@pytest.mark.parametrize(
    "value",
    [
        of_version(encode_session(SessionState(reset=5.0)), VERSION + 1, revision="ab"),
        b'\nab\n[%d,{"a_setting_to_come":1},{},[],0.0]' % VERSION,
        b"\nab\n[99,[]]",
    ],
)
async def test_a_session_of_a_newer_version_is_left_alone(server: RedisServer, one: Beside, value: bytes) -> None:
    """A command that this worker runs holds in its memory; who asks for all processes is told that it cannot be."""
    key = session_key(session(1))
    server.ask("SET", key, value)
    found = await set_by(one.ledger, session(1), 0)
    for _ in range(2):
        await change_session(one.ledger, session(1), found, lambda _: SessionState(Overrides({"ttl_seconds": 9.0})), 0)
    await one.ledger.write({lane(1): state(3)}, 0)
    with pytest.raises(StoreUnavailable, match="newer version of callfuse"):
        await one.ledger.write_sessions({session(1): TTL}, 0, {session(1): SessionState()})
    assert server.ask("GET", key) == value
    assert (await rounds_of(one.ledger, lane(1), 1))[0].position == 3
    assert lane_key(lane(1)) in server.stored(), "its lanes are shared as ever"


async def test_values_of_older_versions_are_read_and_written_over(server: RedisServer, one: Beside) -> None:
    """Also one that names no version, which is nothing."""
    old = of_version(encode_lane(state(7)), VERSION - 1)
    server.ask("SET", lane_key(LANE), old)
    await exchange(one.ledger, LANE, 8)
    assert version_of(server.ask("GET", lane_key(LANE))) == VERSION
    server.ask("SET", lane_key(lane_of(2)), b"\n\n[]")
    await exchange(one.ledger, lane_of(2), 8)
    assert version_of(server.ask("GET", lane_key(lane_of(2)))) == VERSION
    assert one.told() == {"store_errors value": 1}


def test_whose_a_value_is() -> None:
    """By its version, where that stands; what cannot be read of this version is of a newer one."""
    own = encode_lane(state())
    assert not is_foreign(own, readable=True)
    assert is_foreign(own, readable=False)
    assert is_foreign(b"\n\n[99]", readable=True)
    for value in (None, b"", b"x", b"\n\n{}", b"\n\n[-1]", b"\n\n[6]", b"\n\n[" + b"9" * 5000, b"\n" * 5000):
        assert not is_foreign(value, readable=False)
