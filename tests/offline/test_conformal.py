"""The promise of the line: exact counts over every order of the scores, and trials on unseen ones over all halves."""

from fractions import Fraction
from itertools import combinations
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.offline.conformal import line, max_beyond, min_scores, trial
from callfuse.offline.tuning import (
    CannotTuneError,
    FailedRun,
    Scale,
    Score,
    ScoreStep,
    Source,
    Tuning,
    try_lines,
    tune,
)
from callfuse.policy.settings import LoopSettings
from tests.offline.tuning import run_of
from tests.support.examples import more_examples

alphas = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(19, 20), max_denominator=100)


def beyond_the_others(scores: list[int], alpha: Fraction) -> int:
    """How many of these scores are beyond the line through all the others."""
    return sum(score > line(sorted(scores[:at] + scores[at + 1 :]), alpha) for at, score in enumerate(scores))


@more_examples(5)
@given(data=st.data(), alpha=alphas)
def test_at_most_the_share_is_beyond(data: st.DataObject, alpha: Fraction) -> None:
    """Each of n + 1 scores is as likely to be the new one: with ties and without, at most alpha of them are beyond."""
    least = min_scores(alpha) + 1
    scores = data.draw(st.lists(st.integers(0, 9), min_size=least, max_size=least + 30))
    assert beyond_the_others(scores, alpha) <= alpha * len(scores)


@more_examples(5)
@given(data=st.data(), alpha=alphas)
def test_different_scores_use_up_the_share(data: st.DataObject, alpha: Fraction) -> None:
    """Without ties the share beyond is (n + 1 - k) / (n + 1) exactly, k = ceil((n + 1)(1 - alpha))."""
    count = data.draw(st.integers(min_scores(alpha), min_scores(alpha) + 30))
    scores = data.draw(st.permutations(range(count + 1)))
    k = ceil((count + 1) * (1 - alpha))
    assert beyond_the_others(list(scores), alpha) == count + 1 - k == max_beyond(count, alpha)
    assert line(range(1, count + 1), alpha) == k


@more_examples(5)
@given(alpha=alphas)
def test_the_number_of_scores_needed(alpha: Fraction) -> None:
    """With one fewer there is no line."""
    assert max_beyond(min_scores(alpha), alpha) > 0
    assert max_beyond(min_scores(alpha) - 1, alpha) == 0
    with pytest.raises(ValueError, match=f"{min_scores(alpha) - 1} scores are too few: {min_scores(alpha)} are needed"):
        line(range(min_scores(alpha) - 1), alpha)


@pytest.mark.parametrize(("share", "number"), [("0.05", 19), ("0.1", 9), ("0.01", 99), ("0.5", 1), ("0.3", 3)])
def test_known_numbers(share: str, number: int) -> None:
    """19 for 5 %; exact where a float would be off by one."""
    assert min_scores(Fraction(share)) == number
    assert line(range(number), Fraction(share)) == number - max_beyond(number, Fraction(share))


