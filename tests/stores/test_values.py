"""What is kept as bytes comes back as it was; anything else is unreadable, and nothing worse."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.ledger import (
    BlockMemory,
    CutOff,
    KeptCall,
    KeptRound,
    LaneState,
    SessionState,
    StormEntry,
    Told,
)
from callfuse.dialects.stateful import NO_DIFFERENCE, Continuation
from callfuse.model import Delivery
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.spent import Spent
from callfuse.policy.allowed import Allowance
from callfuse.policy.settings import MODES
from callfuse.policy.tiers import Overrides
from callfuse.stores.values import UnreadableError, decode_lane, decode_session, encode_lane, encode_session
from tests.support.examples import more_examples

texts = st.text(max_size=8) | st.text(st.characters(categories=["Cs", "Cc", "Lo"]), max_size=4)
digests = st.binary(max_size=33)
small = st.integers(-1, 300)
flags = st.booleans()
outcomes = st.builds(Outcome, digests, st.sampled_from(OutcomeKind), texts, flags, flags, digests, flags)
deliveries = st.sampled_from([Delivery.DELIVERED, Delivery.WITHHELD, Delivery.BLOCKED])
calls = st.builds(KeptCall, texts, texts, digests, st.none() | outcomes, delivery=deliveries, step=small)
times = st.none() | st.floats(0, 1e10)
rounds = st.builds(KeptRound, small, times, digests, st.lists(calls, max_size=3).map(tuple))
continuations = st.just(NO_DIFFERENCE) | st.builds(
    Continuation, st.dictionaries(texts, digests, max_size=2), texts, st.lists(digests, max_size=2).map(tuple)
)
counts = st.integers(0, 10**6)
digest_lists = st.lists(digests, max_size=3).map(tuple)
call_lists = st.lists(calls, max_size=3).map(tuple)
blocks = st.just(BlockMemory()) | st.builds(
    BlockMemory, counts, counts, call_lists, digest_lists, digest_lists, st.floats(0, 1e10), digests
)
told = st.builds(Told, texts, texts, digests, small, texts, counts, st.booleans())
states = st.builds(
    LaneState,
    st.lists(rounds, max_size=4).map(tuple),
    st.dictionaries(st.tuples(texts, digests, small), texts, max_size=3),
    small,
    continuation=continuations,
    session=st.from_regex(r"[A-Za-z0-9._:-]{0,20}", fullmatch=True),
    blocks=blocks,
    told=st.lists(told, max_size=3).map(tuple),
    storm=st.lists(st.builds(StormEntry, digests, st.floats(0, 1e10)), max_size=3).map(tuple),
    cut_off=st.lists(
        st.builds(
            CutOff, st.integers(0, 99), digests, st.floats(0, 1e10), texts, texts, digests, st.integers(0, 9), texts
        ),
        max_size=3,
    ).map(tuple),
    spent=st.just(Spent())
    | st.builds(Spent, st.floats(0, 1e10), counts, counts, counts, counts, flags, digests, st.floats(0, 1e11)),
)
settings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "max_repeats": st.sampled_from([0, 2, 7]),
        "ttl_seconds": st.floats(0.001, 1e9),
        "mode": st.sampled_from(sorted(MODES.values())),
    },
)
overrides = st.builds(Overrides, settings, st.dictionaries(texts, settings.filter(bool), max_size=2))
allowances = st.builds(Allowance, texts, digests, texts)
sessions = st.builds(
    SessionState,
    overrides,
    st.lists(digests, max_size=4).map(tuple),
    st.floats(0, 1e10),
    overrides,
    st.floats(0, 1e10),
    st.lists(allowances, max_size=3).map(tuple),
)


@more_examples(5)
@given(state=states)
def test_a_lane_comes_back(state: LaneState) -> None:
    """Rounds, calls, outcomes, notes, what the vendor remembers, whatever the texts hold."""
    assert decode_lane(encode_lane(state)) == state


@more_examples(5)
@given(state=sessions)
def test_a_session_comes_back(state: SessionState) -> None:
    """With values of the types that commands set."""
    found = decode_session(encode_session(state))
    assert found == state
    assert [type(value) for value in found.overrides.values.values()] == [
        type(state.overrides.values[key]) for key in found.overrides.values
    ]


@more_examples(5)
@given(state=states)
def test_a_lane_begins_with_its_session(state: LaneState) -> None:
    """That is where the script looks for it."""
    assert encode_lane(state).startswith(f"{state.session}\n".encode())


@more_examples(5)
@given(state=states, session=sessions)
def test_what_earlier_versions_wrote_is_read(state: LaneState, session: SessionState) -> None:
    """They knew neither what the model was told nor, before that, blocks and resets; all else is as it was. Nor what
    the host's code sets, and what a person lets pass."""
    session = SessionState(session.overrides, session.ran, session.reset)
    name, _, text = encode_lane(state).partition(b"\n")
    last = name + b"\n" + json.dumps([5, *json.loads(text)[1:7]]).encode()
    of_then = replace(state, told=(), storm=(), cut_off=(), spent=Spent())
    assert decode_lane(last) == of_then
    old = name + b"\n" + json.dumps([4, *json.loads(text)[1:6]]).encode()
    assert decode_lane(old) == replace(of_then, blocks=BlockMemory())
    assert decode_session(json.dumps([5, *json.loads(encode_session(session))[1:]]).encode()) == session
    older = json.dumps([4, *json.loads(encode_session(session))[1:4]]).encode()
    assert decode_session(older) == replace(session, reset=0.0)


