"""What tells two results apart, in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model.outcomes import outcome_of
from callfuse.offline.differences import difference
from tests.support.examples import more_examples


def differs(one: Any, other: Any) -> str:
    """What tells the second result from the first."""
    older, newer = outcome_of(one), outcome_of(other)
    assert older is not None
    assert newer is not None
    return difference(older, newer)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("40% done", "55% done", "40 -> 55"),
        ("at 10:00:01, row 3", "at 10:00:02, row 3", ""),
        ("all\nrow 1, 2, 3, 4, 5", "all\nrow 2, 3, 4, 5, 6", "1 -> 2, 2 -> 3, 3 -> 4 and 2 more"),
        ("mean 0.008029 s", "mean 0.007819 s", "0.008029 -> 0.007819"),
        ("0x5555f50 in go ()", "0x5555f59 in go ()", "0x5555f50 -> 0x5555f59"),
        ("same\nred", "same\nblue", "line 2: 'red' -> 'blue'"),
        ("same", "same\nmore", "line 2: '' -> 'more'"),
        ("fine", "Error: no such file", "a result -> an error"),
        ("fine", "", "a result -> no data"),
        ("x" * 400 + "a", "x" * 400 + "b", "something after the first 300 characters"),
        ([{"type": "image", "data": "a"}], [{"type": "image", "data": "b"}], "something that is not text"),
        ("a" * 60, "b" * 60, f"line 1: '{'a' * 37}...' -> '{'b' * 37}...'"),
    ],
)
def test_what_is_said(one: Any, other: Any, said: str) -> None:
    """The numbers where nothing else differs, the first line that does, or the kind of result."""
    assert differs(one, other) == said


lines = st.lists(st.sampled_from(["red", "row 3", "row 4", "took 3 s", "", "Error: x 1", "é", "0x12345"]), max_size=4)


@more_examples(5)
@given(one=lines.map("\n".join), other=lines.map("\n".join))
def test_it_is_said_exactly_where_results_differ(one: str, other: str) -> None:
    """As the detectors compare them."""
    older, newer = outcome_of(one), outcome_of(other)
    assert older is not None
    assert newer is not None
    assert bool(difference(older, newer)) is (older.digest != newer.digest)
