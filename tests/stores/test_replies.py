"""A server, or what stands in its place, may reply with anything: that is a failure of the store, and no more."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState, Read, SessionState, StoreUnavailable
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.stores import open_ledger
from callfuse.stores.address import address_of
from callfuse.stores.redis import RedisLedger
from callfuse.stores.replies import (
    UnexpectedReplyError,
    moved_of,
    read_entries,
    read_number,
    read_scores,
    read_value,
    states_of,
    values_of,
)
from callfuse.stores.server import RedisServer
from callfuse.stores.stream import SharedStream
from tests.support.examples import more_examples
from tests.support.kept import TTL, lane, session, state

SIMPLE = st.none() | st.integers() | st.binary(max_size=9) | st.sampled_from([b"\n\n[", b"1", b"s\nab\n[7]", 0, 1])
REPLIES = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=4), max_leaves=9)
NAME = "session-1"

Used = Callable[[RedisLedger], Any]
USES: dict[str, Used] = {
    "read": lambda one: one.read(lane(1), 0),
    "write": lambda one: one.write({lane(1): state()}, 0),
    "write what was read": lambda one: one.write({lane(1): state()}, 0, Read(lane(1), LaneState(), SessionState())),
    "write_session": lambda one: one.write_session(session(1), TTL, 0),
    "change a session": lambda one: one.write_session(session(1), TTL, 0, SessionState()),
    "write_sessions": lambda one: one.write_sessions({session(1): TTL}, 0, {session(1): SessionState()}),
    "sessions": lambda one: one.sessions(0),
    "find_sessions": lambda one: one.find_sessions(NAME, 0),
    "shared_finding": lambda one: one.shared_finding("id"),
    "swap_feedback": lambda one: one.swap_feedback("id", "x"),
}


def answering(monkeypatch: pytest.MonkeyPatch, replies: list[Any]) -> None:
    """Every server replies with these in turn; the last one again and again."""
    left = [*replies]

    async def run(*_: object) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(RedisServer, "run", run)


OF_PEOPLE = ("write_sessions", "sessions", "find_sessions", "shared_finding")
"""What people ask for: they are told that the store does not answer."""


@more_examples(4)
@given(use=st.sampled_from([*USES]), replies=st.lists(REPLIES, min_size=1, max_size=4))
async def test_no_reply_is_an_error_of_the_exchange(use: str, replies: list[Any]) -> None:
    """Whatever comes, at any command: people are told that the store does not answer, exchanges go on from memory."""
    with pytest.MonkeyPatch.context() as patched:
        answering(patched, replies)
        one = open_ledger("redis://127.0.0.1:1", max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus())
        assert isinstance(one, RedisLedger)
        one.index_sessions()
        with suppress(*[StoreUnavailable] * (use in OF_PEOPLE)):
            await USES[use](one)
        await one.aclose()


@given(reply=REPLIES)
async def test_no_reply_is_an_error_of_the_feed(reply: Any) -> None:
    """It gets entries, or nothing."""
    with pytest.MonkeyPatch.context() as patched:
        answering(patched, [reply])
        address = address_of("redis://127.0.0.1:1")
        assert address is not None
        found = await SharedStream(address, timeout_s=1, bus=Bus()).exchange([b"x"], None, 9)
    assert found is None or all(isinstance(data, bytes) for _, data in found)


@pytest.mark.parametrize("reply", [7, [], b"text", [None], [None, None, [b""]], [None, None], [1, None, None]])
async def test_another_shape_counts_as_a_failure(monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    """The circuit opens, memory takes over, and it is counted."""
    counts = Counts()
    one = open_ledger("redis://127.0.0.1:1", max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus(counts))
    assert isinstance(one, RedisLedger)
    answering(monkeypatch, [7, reply])
    assert await one.write({lane(1): state(7)}, 0) is None
    found, kept = await one.read(lane(1), 0)
    assert (found.rounds[0].position, kept) == (7, SessionState())
    assert counts.of("store_errors", "read") == 1
    await one.read(lane(1), 0)
    assert counts.of("store_skipped", "read") == 1
    await one.aclose()


def test_what_scripts_reply_is_read() -> None:
    """Each in its own shape."""
    assert [values_of(2)([b"x", None]), moved_of(2)(1), moved_of(2)([None, b"y"])] == [[b"x", None], [], [None, b"y"]]
    assert [read_value(None), read_number(3), read_scores([b"a", b"1.5"])] == [None, 3, [(b"a", 1.5)]]
    assert states_of(2)([b"x", 9, None, -2]) == [(b"x", 9), (None, -2)]
    assert read_entries([[b"1-0", [b"e", b"x"]], [b"2-0", [b"odd"]], [b"3-0", None]]) == [
        ("1-0", b"x"),
        ("2-0", b""),
        ("3-0", b""),
    ]
    for read in (values_of(2), moved_of(0), read_number, read_scores, states_of(1), read_entries):
        with pytest.raises(UnexpectedReplyError):
            read([[[]]])
