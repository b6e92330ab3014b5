"""Split-conformal calibration: a line that a new score exceeds with at most a given probability, whatever the scores.

Of n scores and a new one that might as well have come in any other order, the new one is equally likely to be the
first, second, ... or last of the n + 1 by size; ties only make it less likely to be beyond others. So it exceeds the
k-th smallest of the n, k = ceil((n + 1)(1 - alpha)), with a probability of at most (n + 1 - k) / (n + 1) <= alpha, on
average over the draws of the n. Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World (2005).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import TypeVar

T = TypeVar("T")


def beyond(count: int, alpha: Fraction) -> int:
    """How many of `count` scores and a new one the line lets be beyond it: n + 1 - k."""
    return floor((count + 1) * alpha)


def needed(alpha: Fraction) -> int:
    """The least number of scores that have a line, for 0 < alpha < 1: with fewer, none of them is high enough."""
    return ceil(1 / alpha) - 1


def line(ascending: Sequence[T], alpha: Fraction) -> T:
    """The line through these scores; ValueError where there are too few."""
    above = beyond(len(ascending), alpha)
    if not above:
        raise ValueError(f"{len(ascending)} scores are too few: {needed(alpha)} are needed")
    return ascending[len(ascending) - above]
