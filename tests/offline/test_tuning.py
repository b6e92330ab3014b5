"""Settings at a line act on exactly the runs whose score is beyond it; what they promise, their file and the report."""

from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from callfuse.config import load_config
from callfuse.offline.judging import judge_run
from callfuse.offline.report_text import report_tuning
from callfuse.offline.runs import RecordedRun
from callfuse.offline.tuning import (
    ALWAYS,
    TWICE,
    UNBOUNDED,
    CannotTuneError,
    Scale,
    Score,
    Source,
    Tuned,
    Tuning,
    may_withhold,
    tune,
)
from callfuse.policy.settings import LoopSettings
from tests.offline.recorded import needs_recorded_runs, recorded_runs
from tests.offline.tuning import run_of
from tests.support.examples import more_examples

pytestmark = pytest.mark.slow

BASES: dict[str, dict[str, Any]] = {
    "shipped": {},
    "some off": {"max_repeats": 0, "detectors": {"cycle": False, "same_error": False}},
    "changing off": {"max_repeats_changing": 0},
    "more on": {"similarity_threshold": 0.9, "detectors": {"stagnation": 3}, "max_calls": 9},
    "by tool": {"per_tool": {"a": {"max_repeats": 4}, "b": {"max_repeats": 0}, "wait": {"max_calls": 3}}},
    "caps lifted": {"mode": "unattended"},
    "caps set": {"detectors": {"repeat": {"most": "warn"}, "no_news": {"most": "warn", "most_hard": "block"}}},
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


def first_found(run: RecordedRun, settings: LoopSettings, *, warned: bool) -> int | None:
    """How many calls were made before the round in which something is found first."""
    calls = list(judge_run(run, settings))
    for one in calls:
        if one.finding is None:
            continue
        may_act = one.verdict is not None and one.verdict.step != 0  # else its results have shown it
        if warned or (may_act and may_withhold(one.finding, one.call.call, settings)):
            return next(at for at, other in enumerate(calls) if (other.turn, other.round) == (one.turn, one.round))
    return None


def first_beyond(scale: Scale, run: RecordedRun, line: Score, *, warned: bool) -> int | None:
    """The same by the scores."""
    return next((step.calls for step in scale.steps(run, warned=warned) if step.score > line), None)


@pytest.mark.parametrize("name", BASES)
@more_examples(3)
@given(run=runs, line=lines, warned=st.booleans())
@example(run=run_of(["a"] * 2 + ["b"] * 12), line=Score(TWICE, 1), warned=True)
@example(run=run_of(["wait=x"] * 24), line=Score(11), warned=True)
@example(run=run_of(["a=!x", "a1=!x", "a2=!x", "a=!x", "a1=!x"]), line=Score(14), warned=True)
@example(run=run_of(["a", "wait"] * 12), line=Score(TWICE, 48), warned=False)
@example(run=run_of([f"a={at}" for at in "abcdefghijkl"]), line=Score(11), warned=False)
def test_settings_act_where_the_score_is_beyond_the_line(
    name: str, run: RecordedRun, line: Score, *, warned: bool
) -> None:
    """At every line, on the same run and from the same call on."""
    scale = SCALES[name]
    assert first_beyond(scale, run, line, warned=warned) == first_found(run, scale.settings(line), warned=warned)


@pytest.mark.search
@needs_recorded_runs
def test_recorded_runs() -> None:
    """The same holds for real runs, at lines through some of them."""
    scale = SCALES["shipped"]
    for runs in recorded_runs(40, step=16):
        listed = [run for run in runs if any(run.calls())]
        tops = sorted(scale.steps(run, warned=True)[-1].score for run in listed)
        for line in tops[:: max(1, len(tops) // 3)]:
            settings = scale.settings(line)
            for run in listed:
                found = first_found(run, settings, warned=True)
                assert first_beyond(scale, run, line, warned=True) == found


@more_examples(5)
@given(run=runs)
def test_scores_go_up(run: RecordedRun) -> None:
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
    """At 11 points; what runs do not record is left out, and nothing else is touched."""
    base = LoopSettings.model_validate({"window": 5, "max_weighted_calls": 3, "no_repeats_after": 4, "enabled": False})
    at = Scale(base).settings(Score(11))
    unrecorded = dict.fromkeys(("unknown_tool", "retry_storm", "spawn_storm", "compaction_storm"), False)
    assert at == LoopSettings.model_validate({"window": 5, "detectors": unrecorded})


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


FIVE = Fraction("0.05")


def steady(calls: int, *, success: bool = True) -> RecordedRun:
    """A run in which every call brings something new."""
    return run_of([f"a{at}" for at in range(calls)], success=success)


GOOD = [steady(calls) for calls in range(1, 39)]
LOOPS = [run_of(["a", "b", *["c"] * 9], success=False)] * 3


def source_of(*runs: RecordedRun, base: LoopSettings | None = None) -> tuple[Source, Tuning]:
    """The source of these runs."""
    tuning = Tuning(base or LoopSettings())
    for run in runs:
        tuning.take(run)
    return tuning.sources["lab"], tuning


def tuned_by(*runs: RecordedRun, alpha: Fraction = FIVE, **base: Any) -> Tuned:
    """The source of these runs with its line."""
    source, tuning = source_of(*runs, base=LoopSettings.model_validate(base))
    return tune("lab", source, tuning.scale, alpha)


def said(*runs: RecordedRun, alpha: Fraction = FIVE) -> str:
    """The report on one source."""
    source, tuning = source_of(*runs)
    console = Console(width=400, file=None)
    with console.capture() as capture:
        try:
            result: Tuned | CannotTuneError = tune("lab", source, tuning.scale, alpha)
        except CannotTuneError as error:
            result = error
        for part in report_tuning([("lab", source, result)]):
            console.print(part)
    return capture.get()


@pytest.mark.parametrize("runs", [38, 39, 40, 100])
def test_no_more_good_runs_are_acted_on_than_promised(runs: int) -> None:
    """Of those that set the line floor((n + 1) alpha) - 1 are beyond it: one less, for the new one to come."""
    good = [steady(calls) for calls in range(1, runs + 1)]
    found = tuned_by(*good)
    acted = sum(any(one.finding for one in judge_run(run, found.settings)) for run in good)
    assert acted == (runs + 1) // 20 - 1
    assert found.settings.max_weighted_calls == runs - acted
    assert (
        f"At most 5% of new successful runs of the same kind are acted on ({acted + 1} of {runs + 1})" in found.promise
    )


def test_detectors_come_before_length() -> None:
    """Good runs that repeat nothing leave all of the share to the number of calls, and limits as low as they go."""
    settings = tuned_by(*GOOD).settings
    assert (settings.max_repeats, settings.detectors.no_news, settings.detectors.cycle) == (2, 2, 2)


def test_good_runs_that_repeat_raise_the_limits() -> None:
    """Where more of them repeat than may be acted on, the limits let that pass, and length does not matter."""
    lengths = count(1)
    often = [run_of([*["a"] * 5, *[f"b{at}" for at in range(next(lengths))]]) for _ in range(10)]
    settings = tuned_by(*GOOD[:28], *often).settings
    assert (settings.max_repeats, settings.max_weighted_calls, settings.no_repeats_after) == (6, 0, 0)
    assert not any(one.finding for run in often for one in judge_run(run, settings))


def test_runs_with_one_repeat_are_told_apart_by_length() -> None:
    """A call that comes twice is let through up to where one comes in good runs."""
    pairs = [run_of([*[f"b{at}" for at in range(before)], "a", "a"]) for before in range(10)]
    settings = tuned_by(*GOOD[:28], *pairs).settings
    assert (settings.max_repeats, settings.no_repeats_after, settings.max_weighted_calls) == (3, 11, 0)


@pytest.mark.parametrize(
    "base",
    [
        {},
        {"mode": ["warn", "block"], "window": 7, "per_tool": {"wait_*": {"poller": True, "max_calls": 50}}},
        {"max_repeats": 0, "detectors": {"cycle": False, "stagnation": 90}, "similarity_threshold": 1.0},
        {"error_messages": {"block": "stop:\n  {finding}"}, "pollers": ["é*"], "enabled": False},
    ],
)
def test_the_file_is_the_settings(base: dict[str, Any], tmp_path: Path) -> None:
    """What was written is what is loaded, whatever ships later: every limit of the scale stands in the file."""
    found = tuned_by(*GOOD, **base)
    file = tmp_path / "callfuse.yaml"
    file.write_text(found.as_yaml(), encoding="utf-8")
    loaded = load_config(file, env={}).tool_call_loop
    assert loaded == found.settings
    assert loaded.enabled
    assert f"# {found.promise}\n" in found.as_yaml()
    for key in (
        "no_news: 2",
        "same_error: 4",
        "unknown_tool: false",
        "max_repeats_changing: 6",
        "max_weighted_calls: 38",
    ):
        assert key in found.as_yaml()


def test_a_name_stays_in_its_comment(tmp_path: Path) -> None:
    """No source can write settings."""
    source, tuning = source_of(*GOOD)
    file = tmp_path / "callfuse.yaml"
    file.write_text(tune("x\ntool_call_loop: {enabled: false}", source, tuning.scale, FIVE).as_yaml())
    assert load_config(file, env={}).tool_call_loop.enabled


HALVES = "half to set a line, half to test it and compare it with a limit on the number of calls"


@pytest.mark.parametrize(
    ("runs", "alpha", "why"),
    [
        ([run_of(["a"], success=None)], FIVE, "no run says whether it succeeded"),
        (LOOPS, FIVE, f"38 successful runs are needed for 5%: {HALVES}; there are 0"),
        (GOOD[:37], FIVE, f"38 successful runs are needed for 5%: {HALVES}; there are 37"),
        (GOOD, Fraction("0.025"), f"78 successful runs are needed for 2.5%: {HALVES}; there are 38"),
    ],
)
def test_too_few(runs: list[RecordedRun], alpha: Fraction, why: str) -> None:
    """It says how many there must be."""
    with pytest.raises(CannotTuneError) as caught:
        tuned_by(*runs, alpha=alpha)
    assert str(caught.value) == why


def test_settings_that_act_whatever_the_limits() -> None:
    """No limit of the scale can make up for one that stays."""
    with pytest.raises(
        CannotTuneError, match=r"36 of 38 successful runs are acted on whatever the limits, .*max_calls"
    ):
        tuned_by(*GOOD, max_calls=2)


def test_length_is_recommended_where_it_saves_more(tmp_path: Path) -> None:
    """Its settings are those that are written; they act on a run beyond `max_calls`, and on no other."""
    repeating = [run_of(*[["a=x"] * 12], success=True) for _ in range(40)]
    failed = run_of([f"a{at}" for at in range(50)], success=False)
    tuned = tuned_by(*repeating, failed)
    assert tuned.recommends_length
    assert tuned.limits | {"max_calls": 12} == tuned.limits
    assert "Recommended: max_calls: 12 alone, which saves more than the scale." in said(*repeating, failed)
    assert tuned.settings == tuned.by_length
    file = tmp_path / "callfuse.yaml"
    file.write_text(tuned.as_yaml())
    assert load_config(file, env={}).tool_call_loop == tuned.by_length
    assert not any(one.finding for one in judge_run(repeating[0], tuned.settings))
    found = [at for at, one in enumerate(judge_run(failed, tuned.settings)) if one.finding]
    assert found[0] == 12
    turns = run_of(["a1", "a2"] * 6, [f"b{at}" for at in range(12)], success=True)
    assert not any(one.finding for one in judge_run(turns, tuned.settings))


def test_a_limit_that_was_lower_stays() -> None:
    """A run beyond it counts as acted on at every line."""
    assert Scale(LoopSettings(max_calls=5)).by_length(9).max_calls == 5
    assert Scale(LoopSettings(max_calls=9)).by_length(5).max_calls == 5
    tuning = Tuning(LoopSettings(max_calls=5))
    for one in (steady(4), steady(6)):
        tuning.take(one)
    assert tuning.sources["lab"].good_calls == [4, UNBOUNDED]


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        (
            [*GOOD, *LOOPS],
            "max_repeats: 2, max_repeats_changing: 6, max_weighted_calls: 38, no_news: 2, cycle: 2, same",
        ),
        (GOOD, "Recommended: the scale; what either line saves is unknown, because no run failed."),
        ([*GOOD, steady(3, success=False)], "Recommended: the scale; neither line saves anything in the failed runs."),
        (
            [*GOOD, steady(90, success=False)],
            "Recommended: the scale, which saves as much as a line on the number of calls.",
        ),
        ([*GOOD, run_of(["a"], success=None)], "1 of its runs do not say"),
        (GOOD[:3], "Not tuned: 38 successful runs are needed for 5%: half to set a line, half to test it"),
    ],
)
def test_what_is_said(runs: list[RecordedRun], line: str) -> None:
    """What is promised, what it rests on, and where it does not help."""
    assert line in said(*runs)


def test_the_table() -> None:
    """Shares on unseen runs, beside those of length alone; dashes where nobody knows. None where nothing is tuned."""
    _, _, head, row, *_ = said(*GOOD, *LOOPS).splitlines()
    assert head.split("  ")[0] == "source"
    assert row.split() == ["lab", "38", "3", "5.0%", "72.7%", "5.0%", "0.0%"]
    assert said(*GOOD[:20], *LOOPS).splitlines()[1].strip() == "lab"
    assert said(*GOOD).splitlines()[3].split() == ["lab", "38", "0", "5.0%", "-", "5.0%", "-"]


@pytest.mark.parametrize(
    ("runs", "base", "begins"),
    [
        ([*GOOD, *LOOPS], {}, "Set max_repeats: 2, no_repeats_after: "),
        ([*GOOD, *LOOPS], None, "Change nothing: the limits in use act on at most 5% of new successful runs."),
        (GOOD, {}, "Set max_repeats: 2, no_repeats_after: "),
    ],
)
def test_the_answer_comes_first(runs: list[RecordedRun], base: dict[str, Any] | None, begins: str) -> None:
    """What to set, and why; nothing where the limits are so already. Before the table, with the source's name."""
    if base is None:
        block = tuned_by(*runs).block()
        assert tuned_by(*runs, **block).answer == begins
        return
    found = tuned_by(*runs, **base)
    assert found.answer.startswith(begins) or found.answer.startswith("Set max_repeats: 2, ")
    assert found.answer.endswith(", because with these callfuse acts on at most 5% of new successful runs.")
    assert said(*runs).splitlines()[0] == f"lab: {found.answer}"


def test_what_saves_nothing_changes_nothing() -> None:
    """Stricter limits of which no failed run would have had anything."""
    failed = [run_of(["x", "y"], success=False)]
    found = tuned_by(*GOOD, *failed)
    assert (found.trials.scale.saved, found.trials.length.saved) == (0, 0)
    assert found.answer == "Change nothing: stricter limits would have saved nothing in the failed runs."


def test_too_few_runs_are_refused_in_one_sentence() -> None:
    """Which says how many are needed."""
    text = said(*GOOD[:5])
    assert "Not tuned: 38 successful runs are needed for 5%" in text
    assert "Set " not in text
