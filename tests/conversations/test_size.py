"""What is kept between requests is bounded in bytes: ids, names, texts, lanes and all lanes together."""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from callfuse.conversations.ledger import KeptRound, LaneState, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.conversations.notes import note_keys, notes_for
from callfuse.conversations.size import LONGEST_LANE, bounded_lane, size_of_lane
from callfuse.conversations.timeline import LONGEST_NOTE, LaneEvidence, keep_round
from callfuse.dialects.openai_responses import OpenAIResponses
from callfuse.model import PastCall, ToolCall
from callfuse.model.ids import LONGEST_ID, bounded_id
from callfuse.model.outcomes import outcome_of
from callfuse.policy.tiers import Overrides
from tests.conversations.talks import Lane, request, talk, words
from tests.support.kept import lane, rounds_of, session

HELLO = "user: Find it."
LONG = "x" * 1000


def long_id(number: int, _name: str) -> str:
    """An id of its own for each call, long and with the same beginning."""
    return f"{LONG}{number}"


def rounds(
    count: int, *, calls: int = 1, text: str = "came back", id_: str = "call_{}", start: int = 0
) -> list[KeptRound]:
    """Kept rounds with results."""
    return [
        keep_round(
            [
                PastCall(
                    ToolCall(id_.format(f"{at}_{n}"), "search", f'{{"a":{at},"b":{n}}}'),
                    outcome=outcome_of(f"{text} {at} {n}"),
                )
                for n in range(calls)
            ],
            2 * at,
            1.5 * at,
            bytes(16),
        )
        for at in range(start, start + count)
    ]


