"""What only results show: the same error round after round of one tool, whatever the arguments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import notes_for
from callfuse.conversations.timeline import Conversation
from callfuse.dialects.base import Request
from callfuse.model import PastCall
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import Ids, by_name, by_number, messages, talk, without
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.examples import more_examples

HELLO = "user: Find it."
RESULTS = {
    "came back err": "Error: no such table: 'users_{at}'",
    "came back other": "Error: the disk is full",
    "came back limit": "Error: 429 Too Many Requests",
    "came back gone": "[Old tool result content cleared]",
}
"""What stands for a word in a result."""


def asked(*parts: str, ids: Ids = by_number) -> Request:
    """A request of these parts; a result `err` is an error that names another thing each time."""
    turns = messages(parts, ids)
    for at, turn in enumerate(turns):
        if turn["role"] == "tool":
            turn["content"] = RESULTS.get(turn["content"], turn["content"]).format(at=at)
    return read(OPENAI, json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode())


def settings(mode: str = "chance_then_block", **more: Any) -> LoopSettings:
    """Settings with this ladder."""
    return LoopSettings.model_validate({"mode": mode, **more})


def told(conversation: Conversation) -> dict[int, int]:
    """The places of rounds that are told of the same error, and the counts that they are told."""
    notes = [note for note in notes_for(conversation) if "fails with the same error" in note.text]
    return {note.position: int(note.text.split("round ")[1].split()[0]) for note in notes}


def fresh(*parts: str, mode: str = "chance_then_block", **more: Any) -> Conversation:
    """A conversation of which the ledger knows nothing."""
    return talk(asked(*parts), settings=settings(mode, **more))


def failing(times: int, tool: str = "a") -> list[str]:
    """Rounds of one tool, each with other arguments."""
    return [f"{tool}{at}=err" for at in range(times)]


def test_each_round_from_the_limit_on_is_told() -> None:
    """With its own count, in its own result."""
    assert told(fresh(HELLO, *failing(3))) == {}
    assert told(fresh(HELLO, *failing(6))) == {7: 4, 9: 5, 11: 6}


@pytest.mark.parametrize("mode", ["warn", "block", "chance_then_block", "graduated"])
def test_whatever_the_ladder(mode: str) -> None:
    """It warns at most, and at least."""
    assert told(fresh(HELLO, *failing(4), mode=mode)) == {7: 4}


def test_not_where_everything_is_only_observed() -> None:
    """For all tools, or for this one."""
    assert told(fresh(HELLO, *failing(4), mode="observe")) == {}
    assert told(fresh(HELLO, *failing(4), per_tool={"a": {"mode": "observe"}})) == {}
    assert told(fresh(HELLO, *failing(4), mode="observe", per_tool={"a": {"mode": "block"}})) == {7: 4}


def test_limits_of_its_own() -> None:
    """The detector may be off, or have another limit, for all tools or for one."""
    assert told(fresh(HELLO, *failing(9), detectors={"same_error": False, "failing_tool": False})) == {}
    assert told(fresh(HELLO, *failing(3), detectors={"same_error": {"rounds": 2}})) == {3: 2, 5: 3}
    assert told(fresh(HELLO, *failing(3), per_tool={"a": {"detectors": {"same_error": {"rounds": 3}}}})) == {5: 3}
    assert told(fresh(HELLO, *failing(4), per_tool={"a": {"enabled": False}})) == {}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([*failing(3), "a4=fine", "a5=err"], {}),
        ([*failing(3), "a4=other", "a5=err"], {9: 4}),
        (["a1=err a2=other", *failing(3)], {8: 4}),
        ([*failing(3), "b1=err", "a5=err"], {}),
        ([*failing(3), "user: Go on.", *failing(3)], {}),
        ([f"a{at}=limit" for at in range(6)], {}),
        ([*failing(2), "a3=gone", "a4=err"], {7: 4}),
        (["a1=gone", "a2=gone", "a3=gone", "a4=err"], {7: 4}),
        ([*failing(4), "a5=gone"], {7: 4}),
        ([*failing(3), "a4"], {}),
        (["a1=err a2=err", *failing(3)], {8: 4}),
        ([*failing(3), "a4=err a5=fine"], {}),
        ([*failing(3), "a4=err b1=err"], {}),
        ([*failing(3), "a4=err a5"], {7: 4}),
    ],
)
def test_what_is_the_same_error_again(parts: list[str], expected: dict[int, int]) -> None:
    """Every known result of every round, of one tool; what is not known is left out, causes outside do not count."""
    assert told(fresh(HELLO, *parts)) == expected


def test_it_stands_on_the_last_known_result_of_its_round() -> None:
    """Where there is one to hold it."""
    conversation = fresh(HELLO, *failing(3), "a4=err a5=err a6")
    body = json.loads(conversation.request.with_notes(notes_for(conversation)))
    results = [turn["content"] for turn in body["messages"] if turn["role"] == "tool"]
    assert [at for at, text in enumerate(results) if "[callfuse]" in text] == [4]


def test_one_warning_is_enough() -> None:
    """A call that was found looping when it came is not told of its error as well."""
    notes = notes_for(fresh(HELLO, *["a=err"] * 5, mode="warn"))
    assert sorted(note.position for note in notes) == [5, 7, 9]
    assert not any("same error" in note.text for note in notes)


def test_earlier_timelines_keep_theirs() -> None:
    """At their places, whatever came after."""
    before = told(fresh(HELLO, *failing(5)))
    for later in (["user: On."], ["user: On.", "b=fine"], ["user: On.", "b=fine", "b1=fine", "user: On."]):
        assert told(fresh(HELLO, *failing(5), *later)) == before
    assert told(fresh(HELLO, *failing(5), "user: On.", "b=fine", *failing(4))) == before | {20: 4}
    assert told(fresh(HELLO, *failing(5), "user: On.", "b=fine")) == before
    assert told(fresh(HELLO, *failing(5), "user: On.")) == before


words = st.sampled_from(["a{}=err", "a{}=err", "a{}=err", "a{}=fine", "b{}=err", "a{}=err a9=err", "user: On."])


@more_examples(5)
@given(st.lists(words, min_size=4, max_size=16), st.sampled_from([by_number, by_name, without]), st.data())
def test_the_ledger_changes_nothing(said: list[str], ids: Ids, data: st.DataObject) -> None:
    """A guard that has seen the conversation from the start, one that was restarted on the way, and one that knows
    nothing say the same of the same history; and what was said once is said ever after."""
    parts = [HELLO, *(part.format(at % 9) for at, part in enumerate(said))]
    restarts = data.draw(st.sets(st.integers(2, len(parts)), max_size=2))
    state = LaneState()
    before: dict[int, int] = {}
    for at in range(1, len(parts) + 1):
        state = LaneState() if at in restarts else state
        request = asked(*parts[:at], ids=ids)
        conversation = talk(request, state)
        now = told(conversation)
        assert now == told(talk(asked(*parts[:at], ids=ids)))
        assert now | before == now
        before = now
        if at < len(parts) and not parts[at].startswith("user:"):
            coming = next(one for one in asked(*parts[: at + 1], ids=ids).rounds() if one is not None).calls
            delivered = [PastCall(one.call) for one in coming]
            state = conversation.evidence.after([delivered], [], 1000.0 * at, max_rounds=128)


def test_a_history_that_was_cut_is_looked_at_anew() -> None:
    """Without the round that stood between, there are more of the same error in a row."""
    conversation = talk(asked(HELLO, *failing(3), "a3=fine", "a4=err", "a5=err", ids=without))
    assert told(conversation) == {}
    coming = next(iter(asked("a6", ids=without).rounds()))
    assert coming is not None
    state = conversation.evidence.after([coming.calls], [], 1.0, max_rounds=128)
    cut = asked(HELLO, *failing(3), "a4=err", "a5=err", "a6=err", ids=without)
    assert told(talk(cut, state)) == {7: 4, 9: 5, 11: 6}


def test_results_are_new_once() -> None:
    """The first request that brings them; not the same request again, once its answer was kept."""
    parts = [HELLO, *failing(4)]
    first = talk(asked(*parts))
    assert first.brings_results
    newest = first.timeline.newest
    assert newest is not None
    assert newest.calls[0].outcome is not None
    state = first.evidence.after([], [], 1.0, max_rounds=128)
    assert not talk(asked(*parts), state).brings_results
    assert talk(asked(*parts, "a5=err"), state).brings_results
