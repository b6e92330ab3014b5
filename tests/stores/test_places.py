"""Where keys are, as nodes and Sentinels tell it; whatever else they say is no answer, and nothing worse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from callfuse.stores.connection import probe_key
from callfuse.stores.places import SLOTS, Elsewhere, MasterMap, SlotMap, elsewhere, slot_of
from callfuse.stores.replies import UnexpectedReplyError
from tests.support.examples import more_examples

HALVES = [[0, 8191, [b"a", 7000, b"id"], [b"replica", 7002]], [8192, SLOTS - 1, [b"", 7001, b"id"]]]
KEYS = ("callfuse:{tag}:x", "callfuse:changed", "{}x", "{a", "a}{b}c", "x" * 99)


@more_examples(5)
@given(key=st.text(max_size=20) | st.sampled_from(KEYS))
def test_slots_are_those_of_the_server(key: str) -> None:
    """As redis-py computes them; a probe writes into the same one."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    assert slot_of(key) == key_slot(key.encode())


@pytest.mark.parametrize("key", ["callfuse:{tag}:x", "callfuse:changed", "callfuse:name:12"])
def test_a_probe_is_in_the_slot_of_its_key(key: str) -> None:
    """So that it tries the node that has failed."""
    assert slot_of(probe_key(key)) == slot_of(key)


def test_who_has_which_key() -> None:
    """One that does not know its own host is where it was asked; a slot that moves has another node from then on."""
    slots = SlotMap(["seed:1"])
    assert (slots.owner("callfuse:changed"), slots.to_ask) == ("", ["seed:1"])
    slots.learn(HALVES, "10.0.0.9:7001")
    assert slots.nodes == ["a:7000", "10.0.0.9:7001"]
    assert slots.to_ask == ["a:7000", "10.0.0.9:7001", "seed:1"]
    for key in KEYS:
        assert slots.owner(key) == ("a:7000" if slot_of(key) < SLOTS // 2 else "10.0.0.9:7001")
    slots.move(slot_of(KEYS[0]), "b:9")
    assert slots.owner(KEYS[0]) == "b:9"


def test_part_of_the_slots() -> None:
    """Keys of the others are nobody's, also where a node has no name."""
    slots = SlotMap([])
    slots.learn([[0, 9, [b"?", 7000]], [10, 20, [b"a", 7000]]], "x:1")
    assert slots.nodes == ["a:7000"]
    assert [slots._owners[at] for at in (0, 10, 21)] == ["", "a:7000", ""]


REPLIES = st.recursive(
    st.none() | st.integers(-2, SLOTS + 1) | st.binary(max_size=3), lambda inner: st.lists(inner, max_size=4)
)


@more_examples(5)
@given(reply=REPLIES | st.lists(st.tuples(st.integers(-2, SLOTS + 1), st.integers(-2, SLOTS + 1), REPLIES).map(list)))
def test_no_reply_does_worse(reply: object) -> None:
    """It is refused, and what was known stays."""
    slots, master = SlotMap([]), MasterMap(["s:1"], "m")
    slots.learn(HALVES, "x:1")
    for one in (slots, master):
        known = one.owner("{}x")
        try:
            one.learn(reply, "x:1")
        except UnexpectedReplyError:
            assert one.owner("{}x") == known


def test_the_master() -> None:
    """As a Sentinel has it; it is asked for again when it has failed."""
    master = MasterMap(["s:1", "t:1"], "m")
    assert (master.owner("key"), master.nodes, master.to_ask) == ("", [], ["s:1", "t:1"])
    master.learn([b"a", b"7000"], "s:1")
    assert (master.owner("key"), master.nodes) == ("a:7000", ["a:7000"])
    with pytest.raises(UnexpectedReplyError, match="the Sentinel s:1 knows no master of the name 'm'"):
        master.learn(None, "s:1")
    assert (master.forget(), master.owner("key")) == ("a:7000", "")


@pytest.mark.parametrize(
    ("error", "there"),
    [
        (MovedError("3999 b:7001"), Elsewhere("MOVED", 3999, "b:7001")),
        (ResponseError("MOVED 3999 :7001"), Elsewhere("MOVED", 3999, "a:7001")),
        (AskError("3999 ::1:7001"), Elsewhere("ASK", 3999, "::1:7001")),
        (ResponseError("ASK 3999 b:7001"), Elsewhere("ASK", 3999, "b:7001")),
        (TryAgainError("Multiple keys request"), Elsewhere("TRYAGAIN")),
        (ResponseError("TRYAGAIN Multiple keys request"), Elsewhere("TRYAGAIN")),
        (ResponseError("MOVED 99999 b:7001"), None),
        (ResponseError("MOVED"), None),
        (ResponseError("ERR no"), None),
        (ConnectionError("MOVED"), None),
    ],
)
def test_where_a_node_sends_a_client(error: Exception, there: Elsewhere | None) -> None:
    """By the class of the error, or by its text, as releases of redis-py have it."""
    assert elsewhere(error, "a:7000") == there
