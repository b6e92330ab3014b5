"""Evidence is read by a rule: what a client shows of its history, and when, does not matter while the ledger lives.

One conversation is told in several ways: whole in each request, cut, compacted at any place, or one round at a time.
The verdicts over each answer are the same.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import read_conversation
from callfuse.guard.judge import Judge
from callfuse.guard.record import past_round
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import Ids, Lane, by_number, messages, without, words
from tests.detect.timelines import past
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.examples import more_examples

HELLO = "user: Find it."
SETTINGS = LoopSettings.model_validate({"mode": "observe", "detectors": {"stagnation": 3}, "similarity_threshold": 0.8})

View = str
"""What a request shows of the rounds so far, in a word."""


def told(
    rounds: Sequence[str], views: Sequence[View], settings: LoopSettings = SETTINGS, *, ids: bool = True
) -> list[list[tuple[Any, ...]]]:
    """What is found in each answer of a conversation whose requests show their rounds as these views say."""
    state = LaneState()
    verdicts = []
    for at, word in enumerate(rounds):
        turns = shown(rounds[:at], views[at % len(views)], ids=ids)
        body = json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode()
        conversation = read_conversation(read(OPENAI, body), state, 10.0 * at, SETTINGS, named=True)
        judge = Judge(conversation.timeline, SETTINGS)
        calls = [past(one, f"id{at}.{n}" if ids else "").call for n, one in enumerate(word.split())]
        found = judge.verdicts(calls)
        late = judge.hindsight()
        verdicts.append(
            [(one.call.id, one.finding.kind, one.finding.count, one.finding.hard) for one in found]
            + ([("late", late.finding.kind, late.finding.count, late.finding.hard)] if late else [])
        )
        state = conversation.evidence.after([past_round(calls, found)], [], 10.0 * at + 5, max_rounds=128)
    return verdicts


def shown(rounds: Sequence[str], view: View, *, ids: bool = True) -> list[dict[str, Any]]:
    """The messages of a request that shows so much of its rounds, with or without the ids of calls."""
    turns = messages([HELLO, *rounds], ids=lambda number, name: "")
    number = 0
    for at, word in enumerate(rounds):  # ids of their own, the same in every view
        for n, _ in enumerate(word.split()):
            turn = [one for one in turns if one["role"] == "assistant"][at]
            turn["tool_calls"][n]["id"] = f"id{at}.{n}" if ids else ""
            number += 1
    by_round: list[list[dict[str, Any]]] = []
    for turn in turns[1:]:
        if turn["role"] == "assistant":
            by_round.append([turn])
            own = iter([call["id"] for call in turn["tool_calls"]])
        else:
            by_round[-1].append(turn | {"tool_call_id": next(own)})
    kept = {"whole": by_round, "cut": by_round[-2:], "newest": by_round[-1:], "cleared": by_round}[view.split(":")[0]]
    if view == "cleared":
        kept = [*([old[0], *({**one, "content": "[Old tool result content cleared]"} for one in old[1:])]
                  for old in kept[:-1]), *kept[-1:]]  # fmt: skip
    summary = [{"role": "user", "content": f"<system-reminder>{len(rounds)} rounds</system-reminder>"}]
    return [turns[0], *(summary if view.endswith(":summed") else []), *[turn for round_ in kept for turn in round_]]


WORDS = st.sampled_from(["a=x", "a=x", "a=x", "b=y", "a=z", "a1=x", "a=!e", "a2=!e", "a=x b=y", "c=w"])
VIEWS = ["whole", "cut", "newest", "cleared", "cut:summed", "newest:summed"]


@more_examples(5)
@given(
    start=st.lists(WORDS, max_size=3),
    lap=st.lists(WORDS, min_size=1, max_size=3),
    laps=st.integers(1, 6),
    views=st.lists(st.sampled_from(VIEWS), min_size=1, max_size=4),
)
@example(start=[], lap=["a=x"], laps=6, views=["newest"])
@example(start=[], lap=["a=x", "b=y"], laps=5, views=["whole", "newest:summed"])
def test_no_verdict_depends_on_what_is_shown(start: list[str], lap: list[str], laps: int, views: list[View]) -> None:
    """Whole, cut, with cleared results, behind a summary, one round at a time, or by turns: the same is found."""
    rounds = [*start, *lap * laps][:16]
    assert told(rounds, views) == told(rounds, ["whole"])


@pytest.mark.parametrize("view", VIEWS)
def test_counts_go_on(view: View) -> None:
    """Where a client has dropped its old rounds the count is that of the whole run."""
    counts = [found[0][2] for found in told(["a=x"] * 9, [view]) if found]
    assert counts == [3, 4, 5, 6, 7, 8, 9]


def test_ran_two_kept_one() -> None:
    """The third call is caught where the client shows only one of the two before."""
    assert [bool(found) for found in told(["a=x"] * 3, ["whole", "whole", "newest"])] == [False, False, True]


def test_an_outcome_that_was_read_stays() -> None:
    """A client that clears its old results later takes back no evidence, and adds none."""
    rounds = ["a=x", "a=y", "a=x", "a=y", "a=x"]
    assert told(rounds, ["cleared"]) == told(rounds, ["whole"])


@pytest.mark.parametrize("ids", [True, False])
def test_a_summary_in_place_of_the_user_s_words(ids: bool) -> None:
    """The newest round, known by its id or, without ids, as the last one of the session, stands behind another user
    message than it was made for: it goes on."""
    state = LaneState()
    for at in range(3):
        turns = shown(["a=x"] * at, "whole", ids=ids)
        state = after(turns, state, at, ids=ids)
    turns = shown(["a=x"] * 3, "newest", ids=ids)
    turns[0] = {"role": "user", "content": "In short: a was called, and nothing came of it."}
    found = Judge(conversation_of(turns, state, 40.0).timeline, LoopSettings()).verdicts([past("a").call])
    assert [one.finding.count for one in found] == [4]
    other = Judge(conversation_of(turns, state, 40.0, named=False).timeline, LoopSettings()).verdicts([past("a").call])
    assert bool(other) is ids


@pytest.mark.parametrize("view", ["newest", "cut"])
def test_a_client_without_ids_that_shows_its_newest_rounds(view: View) -> None:
    """Nothing tells its next request from a try of the one before; it is told after a few of them, and from then on the
    count is that of the whole run."""
    rounds = ["a=x"] * 12
    found = [one[0][2] if one else 0 for one in told(rounds, [view], ids=False)]
    assert found[6:] == [one[0][2] for one in told(rounds, ["whole"])[6:]]


@pytest.mark.parametrize("view", ["newest:summed", "cut:summed", "cleared"])
def test_a_history_that_is_compacted_once_without_ids(view: View) -> None:
    """Its rounds are known by what they call, and by their order."""
    rounds = ["a=x"] * 5
    assert (
        told(rounds, ["whole", "whole", "whole", view, "whole"], ids=False)[3] == told(rounds, ["whole"], ids=False)[3]
    )


def conversation_of(turns: list[dict[str, Any]], state: LaneState, now: float, *, named: bool = True) -> Any:
    """The conversation of a request with these messages."""
    body = json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode()
    return read_conversation(read(OPENAI, body), state, now, LoopSettings(), named=named)


def after(turns: list[dict[str, Any]], state: LaneState, at: int, *, ids: bool = True) -> LaneState:
    """The lane once the call `a` has been answered to these messages."""
    conversation = conversation_of(turns, state, 10.0 * at)
    kept: LaneState = conversation.evidence.after(
        [past_round([past("a", f"id{at}.0" if ids else "").call], [])], [], 10.0 * at + 5, max_rounds=128
    )
    return kept


@pytest.mark.parametrize("ids", [by_number, without])
def test_what_a_client_shows_later_in_place_of_a_result_does_not_count(ids: Ids) -> None:
    """The outcome is that of the time when the round was the newest, with ids and without."""
    lane = Lane(ids)
    lane.answer("user: go", brings=["a"])
    lane.answer("user: go", "a=x", brings=["a"])
    lane.answer("user: go", "a=short", "a=x", brings=["a"])
    assert words(lane.look("user: go", "a=short", "a=short", "a=x").timeline) == ["a=x", "a=x", "a=x"]


def test_a_call_without_an_id_that_ran_again_brings_its_new_result() -> None:
    """A client that goes back to an earlier place and runs the same call there shows it as the newest round."""
    lane = Lane(without)
    lane.answer("user: go", brings=["a"])
    lane.answer("user: go", "a=x", brings=["b"])
    lane.answer("user: go", "a=y", brings=["c"])
    assert words(lane.look("user: go", "a=short", "c=z").timeline) == ["a=y", "c=z"]
