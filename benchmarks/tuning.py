"""Check the guarantee of `callfuse tune` on recorded runs, and compare its savings with lines on run length.

    python -m benchmarks.tuning [FOLDER] [--max-false-positive 0.05] [--splits 1000]

FOLDER holds recorded runs as `callfuse tune` reads them (default ../shared/trajectories). For each source with enough
successful runs, and each of `--splits` random halves of them: the line of one half, the share of the other half that
settings at this line interrupt, and the calls of failed runs from the first interrupted one to the end. The figures are
means in per cent. `all halves` is the exact share over all halves, as `callfuse tune` computes it.
"""

import argparse
import random
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TypeVar

from callfuse.offline.conformal import line, min_scores
from callfuse.offline.files import Reading
from callfuse.offline.runs import Unreadable
from callfuse.offline.tuning import Score, Source, Tuning, try_lines
from callfuse.policy.settings import LoopSettings

DEFAULT_FOLDER = Path("../shared/trajectories")

T = TypeVar("T", int, Score)

_HEAD = (
    f"{'source':<18}{'ok':>6}{'failed':>8}{'acted on':>10}{'all halves':>12}{'saved':>8}"
    f"{'by length: acted on':>21}{'saved':>8}"
)


def drawn(scores: Sequence[T], alpha: Fraction, saved: Callable[[T], int], splits: int) -> tuple[float, float]:
    """Return, over random halves, the mean share of the unseen half beyond the line, and the mean of the calls
    saved."""
    saved_at = cache(saved)
    chance = random.Random(1)
    mixed, half = list(scores), len(scores) // 2
    acted = calls = 0.0
    for _ in range(splits):
        chance.shuffle(mixed)
        at = line(sorted(mixed[:half]), alpha)
        unseen = sorted(mixed[half:])
        acted += 1 - bisect_right(unseen, at) / len(unseen)
        calls += saved_at(at)
    return acted / splits, calls / splits


def row(name: str, source: Source, alpha: Fraction, splits: int) -> str | None:
    """Return a row of the table; None if there are too few successful runs."""
    if len(source.good) < 2 * min_scores(alpha):
        return None
    exact = try_lines(source, alpha)
    calls = sum(run.calls for run in source.failed) or 1
    acted, saved = drawn(source.good, alpha, source.saved, splits)
    long, cut = drawn(source.good_calls, alpha, source.saved_by_length, splits)
    return (
        f"{name:<18}{len(source.good):>6}{len(source.failed):>8}{acted:>10.2%}{exact.scale.acted:>12.2%}"
        f"{saved / calls:>8.1%}{long:>21.2%}{cut / calls:>8.1%}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--max-false-positive", type=Fraction, default=Fraction("0.05"))
    parser.add_argument("--splits", type=int, default=1000)
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"no recorded runs in {options.folder}: name a folder that has some")
        return
    tuning = Tuning(LoopSettings())
    for one in Reading(sorted(str(path) for path in options.folder.iterdir() if ".json" in path.name)):
        if isinstance(one, Unreadable):
            print(one, file=sys.stderr)
        tuning.take(one)
    print(f"at most {float(options.max_false_positive):.1%}; {options.splits} random halves\n\n{_HEAD}")
    for name, source in tuning.sources.items():
        print(row(name, source, options.max_false_positive, options.splits) or f"{name:<18}too few successful runs")


if __name__ == "__main__":
    main()
