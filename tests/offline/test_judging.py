"""A run is judged call by call as on the wire: by what came before, within its turn, with the ladder moving."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import Engine
from callfuse.model import PastCall, Result, Round, Timeline, ToolCall
from callfuse.offline.judging import Judged, judge_run
from callfuse.offline.runs import RecordedRun
from callfuse.policy.settings import MODES, LoopSettings, Rung
from tests.offline.recorded import needs_recorded_runs, recorded_runs
from tests.support.examples import more_examples

SETTINGS = LoopSettings()


def run_of(*turns: list[list[str]], success: bool | None = None) -> RecordedRun:
    """A run of turns, each a list of rounds, each a list of arguments; equal arguments get equal results."""
    listed = [
        [
            Round(tuple(PastCall(ToolCall(f"{at}{text}", "look", f'"{text}"'), Result(text)) for text in texts), at)
            for at, texts in enumerate(rounds)
        ]
        for rounds in turns
    ]
    return RecordedRun("r", "s", "m", success, listed)


def found(run: RecordedRun, settings: LoopSettings = SETTINGS) -> list[tuple[int, int, int, Rung | None]]:
    """Turn, round, count and rung of each finding."""
    return [
        (one.turn, one.round, one.finding.count, one.verdict.rung)
        for one in judge_run(run, settings)
        if one.finding is not None and one.verdict is not None
    ]


def test_every_call_comes_in_order() -> None:
    """Whether or not anything was found in it."""
    run = run_of([["a", "b"], ["c"]], [["a"]])
    listed = list(judge_run(run, SETTINGS))
    assert [one.call for one in listed] == list(run.calls())
    assert [(one.turn, one.round) for one in listed] == [(0, 0), (0, 0), (0, 1), (1, 0)]


def test_the_ladder_moves_as_on_the_wire() -> None:
    """The first finding is steered, the next blocked, as the recorded calls go on."""
    assert found(run_of([["a"]] * 4)) == [(0, 2, 3, Rung.STEER), (0, 3, 4, Rung.BLOCK)]
    assert found(run_of([["a"]] * 4), LoopSettings(mode=MODES["observe"])) == [
        (0, 2, 3, Rung.OBSERVE),
        (0, 3, 4, Rung.OBSERVE),
    ]


def test_tools_that_are_not_there() -> None:
    """Found as on the wire, whatever their arguments, where the record tells which tools there are."""
    run = run_of([["a"], ["b"], ["c"], ["d"]])
    assert found(run) == []
    assert found(replace(run, known=frozenset())) == [(0, 2, 3, Rung.STEER), (0, 3, 4, Rung.BLOCK)]
    assert found(replace(run, known=frozenset({"look"}))) == []


def test_tools_that_results_told_of() -> None:
    """Found where the record does not list the tools: with the third result, and in a pending call from then on."""
    rounds = [
        Round((PastCall(ToolCall(name, name, f"{at}"), Result(f"Unknown tool: {name}")),), at)
        for at, name in enumerate(["x", "y", "z", "y"])
    ]
    run = RecordedRun("r", "s", "m", None, [rounds])
    assert found(run) == [(0, 2, 3, Rung.WARN), (0, 3, 4, Rung.STEER)]
    assert found(replace(run, known=frozenset("xyz"))) == []


def test_a_user_message_starts_afresh() -> None:
    """Calls before it are no evidence."""
    assert found(run_of([["a"]] * 2, [["a"]] * 2)) == []
    assert found(run_of([["b"]], [["a"]] * 3))[0][:3] == (1, 2, 3)


def test_a_new_call_beside_it_frees_a_call() -> None:
    """A round that brings something new is progress."""
    assert found(run_of([["a"], ["a"], ["a", "b"]])) == []


def test_judging_twice_finds_the_same() -> None:
    """Places on the ladder do not stay from one walk to the next."""
    run = run_of([["a"]] * 5)
    assert found(run) == found(run)


def test_held_are_the_calls_that_could_loop() -> None:
    """Before its arguments are known, a call of the suspect tool is held, also where it turns out innocent."""
    listed = list(judge_run(run_of([["a"], ["a"], ["b"]]), SETTINGS))
    assert [(one.suspect, one.held) for one in listed] == [(False, False), (False, False), (True, True)]
    assert listed[-1].finding is None
    listed = list(judge_run(run_of([["a"], ["a"], ["b"]]), LoopSettings(mode=MODES["warn"])))
    assert (listed[-1].suspect, listed[-1].held) == (True, False)


def slowly(run: RecordedRun, settings: LoopSettings) -> list[tuple[int, int]]:
    """Where something is found when every round is judged against a copy of all that came before."""
    places = []
    for turn, rounds in enumerate(run.turns):
        for at, round_ in enumerate(rounds):
            found = Engine(Timeline(rounds[:at][::-1]), settings).judge_round([one.call for one in round_.calls])
            places += [(turn, at) for _ in found]
            after = Engine(Timeline(rounds[: at + 1][::-1]), settings)
            if round_.calls[-1].call not in [call for call, _ in found] and next(after.hindsights(), None):
                places.append((turn, at))
    return places


def places_of(calls: list[Judged]) -> list[tuple[int, int]]:
    """Where something was found."""
    return [(one.turn, one.round) for one in calls if one.finding is not None]


@more_examples(5)
@given(st.lists(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=2), max_size=14), max_size=3))
def test_nothing_is_missed_on_the_fast_path(turns: list[list[list[str]]]) -> None:
    """A round of which no call could be found to loop need not be judged."""
    run = run_of(*turns)
    assert places_of(list(judge_run(run, SETTINGS))) == slowly(run_of(*turns), SETTINGS)


@pytest.mark.slow
@pytest.mark.search
@needs_recorded_runs
def test_recorded_runs() -> None:
    """Of real runs every call is judged, in order, and the fast path misses nothing."""
    for runs in recorded_runs(300, step=12):
        for run in runs:
            calls = list(judge_run(run, SETTINGS))
            assert [one.call for one in calls] == list(run.calls())
            assert places_of(calls) == slowly(run, SETTINGS)
