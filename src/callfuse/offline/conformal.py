"""Compute a line that a new score exceeds with at most a given probability alpha, by split-conformal calibration.

If n scores and a new one are exchangeable, the new one has each rank among the n + 1 with equal probability; ties only
make it less likely to exceed others. So it exceeds the k-th smallest of the n, k = ceil((n + 1)(1 - alpha)), with a
probability of at most (n + 1 - k) / (n + 1) <= alpha, on average over the draws of the n. Vovk, Gammerman and Shafer,
Algorithmic Learning in a Random World (2005).

`trial` measures lines on unseen scores: one half of the scores sets a line, and the other half is compared with it. The
means over all halves are computed exactly, not sampled: if m scores are beyond a line, the i-th score is the line of
those halves that contain it and m - 1 of the scores after it.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, exp, floor, lgamma
from typing import Any, Final, NamedTuple, Protocol, TypeVar


class Ordered(Hashable, Protocol):
    """The type of scores: hashable and ordered, such as numbers and tuples of numbers."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Ordered)

NEVER: Final = 1e-12
"""A probability too small to change any reported figure."""


class Trial(NamedTuple):
    """`acted`: mean share of unseen scores beyond the line. `saved`: mean number of calls saved in failed runs."""

    acted: float
    saved: float


def max_beyond(count: int, alpha: Fraction) -> int:
    """Return the number of scores, among `count` and a new one, that may be beyond the line: n + 1 - k."""
    return floor((count + 1) * alpha)


def min_scores(alpha: Fraction) -> int:
    """Return the least number of scores for which a line exists, for 0 < alpha < 1."""
    return ceil(1 / alpha) - 1


def line(ascending: Sequence[T], alpha: Fraction) -> T:
    """Return the line for these scores, sorted ascending. Raises ValueError if there are too few."""
    above = max_beyond(len(ascending), alpha)
    if not above:
        raise ValueError(f"{len(ascending)} scores are too few: {min_scores(alpha)} are needed")
    return ascending[len(ascending) - above]


def trial(scores: Sequence[T], alpha: Fraction, saved: Callable[[T], int]) -> Trial:
    """Try lines on at least 2 * `min_scores(alpha)` scores. `saved`: the number of calls that a line saves."""
    ordered, count = sorted(scores), len(scores)
    half = count // 2
    above = max_beyond(half, alpha)
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
    """Return the logarithm of the number of ways to choose `some` of `many`."""
    return lgamma(many + 1) - lgamma(some + 1) - lgamma(many - some + 1)
