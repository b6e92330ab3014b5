"""The promise of the line: exact counts over every order in which scores could have come."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.offline.tuning.conformal import beyond, line, needed
from tests.support.examples import more_examples

alphas = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(19, 20), max_denominator=100)


def beyond_the_others(scores: list[int], alpha: Fraction) -> int:
    """How many of these scores are beyond the line through all the others."""
    return sum(score > line(sorted(scores[:at] + scores[at + 1 :]), alpha) for at, score in enumerate(scores))


@more_examples(5)
@given(data=st.data(), alpha=alphas)
def test_at_most_the_share_is_beyond(data: st.DataObject, alpha: Fraction) -> None:
    """Each of n + 1 scores is as likely to be the new one: with ties and without, at most alpha of them are beyond."""
    least = needed(alpha) + 1
    scores = data.draw(st.lists(st.integers(0, 9), min_size=least, max_size=least + 30))
    assert beyond_the_others(scores, alpha) <= alpha * len(scores)


@more_examples(5)
@given(data=st.data(), alpha=alphas)
def test_different_scores_use_up_the_share(data: st.DataObject, alpha: Fraction) -> None:
    """Without ties the share beyond is (n + 1 - k) / (n + 1) exactly, k = ceil((n + 1)(1 - alpha))."""
    count = data.draw(st.integers(needed(alpha), needed(alpha) + 30))
    scores = data.draw(st.permutations(range(count + 1)))
    k = ceil((count + 1) * (1 - alpha))
    assert beyond_the_others(list(scores), alpha) == count + 1 - k == beyond(count, alpha)
    assert line(range(1, count + 1), alpha) == k


@more_examples(5)
@given(alpha=alphas)
def test_the_number_of_scores_needed(alpha: Fraction) -> None:
    """With one fewer there is no line."""
    assert beyond(needed(alpha), alpha) > 0
    assert beyond(needed(alpha) - 1, alpha) == 0
    with pytest.raises(ValueError, match=f"{needed(alpha) - 1} scores are too few: {needed(alpha)} are needed"):
        line(range(needed(alpha) - 1), alpha)


@pytest.mark.parametrize(("share", "number"), [("0.05", 19), ("0.1", 9), ("0.01", 99), ("0.5", 1), ("0.3", 3)])
def test_known_numbers(share: str, number: int) -> None:
    """19 for 5 %; exact where a float would be off by one."""
    assert needed(Fraction(share)) == number
    assert line(range(number), Fraction(share)) == number - beyond(number, Fraction(share))