def deep_size(value: object, seen: set[int]) -> int:
    """The bytes of an object with all that it refers to, each object once."""
    if id(value) in seen or isinstance(value, type) or (value is None or isinstance(value, bool)):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(deep_size(one, seen) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return size + sum(deep_size(one, seen) for one in value)
    if is_dataclass(value):
        return size + sum(deep_size(getattr(value, one.name), seen) for one in fields(value))
    return size


def test_no_long_id_or_name_is_kept() -> None:
    """Of a call, and of the key of a note: a digest stands for it. Short ones are kept as they are."""
    call = ToolCall("i" * 10**6, "n" * 10**6, "{}", namespace="s" * 10**6)
    kept = keep_round([PastCall(call)], 0, None, b"").calls[0]
    ((id_, _, _), _) = note_keys(talk(request(HELLO)), [(call, "A note.")])[0]
    assert max(len(text) for text in (kept.id, kept.name, kept.namespace, id_)) <= LONGEST_ID
    assert keep_round([PastCall(ToolCall("call_1", "search", "{}"))], 0, None, b"").calls[0][:2] == ("call_1", "search")
    assert bounded_id("y" * LONGEST_ID) == "y" * LONGEST_ID
    assert bounded_id(LONG + "1") != bounded_id(LONG + "2")


@pytest.mark.parametrize("drop", [None, slice(1, 3)])
def test_rounds_with_long_ids_are_found_again(drop: slice | None) -> None:
    """As those with short ones, dropped by the client or not: a long id is as exact as a short one."""
    found = []
    for ids in (long_id, lambda number, _name: f"id{number}"):
        one = Lane(ids)
        for at in range(3):
            one.answer(HELLO, *["a=x"] * at, brings=["a"])
        found.append(words(one.look(HELLO, *["a=x"] * 3, drop=drop).timeline))
    assert found[0] == found[1] == ["a=x"] * 3


def test_results_of_a_chain_find_calls_with_long_ids() -> None:
    """There the vendor has the calls, and the request only their results."""
    id_ = long_id(1, "")
    call = PastCall(ToolCall(id_, "search", "{}"))
    result = {"type": "function_call_output", "call_id": id_, "output": "came back"}
    body = {"model": "m", "previous_response_id": "resp_1", "input": [result]}
    asked = OpenAIResponses().read_request(json.dumps(body).encode(), body, "/v1/responses")
    assert asked is not None
    found = talk(asked, LaneState((keep_round([call], 0, 1.0, b""),)))
    assert [(one.id, one.outcome is not None) for round_ in found.timeline for one in round_.calls] == [(id_, True)]


def test_a_note_on_a_call_with_a_long_id_comes_again() -> None:
    """Under its digest, on that call alone."""
    before = talk(request(HELLO, "a=x", ids=long_id))
    coming = next(round_ for round_ in request(HELLO, "a=x", "a=x", ids=long_id).rounds() if round_)
    keyed = note_keys(before, [(coming.calls[0].call, "A note.")])
    state = before.evidence.after([coming.calls], keyed, 1.0, max_rounds=128)
    after = talk(request(HELLO, "a=x", "a=x", ids=long_id), state)
    assert [(note.text, note.call.id) for note in notes_for(after)] == [("A note.", long_id(1, ""))]


def test_what_one_call_carries_is_bounded() -> None:
    """However many texts a client that sends no ids gets for equal calls, and however long one is."""
    evidence = LaneEvidence(LaneState(), (), 0, b"", is_new=False)
    key = ("", b"signature", 0)
    state = evidence.after([], [(key, f"Text {at}.") for at in range(5000)], 1.0, max_rounds=128)
    assert state.notes[key].startswith("Text 0.\n\nText 1.\n\n")
    assert len(state.notes[key]) <= LONGEST_NOTE
    assert len(evidence.after([], [(key, "x" * 10**6)], 1.0, max_rounds=128).notes[key]) <= LONGEST_NOTE


@pytest.mark.parametrize("calls", [1, 5, 100])
@pytest.mark.parametrize("text", ["ok", "came back " * 50, "\N{CAT FACE}" * 400])
def test_the_estimate_is_honest(calls: int, text: str) -> None:
    """Between half and twice what Python says that the objects take."""
    state = LaneState(
        tuple(rounds(30, calls=calls, text=text)),
        {(f"call_{at}", bytes([at]) * 32, 0): f"Note {at}. " + "x" * 100 for at in range(9)},
    )
    true = deep_size((lane(1), state), set())
    assert true / 2 < size_of_lane(lane(1), state) < 2 * true


def test_the_estimate_sees_every_part_that_grows() -> None:
    """Rounds, calls, outcomes, notes, items of a chain, and results that wait there."""
    empty = LaneState()
    known = empty.continuation
    call = ToolCall("", "n", "{}")
    parts: list[dict[str, Any]] = [
        {"rounds": tuple(rounds(1))},
        {"notes": {("id", b"", 0): "x" * 999}},
        {"continuation": replace(known, items={"id": b"x" * 999})},
        {"continuation": replace(known, unanswered=(b"x" * 999,))},
        {"blocks": replace(empty.blocks, calls=keep_round([PastCall(call)], 0, None, b"").calls)},
    ]
    for part in parts:
        assert size_of_lane(lane(1), replace(empty, **part)) > size_of_lane(lane(1), empty)


async def test_all_lanes_together_are_bounded_in_bytes() -> None:
    """The lane unused for longest goes first, whatever their number; each is counted."""
    dropped: list[str] = []
    one = size_of_lane(lane(1), LaneState(tuple(rounds(20))))
    ledger = MemoryLedger(max_lanes=1000, ttl_s=100, max_bytes=5 * one + one // 2, on_drop=dropped.append)
    for number in (*range(5), 0, *range(5, 10)):
        await ledger.write({lane(number): LaneState(tuple(rounds(20)))}, number)
        assert ledger.size <= 6 * one
    left = [number for number in range(10) if await rounds_of(ledger, lane(number), 10)]
    assert left == [5, 6, 7, 8, 9]
    assert dropped == ["max_ledger_bytes"] * 5
    await ledger.write({lane(9): LaneState()}, 10)
    sizes = [ledger.size]
    for number in range(5, 9):
        await ledger.write({lane(number): LaneState()}, 10)
        sizes.append(ledger.size)
    assert all(one > other for one, other in pairwise(sizes)), "what goes, or gets smaller, is given back"


async def test_what_sessions_set_is_bounded_in_bytes() -> None:
    """It does not stand in the way of lanes, nor lanes in its way."""
    dropped: list[str] = []
    ledger = MemoryLedger(max_lanes=10**6, ttl_s=100, max_bytes=400_000, on_drop=dropped.append)
    large = SessionState(Overrides({}, {f"tool{at}": {"max_repeats": 3} for at in range(100)}))
    await ledger.write({lane(1): LaneState(tuple(rounds(3)))}, 0)
    for number in range(20):
        await ledger.write_session(session(number), large, 0)
    assert ledger.size < 400_000
    assert await rounds_of(ledger, lane(1), 0)
    assert set(dropped) == {"max_ledger_bytes"}


async def test_a_lane_that_is_too_long_keeps_its_newest_rounds() -> None:
    """And is counted. The parallel calls of one round that are too many are not kept, while the session and the memory
    of blocks are."""
    dropped: list[str] = []
    ledger = MemoryLedger(max_lanes=9, ttl_s=100, on_drop=dropped.append)
    wide = rounds(1, calls=500)[0]
    many = tuple(replace(wide, position=at) for at in range(128))
    await ledger.write({lane(1): LaneState(many, session="s")}, 0)
    kept = await rounds_of(ledger, lane(1), 0)
    assert 0 < len(kept) < 128
    assert kept == many[-len(kept) :]
    assert dropped == ["lane"]
    known = replace(LaneState().continuation, items={"id": bytes(LONGEST_LANE)})
    assert bounded_lane(lane(1), LaneState(many, session="s", continuation=known))[0] == LaneState(session="s")