def by_drawing(scores: list[int], alpha: Fraction) -> tuple[float, float]:
    """Every half once: the share of the other one that is beyond its line, and the line."""
    places = range(len(scores))
    acted, lines, halves = 0.0, 0, 0
    for seen in combinations(places, len(scores) // 2):
        at = line(sorted(scores[place] for place in seen), alpha)
        unseen = [scores[place] for place in places if place not in seen]
        acted += sum(score > at for score in unseen) / len(unseen)
        lines += at
        halves += 1
    return acted / halves, lines / halves


@more_examples(5)
@given(
    scores=st.lists(st.integers(0, 6), min_size=6, max_size=11), alpha=st.sampled_from(["0.25", "0.3", "0.5", "0.8"])
)
def test_all_halves(scores: list[int], alpha: str) -> None:
    """Worked out or drawn, with ties and without."""
    found = trial(scores, Fraction(alpha), lambda at: at)
    assert found == pytest.approx(by_drawing(scores, Fraction(alpha)))


@more_examples(5)
@given(scores=st.lists(st.integers(0, 50), min_size=38, max_size=200))
def test_the_promise_holds_on_unseen_runs(scores: list[int]) -> None:
    """On average over the halves, whatever the scores; without ties all of it is used up."""
    alpha = Fraction("0.05")
    most = max_beyond(len(scores) // 2, alpha) / (len(scores) // 2 + 1)
    assert trial(scores, alpha, lambda _: 0).acted <= most + 1e-9
    different = [score * len(scores) + at for at, score in enumerate(scores)]
    assert trial(different, alpha, lambda _: 0).acted == pytest.approx(most)


def test_many_scores() -> None:
    """A hundred thousand runs are no matter."""
    assert trial(range(100_000), Fraction("0.01"), lambda at: at).acted == pytest.approx(0.01, rel=1e-3)


def test_what_a_failed_run_would_have_saved() -> None:
    """The calls from the round on that is the first beyond the line."""
    run = FailedRun([ScoreStep(Score(0, 1), 0), ScoreStep(Score(0, 12), 3), ScoreStep(Score(8, 20), 5)], 9, [9])
    assert [run.saved(line) for line in (Score(0, 0), Score(0, 1), Score(0, 12), Score(8, 19), Score(8, 20))] == [
        9, 6, 4, 4, 0]  # fmt: skip
    source = Source(failed=[run, FailedRun([ScoreStep(Score(0, 1), 0)], 2, [2])])
    assert (source.saved(Score(0, 1)), source.saved_by_length(4)) == (6, 5)
    turns = FailedRun([], 12, [2, 6, 4])
    assert [turns.saved_by_length(line) for line in (1, 2, 5, 6)] == [11, 8, 5, 0]


def test_runs_by_source() -> None:
    """Scored by outcome; runs without calls are left out, and those without a verdict only counted."""
    tuning = Tuning(LoopSettings())
    for run in (run_of(["a", "b"]), run_of(["a", "a"], success=False), run_of(["a"], success=None), run_of([])):
        tuning.take(run)
    tuning.take(run_of(["a"], source="other"))
    lab, other = tuning.sources["lab"], tuning.sources["other"]
    assert (lab.good, lab.good_calls, lab.unlabelled) == ([Score(0, 2)], [2], 1)
    assert [(run.steps[-1].score, run.calls) for run in lab.failed] == [(Score(8, 2), 2)]
    assert (other.good, other.failed, list(tuning.sources)) == ([Score(0, 1)], [], ["lab", "other"])


def test_warnings_act_on_good_runs_and_save_nothing() -> None:
    """`same_error` is told with a result: it counts against the promise, and no call is withheld for it."""
    errors = ["a=!x", "a1=!x", "a2=!x", "a3=!x"]
    tuning = Tuning(LoopSettings())
    tuning.take(run_of(errors))
    tuning.take(run_of(errors, success=False))
    source = tuning.sources["lab"]
    assert source.good[0].points == 12
    assert source.failed[0].steps[-1].score.points == 0


def test_half_of_the_runs_must_do() -> None:
    """With fewer there is a line, but nobody who could try it: nothing is set."""
    alpha, scale = Fraction("0.05"), Scale(LoopSettings())
    runs = 2 * min_scores(alpha)
    scores = [Score(0, at) for at in range(runs)]
    assert scale.settings(line(scores[1:], alpha)).max_weighted_calls == runs - 1
    with pytest.raises(CannotTuneError, match=f"^{runs} successful runs are needed for 5%: .* there are {runs - 1}$"):
        tune("lab", Source(scores[1:], [1] * (runs - 1)), scale, alpha)
    tuned = tune("lab", Source(scores, [1] * runs), scale, alpha)
    assert (tuned.good, tuned.by_scale.max_weighted_calls) == (runs, runs - 1)
    assert tuned.trials == try_lines(Source(scores, [1] * runs), alpha)
