"""Warnings and notes in results: a pure function of the conversation, each at its own place."""

import json
import re
from functools import partial
from typing import Any

import pytest

from callfuse.conversations.notes import note_keys, notes_for
from callfuse.conversations.timeline import Conversation
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import Lane, by_name, by_number, messages, request, talk
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.work import lines_run

HELLO = "user: Find it."
WARN = LoopSettings.model_validate({"mode": "warn"})
COUNT = re.compile(r"(?:call|round) (\d+)")


def counts(conversation: Conversation) -> dict[int, int]:
    """The places of the warned results (messages behind the call) and the counts that the warnings tell."""
    return {note.position: int(COUNT.findall(note.text)[0]) for note in notes_for(conversation)}


def fresh(*parts: str, settings: LoopSettings = WARN) -> Conversation:
    """A conversation of which the ledger knows nothing."""
    return talk(request(*parts), settings=settings)


def test_each_repeat_from_the_limit_on_is_told() -> None:
    """In its own result, with its own count."""
    assert counts(fresh(HELLO, "a=x", "a=x")) == {}
    assert counts(fresh(HELLO, *["a=x"] * 5)) == {5: 3, 7: 4, 9: 5}


def test_only_where_warnings_are_a_rung() -> None:
    """No other ladder writes into a request by itself."""
    for mode, found in (("block", {}), ("observe", {}), ("chance_then_block", {}), ("graduated", {5: 3})):
        settings = LoopSettings.model_validate({"mode": mode})
        assert counts(fresh(HELLO, *["a=x"] * 3, settings=settings)) == found


@pytest.mark.parametrize(
    ("ladder", "found"),
    [
        (["observe", "warn"], {7: 4, 9: 5}),
        (["observe", "observe", "warn", "block"], {9: 5}),
        (["warn", "observe"], {5: 3}),
        (["steer", "warn"], {5: 3, 7: 4, 9: 5}),
    ],
)
def test_a_rung_that_observes_writes_nothing(ladder: list[str], found: dict[int, int]) -> None:
    """Before a warning or after one; what the ladder would have withheld and came all the same is told."""
    settings = LoopSettings.model_validate({"mode": ladder})
    assert counts(fresh(HELLO, *["a=x"] * 5, settings=settings)) == found


def said(*parts: str, **more: Any) -> dict[int, str]:
    """The places of the warned results and the sentences on what was found."""
    settings = LoopSettings.model_validate({"mode": "warn", **more})
    notes = notes_for(fresh(HELLO, *parts, settings=settings))
    return {note.position: note.text.partition(" (limit")[0].removeprefix("[callfuse] This is ") for note in notes}