STATE = LaneState((KeptRound(1, 0.5, b"t", (KeptCall("id", "f", b"s", Outcome(b"d", OutcomeKind.OK, "x")),)),))
RIGHT = json.loads(encode_lane(STATE).partition(b"\n")[2])


def doctored(at: int, value: Any) -> bytes:
    """A lane's value with another part."""
    return b"\n" + json.dumps([*RIGHT[:at], value, *RIGHT[at + 1 :]]).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"\xff\xfe",
        b"\n[",
        b"\nnull",
        b"\n{}",
        b"\n[1]",
        b"s\xff\n" + json.dumps(RIGHT).encode(),
        doctored(0, 0),
        doctored(0, 1),
        doctored(1, "many"),
        doctored(5, ["?"]),
        doctored(6, [[1, 0.5, 9, []]]),
        doctored(6, [[1, 0.5, -1, []]]),
        doctored(6, [[1, 0.5, 0, [["id", "", "f", "cw==", 8, 0, None]]]]),
        doctored(6, [[1, 0.5, 0, [["id", 7, "cw==", 0, 0, None]]]]),
        doctored(6, [[1, 0.5, 0, [["id", "", "f", "cw==", 0, 0, ["ZA==", "odd", "x", 0, ""]]]]]),
        doctored(8, [{}, ""]),
        doctored(6, [1, 1, [], [], ["?"], 0.5, ""]),
        doctored(6, [-1, 1, [], [], [], 0.5, ""]),
        doctored(7, [["id", "repeat", "?", 3, "", 0, False]]),
        doctored(7, [["id", "repeat", "cw==", 3, "", -1, False]]),
        b"\n" + json.dumps([*RIGHT, [0.5, 1, -1, 0, 0, False, ""]]).encode(),
        b"\n" + json.dumps([*RIGHT, [0.5, 1, 1, 0, 0, False, "?"]]).encode(),
    ],
)
def test_what_is_no_lane(value: bytes) -> None:
    """Nothing, something else, another version, a wrong shape."""
    assert decode_lane(b"\n" + json.dumps(RIGHT).encode()) == STATE
    with pytest.raises(UnreadableError):
        decode_lane(value)


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[1,{},{},[]]", b"[2,{}]", b'[2,{"mode":"odd"},{},[]]', b'[2,{"odd":1},{},[]]', b'[2,{},{},["?"]]'],
)
def test_what_is_no_session(value: bytes) -> None:
    """The same of sessions; a setting that there is not is no setting."""
    with pytest.raises(UnreadableError):
        decode_session(value)


@more_examples(5)
@given(value=st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: (
    st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3)), max_leaves=12,
).map(lambda one: b"\n" + json.dumps(one).encode()))  # fmt: skip
def test_no_bytes_do_worse(value: bytes) -> None:
    """Whatever stands there."""
    for read in (decode_lane, decode_session):
        try:
            read(value)
        except UnreadableError:
            continue
