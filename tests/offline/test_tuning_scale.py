"""The scale: settings at a line act on exactly the runs whose score is beyond it, by the same judge that ships."""

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.model import Kind
from callfuse.offline.judging import judged
from callfuse.offline.reading import Reading
from callfuse.offline.run import Run
from callfuse.offline.tuning.scale import ALWAYS, TWICE, Scale, Score
from callfuse.policy.settings import LoopSettings
from tests.offline.tuning import run_of
from tests.support.examples import more_examples

pytestmark = pytest.mark.slow

TRAJECTORIES = Path(os.environ.get("CALLFUSE_TRAJECTORIES", "../shared/trajectories"))

BASES: dict[str, dict[str, Any]] = {
    "shipped": {},
    "some off": {"max_repeats": 0, "detectors": {"cycle": False, "same_error": False}},
    "changing off": {"max_repeats_changing": 0},
    "more on": {"similarity_threshold": 0.9, "detectors": {"stagnation": 3}, "max_calls": 9},
    "by tool": {"per_tool": {"a": {"max_repeats": 4}, "b": {"max_repeats": 0}, "wait": {"max_calls": 3}}},
    "no patience": {"window": 2, "poll_factor": 1, "state_changing": ["b"]},
}
SCALES = {name: Scale(LoopSettings.model_validate(base)) for name, base in BASES.items()}

words = st.builds(
    lambda tool, number, result: f"{tool}{number}{result}",
    st.sampled_from(["a", "a", "a", "b", "wait"]),
    st.sampled_from(["", "", "", "1", "2"]),
    st.sampled_from(["", "", "=x", "=y", "=!x"]),
)
rounds = st.lists(words, min_size=1, max_size=2).map(" ".join)
turns = st.lists(rounds, max_size=14) | st.builds(
    lambda loop, times, rest: loop * times + rest,
    st.lists(rounds, min_size=1, max_size=3),
    st.integers(1, 14),
    st.lists(rounds, max_size=3),
)
runs = st.lists(turns, min_size=1, max_size=2).map(lambda listed: run_of(*listed))
lines = st.builds(
    lambda points, weighted: Score(points, weighted if points in (0, TWICE) else 0),
    st.sampled_from([0, 0, TWICE, TWICE]) | st.integers(0, 60),
    st.integers(1, 60),
)


def first_found(run: Run, settings: LoopSettings, *, warned: bool) -> int | None:
    """How many calls were made before the round in which something is found first."""
    calls = list(judged(run, settings))
    for one in calls:
        if one.finding is not None and (warned or one.finding.kind is not Kind.SAME_ERROR):
            return next(at for at, other in enumerate(calls) if (other.turn, other.round) == (one.turn, one.round))
    return None


def first_beyond(scale: Scale, run: Run, line: Score, *, warned: bool) -> int | None:
    """The same by the scores."""
    return next((step.calls for step in scale.steps(run, warned=warned) if step.score > line), None)


@pytest.mark.parametrize("name", BASES)
@more_examples(5)
@given(run=runs, line=lines, warned=st.booleans())
@example(run=run_of(["a"] * 2 + ["b"] * 12), line=Score(TWICE, 1), warned=True)
@example(run=run_of(["wait=x"] * 24), line=Score(11), warned=True)
@example(run=run_of(["a=!x", "a1=!x", "a2=!x", "a=!x", "a1=!x"]), line=Score(14), warned=True)
def test_settings_act_where_the_score_is_beyond_the_line(name: str, run: Run, line: Score, *, warned: bool) -> None:
    """At every line, on the same run and from the same call on."""
    scale = SCALES[name]
    assert first_beyond(scale, run, line, warned=warned) == first_found(run, scale.settings(line), warned=warned)


@pytest.mark.skipif(not TRAJECTORIES.is_dir(), reason=f"no recorded runs in {TRAJECTORIES} (CALLFUSE_TRAJECTORIES)")
def test_recorded_runs() -> None:
    """The same holds for real runs, at lines through some of them."""
    scale = SCALES["shipped"]
    for name in sorted(TRAJECTORIES.glob("*.jsonl.xz")):
        listed = [run for run in islice(Reading([str(name)]), 40) if isinstance(run, Run) and any(run.calls())]
        tops = sorted(scale.steps(run, warned=True)[-1].score for run in listed)
        for line in tops[:: max(1, len(tops) // 3)]:
            settings = scale.settings(line)
            for run in listed:
                found = first_found(run, settings, warned=True)
                assert first_beyond(scale, run, line, warned=True) == found


@more_examples(5)
@given(run=runs)
def test_scores_go_up(run: Run) -> None:
    """Each higher than the one before, from the first call on; a run without calls has none."""
    steps = SCALES["shipped"].steps(run, warned=True)
    assert [step.score for step in steps] == sorted({step.score for step in steps})
    assert [step.calls for step in steps] == sorted({step.calls for step in steps})
    assert bool(steps) == any(True for _ in run.calls())
    assert not steps or steps[0].calls == 0


@pytest.mark.parametrize(
    ("texts", "score"),
    [
        (["a", "b"], (0, 2)),
        (["a=x", "b=x", "c"], (0, 12)),
        (["b", "a", "a"], (TWICE, 3)),
        (["a"] * 3, (12, 0)),
        (["a=x", "a=y", "a=x", "a=y", "a=z", "a=y"], (12, 0)),
        (["a", "b", "c", "a", "c", "b", "a"], (12, 0)),
        (["a", "b"] * 2, (12, 0)),
        (["a=!x", "a1=!x", "a2=!x", "a3=!x"], (12, 0)),
        (["a"] * 20, (80, 0)),
        (["wait=pending"] * 15, (12, 0)),
    ],
)
def test_known_scores(texts: list[str], score: tuple[int, int]) -> None:
    """What callfuse ships as soft limits is worth 12 points of every kind."""
    assert SCALES["shipped"].steps(run_of(texts), warned=True)[-1].score == score


def test_what_ships_is_on_the_scale() -> None:
    """At 11 points; unknown tools are left out, and nothing else is touched."""
    base = LoopSettings.model_validate({"window": 5, "max_weighted_calls": 3, "no_repeats_after": 4, "enabled": False})
    at = Scale(base).settings(Score(11))
    assert at == LoopSettings.model_validate({"window": 5, "detectors": {"unknown_tool": False}})


def test_late_is_the_next_line() -> None:
    """`no_repeats_after` divides the runs between two lines: it does in the end what the lower one does."""
    scale = SCALES["shipped"]
    assert scale.settings(Score(TWICE, 5)).late == scale.settings(Score(TWICE - 1))


def test_settings_that_always_act() -> None:
    """What the scale does not move acts at every line."""
    run = run_of(["a", "b", "c"])
    steps = Scale(LoopSettings(max_calls=2)).steps(run, warned=False)
    assert steps[-1] == (ALWAYS, 2)


def test_arguments_that_do_not_matter() -> None:
    """Calls that differ in nothing else are the same."""
    base = LoopSettings.model_validate({"per_tool": {"a": {"ignore": ["n"]}}})
    assert Scale(base).steps(run_of(["a1=x", "a2=x", "a3=x"]), warned=True)[-1].score == (12, 0)