@pytest.mark.slow
def test_a_long_loop_costs_no_more_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the rounds that a streak is counted over, each warning costs the same, however long the history."""
    monkeypatch.setattr("callfuse.detect.streak.COUNTED", 20)
    monkeypatch.setattr("callfuse.conversations.notes.MAX_ROUNDS_BEFORE", 120)
    lengths = (150, 300)
    work = [lines_run(partial(notes_for, fresh(HELLO, *["a=x"] * rounds))) for rounds in lengths]
    assert work[1] < 2.6 * work[0]


@pytest.mark.slow
def test_a_loop_of_short_rounds_has_a_ceiling() -> None:
    """Each of 300 equal rounds looks at those before it, but no detector that nothing in the history concerns does."""
    rounds = 300
    work = lines_run(partial(notes_for, fresh(HELLO, *["a=x"] * rounds)))
    assert work < 16_000 * rounds


IN_A_ROW = "call {} of a in a row with the same arguments"


def test_a_warning_says_what_its_own_result_bears_out() -> None:
    """It stands behind a result that is known: where that is new, it does not say that nothing new came."""
    nothing_new = f"{IN_A_ROW}, and nothing new came of it"
    assert said("a=x", "a=x", "a=x") == {5: nothing_new.format(3)}
    assert said("a=x", "a=x", "a=y") == {5: IN_A_ROW.format(3)}
    assert said("a=x", "b=y", "a=x", "b=z") == {7: "lap 2 of one sequence of calls (a -> b)"}
    assert said("a=x", "b=y", "a=x", "b=y") == {
        7: "lap 2 of one sequence of calls (a -> b), each lap with the same results"
    }


def test_results_that_change_are_not_warned_of_again_and_again() -> None:
    """At the lowest limit, too: the second call, then the sixth whatever came back, each with its count."""
    changing = [f"a={letter}" for letter in "uvwxyz"]
    assert said(*changing, max_repeats=2) == {
        3: IN_A_ROW.format(2),
        11: f"{IN_A_ROW}, whatever came back".format(6),
    }


def test_earlier_timelines_keep_theirs() -> None:
    """At their places, whatever came after."""
    first = (HELLO, *["a=x"] * 4)
    before = counts(fresh(*first))
    after = counts(fresh(*first, "user: Now that.", *["b=y"] * 3))
    assert before == {5: 3, 7: 4}
    assert after == before | {14: 3}


def test_warnings_only_grow() -> None:
    """What a request said of a result, every later request says of it, so that cached prefixes hold."""
    parts = (HELLO, "a=x", "a=x", "a=x", "b=y", "a=x", "a=x", "a=x b=y", "user: On.", "a=x", "a=x", "a=x", "c=z")
    said: dict[int, int] = {}
    for at in range(1, len(parts) + 1):
        now = counts(fresh(*parts[:at]))
        assert now | said == now
        said = now
    assert said == {5: 3, 13: 3, 21: 3}


@pytest.mark.parametrize("pause", [1, 299, 301, 5000])
def test_the_ledger_does_not_change_a_warning(pause: float) -> None:
    """A restarted guard, one that knows the times, and the next timeline all say the same of the same history."""
    lane = Lane(settings=WARN)
    for at in range(4):
        lane.answer(HELLO, *["a=x"] * at, brings=["a"])
        lane.now += pause if at == 1 else 1
    said = (HELLO, *["a=x"] * 4)
    known = counts(lane.look(*said))
    assert known == counts(fresh(*said))
    later = counts(lane.look(*said, "user: Now that."))
    assert later == known


def test_a_withheld_round_does_not_change_a_warning() -> None:
    """Nobody can read it from the conversation."""
    lane = Lane(settings=WARN)
    lane.answer(HELLO, brings=["a"])
    lane.answer(HELLO, "a=x", brings=["!a", "a"])
    lane.answer(HELLO, "a=x", "a=x", brings=["a"])
    said = (HELLO, *["a=x"] * 3)
    assert counts(lane.look(*said)) == counts(fresh(*said)) == counts(lane.look(*said, "user: On."))


def test_rounds_that_the_client_has_dropped_get_none() -> None:
    """A text can only go where a result stands."""
    lane = Lane(settings=WARN)
    for at in range(5):
        lane.answer(HELLO, *["a=x"] * at, brings=["a"])
    conversation = lane.look(HELLO, *["a=x"] * 5, drop=slice(1, 9))
    asked = conversation.request
    for note in notes_for(conversation):
        assert note.position < asked.length
    assert json.loads(asked.with_notes(notes_for(conversation)))["messages"][1]["role"] == "assistant"


def noted(lane: Lane, *parts: str) -> list[str]:
    """The results of a request, as the model will read them."""
    conversation = lane.look(*parts)
    body = json.loads(conversation.request.with_notes(notes_for(conversation)))
    return [turn["content"] for turn in body["messages"] if turn["role"] == "tool"]


def with_note(lane: Lane, *parts: str, survivor: int, text: str = "[callfuse] Not run.") -> None:
    """Note a text on a call of the last round of these parts, as an exchange does."""
    newest = next(iter(lane.look(*parts).request.rounds()))
    assert newest is not None
    before = lane.look(*parts[:-1])
    keyed = note_keys(before, [(newest.calls[survivor].call, text)])
    lane.state = before.evidence.after([], keyed, lane.now, max_rounds=128)


def test_a_note_stays_with_its_call() -> None:
    """On every later request, with the same words."""
    lane = Lane(settings=WARN)
    with_note(lane, HELLO, "a=x", "b=y", survivor=0)
    for later in ((), ("c=z",), ("c=z", "user: On.", "c=z")):
        found = noted(lane, HELLO, "a=x", "b=y", *later)
        assert found[:2] == ["came back x", "came back y\n\n[callfuse] Not run."]
        assert not any("[callfuse]" in one for one in found[2:])


def test_a_note_is_known_by_occurrence() -> None:
    """Where ids repeat in each round, the same call before and after it gets none."""
    lane = Lane(by_name)
    parts = (HELLO, "b=y", "a=x", "b=y")
    with_note(lane, *parts, survivor=0)
    found = noted(lane, *parts, "c=z", "b=y")
    assert ["[callfuse]" in one for one in found] == [False, False, True, False, False]


def test_two_notes_on_one_call() -> None:
    """Both are told, in order."""
    lane = Lane(settings=WARN)
    with_note(lane, HELLO, "b=y", survivor=0, text="[callfuse] One.")
    with_note(lane, HELLO, "b=y", survivor=0, text="[callfuse] Two.")
    (found,) = noted(lane, HELLO, "b=y")
    assert found == "came back y\n\n[callfuse] One.\n\n[callfuse] Two."


@pytest.mark.parametrize("ids", [by_number, by_name])
def test_a_call_whose_result_is_missing_gets_none(ids: Any) -> None:
    """There is nowhere to put it, and the request stays as it is."""
    turns = messages([HELLO, "a=x", "a=x", "a"], ids)
    body = json.dumps({"model": "m", "messages": turns, "tools": [{}]}).encode()
    asked = read(OPENAI, body)
    assert asked.with_notes(notes_for(talk(asked, settings=WARN))) == body


def test_few_rounds_of_a_healthy_history_are_looked_at() -> None:
    """By default only a cap makes a warning, which takes a run of known calls: a long history costs by that. What acts
    on a screen may be warned of where other calls are acted on, so the fewest are four laps of a cycle."""
    assert LoopSettings().rounds_before_warning == 3
    assert LoopSettings.model_validate({"detectors": {"cycle": False}}).rounds_before_warning == 4
