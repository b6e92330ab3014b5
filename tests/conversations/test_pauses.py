"""Pauses between rounds: the longer one is, the less is found behind it, in every place that remembers rounds."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse import LoopDetector
from callfuse.conversations.ledger import TIMES_KEPT
from callfuse.conversations.memory import MemoryLedger
from callfuse.conversations.timeline import read_conversation
from callfuse.detect import Engine
from callfuse.inprocess import ToolCallTracker
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import Ids, by_number, request, without
from tests.detect.timelines import call, past
from tests.support.kept import lane

SETTINGS = LoopSettings.model_validate({"mode": "observe", "detectors": {"cycle": False}})
TTL = SETTINGS.ttl_seconds
PAUSES = [10.0, *(times * TTL for times in (0.9, 1.1, 3, 7, 9.9, 10.1, 12, 17, 100))]
"""Seconds, growing: within the time-out, within the memory of a lane, and beyond."""
PENDING = ("a", "b", "new")
ROUNDS = st.lists(st.sampled_from(["a=x", "a=x", "a=y", "b=x", "a=x b=x", "a=ex"]), min_size=2, max_size=9)


def by_ledger(rounds: Sequence[str], at: int, pause: float, *, ids: Ids = by_number) -> list[int]:
    """How severe a finding each pending call has: 0 none, 1 soft, 2 hard. The pause stands before round `at`."""
    return asyncio.run(_by_ledger(rounds, at, pause, ids))


async def _by_ledger(rounds: Sequence[str], at: int, pause: float, ids: Ids) -> list[int]:
    ledger = MemoryLedger(max_lanes=4, ttl_s=TIMES_KEPT * TTL)
    now = 0.0
    for number, words in enumerate(rounds):
        now += pause if number == at else 10
        await ledger.write({lane(2): (await ledger.read(lane(2), now))[0]}, now)  # others go on: old lanes are dropped
        state, _ = await ledger.read(lane(1), now)
        conversation = read_conversation(request("user: go", *rounds[:number], ids=ids), state, now, SETTINGS)
        before = sum(len(one.split()) for one in rounds[:number])
        made = [past(word, ids(before + place, word[0])) for place, word in enumerate(words.split())]
        for one in made:
            one.result = None  # nothing has come back yet
        await ledger.write({lane(1): conversation.evidence.after([made], [], now, max_rounds=128)}, now)
    now += pause if at == len(rounds) else 10
    state, _ = await ledger.read(lane(1), now)
    engine = Engine(read_conversation(request("user: go", *rounds, ids=ids), state, now, SETTINGS).timeline, SETTINGS)
    found = [engine.judge(call(name)) for name in PENDING]
    return [0 if one is None else 1 + one.hard for one in found]


def in_process(rounds: Sequence[str], at: int, pause: float) -> list[int]:
    """Whether each is found by a detector in the process of the agent."""
    return [_is_found(name, rounds, at, pause) for name in PENDING]


def _is_found(name: str, rounds: Sequence[str], at: int, pause: float) -> bool:
    now = 0.0
    detector = LoopDetector({"tool_call_loop": {"mode": "observe", "detectors": {"cycle": False}}}, clock=lambda: now)
    for number, words in enumerate(rounds):
        now += pause if number == at else 10
        made = [past(word) for word in words.split()]
        detector.check_round([one.call for one in made])
        for one in made:
            assert one.result is not None
            detector.record(one.result[0], one.call)
    now += pause if at == len(rounds) else 10
    return detector.check(call(name)) is not None


@pytest.mark.parametrize("judge", [by_ledger, in_process])
@given(rounds=ROUNDS, place=st.floats(0, 1))
@example(rounds=["a=x", "a=x"], place=1.0)
@example(rounds=["a=x"] * 6, place=0.5)
@example(rounds=["a=x", "a=x", "b=x", "a=x"], place=0.0)
@example(rounds=["a=x", "b=x", "a=y", "b=x"], place=0.0)
def test_a_longer_pause_finds_no_more(
    judge: Callable[[Sequence[str], int, float], list[int]], rounds: list[str], place: float
) -> None:
    """Wherever it stands, and for every pending call; beyond the memory, too.

    Without `cycle`: its first lap must begin with a new call, and behind a pause one from before it is new.
    """
    at = 1 + round(place * (len(rounds) - 1))
    found = [judge(rounds, at, pause) for pause in PAUSES]
    for shorter, longer in pairwise(found):
        assert all(one >= other for one, other in zip(shorter, longer, strict=True))


def test_an_hourly_poll_is_no_loop() -> None:
    """Though the ledger has forgotten its lane each time, and its client shows all rounds; whether there are ids or
    not."""
    for ids in (by_number, without):
        assert by_ledger(["a=x"] * 8, 8, 12 * TTL, ids=ids) == [0, 0, 0]
        assert by_ledger(["a=x"] * 8, 7, 12 * TTL, ids=ids) == [0, 0, 0]
        assert by_ledger(["a=x"] * 8, 6, 12 * TTL, ids=ids) == [1, 0, 0]


def test_a_conversation_that_is_new_here_counts_as_recent() -> None:
    """A guard that was restarted, or sees a conversation first in its middle, judges by the request."""

    async def first_seen() -> bool:
        ledger = MemoryLedger(max_lanes=4, ttl_s=TIMES_KEPT * TTL)
        await ledger.read(lane(2), 0)
        state, _ = await ledger.read(lane(1), 100 * TTL)
        conversation = read_conversation(request("user: go", *["a=x"] * 3), state, 100 * TTL, SETTINGS)
        return Engine(conversation.timeline, SETTINGS).judge(call("a")) is not None

    assert asyncio.run(first_seen())


@pytest.mark.parametrize(("pause", "blocked"), [(0.5, True), (3, True), (9, True), (11, False), (20, False)])
def test_a_block_in_process_is_forgotten_as_in_a_ledger(pause: float, blocked: bool) -> None:
    """After ten times the time-out."""
    now = 0.0
    tracker = ToolCallTracker({"tool_call_loop": {"mode": "block"}}, clock=lambda: now)
    assert [tracker.track_tool_call("search", {"q": 1})[0] for _ in range(3)] == [False, False, True]
    now += pause * TTL
    assert tracker.track_tool_call("search", {"q": 1})[0] is blocked
