"""What a line does on good runs that it has not seen: one half of them sets it, the other is judged by it.

The means over all halves that there are, worked out instead of drawn: where a line lets m scores be beyond it, the i-th
score is the line of those halves that hold it and m - 1 of those after it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import exp, lgamma
from typing import Final, NamedTuple, TypeVar

from callfuse.offline.tuning.conformal import beyond, needed
from callfuse.offline.tuning.scale import Score
from callfuse.offline.tuning.sources import Source

T = TypeVar("T", int, Score)

NEVER: Final = 1e-12
"""A chance that no figure shows."""


class Trial(NamedTuple):
    """The share of the unseen good runs that is acted on, and the calls saved in failed runs."""

    acted: float
    saved: float


class Trials(NamedTuple):
    """A source on trial: the scale, and beside it a line on the number of calls alone."""

    scale: Trial
    length: Trial


def trials(source: Source, alpha: Fraction) -> Trials | None:
    """The trials of a source; None where half of its good runs are too few for a line."""
    if len(source.good) // 2 < needed(alpha):
        return None
    return Trials(
        trial(source.good, alpha, source.saved),
        trial(source.good_calls, alpha, source.saved_by_length),
    )


def trial(scores: Sequence[T], alpha: Fraction, saved: Callable[[T], int]) -> Trial:
    """One kind of score on trial; `saved` are the calls that a line saves."""
    ordered, count = sorted(scores), len(scores)
    half = count // 2
    above = beyond(half, alpha)
    saved_at = cache(saved)
    acted = calls = 0.0
    for at in range(half - above, count - above + 1):
        after = count - 1 - at
        chance = exp(_log_choices(at, half - above) + _log_choices(after, above - 1) - _log_choices(count, half))
        if chance < NEVER:
            continue
        higher = count - bisect_right(ordered, ordered[at])
        acted += chance * (higher * (after - above + 1) / after if higher else 0)
        calls += chance * saved_at(ordered[at])
    return Trial(acted / (count - half), calls)


def _log_choices(many: int, some: int) -> float:
    """The logarithm of the number of ways to choose some of many."""
    return lgamma(many + 1) - lgamma(some + 1) - lgamma(many - some + 1)
