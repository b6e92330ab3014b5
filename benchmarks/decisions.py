"""Measure the time of one decision of an engine over a timeline that it has not seen before.

    python -m benchmarks.decisions [--rounds 7]

An exchange has two decisions: whether a call must be held (`hold`, before the answer: could any call be a loop?), and
the findings in a pending round (`verdict`). `both` runs both on one engine, where the second reuses work of the first;
it has no goal. All detectors are on. Timelines have one call per round: `healthy`: all different, `repeat`: the same
call again and again, `cycle`: three calls in turn, `similar`: nearly equal calls. Outcomes are known; signatures are
known (`known`), or must be computed (`fresh`: a request that was just read). `glance` is the cost for healthy requests
under the default settings. The figures are CPU time: the best of interleaved rounds, each the median of some decisions.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Final, NamedTuple

from benchmarks import inside
from benchmarks.inside import Decision, Moment

GOALS_US: Final = {10: 60.0, 100: 200.0, 1000: 2000.0}
"""The goals for a decision, by the number of rounds."""
ALIKE_US: Final = 200.0
"""The goal for the similarity of two arguments of 8 KB."""
GLANCE_US: Final = 5.0
"""The goal for a check of a healthy history of two rounds."""

RUNS: Final = 51
"""The number of decisions for a median."""
RESULT: Final = "The quick brown fox jumps over the lazy dog while the build goes on. " * 10


class Kind(NamedTuple):
    """How the rounds of a timeline differ: the n-th one's tool, query and result."""

    tool: Callable[[int], int]
    query: Callable[[int], str]
    result: Callable[[int], int]


KINDS: Final = {
    "healthy": Kind(lambda at: at % 3, lambda at: f"words of round {at}, and {'more ' * (at % 7)}", lambda at: at),
    "repeat": Kind(lambda _: 0, lambda _: "the same words in every round", lambda _: 0),
    "cycle": Kind(lambda at: at % 3, lambda at: f"words of step {at % 3}", lambda at: at % 3),
    "similar": Kind(lambda _: 0, lambda at: f"the same words in every round, {at}", lambda _: 0),
}


def made(kind: Kind, rounds: int) -> list[tuple[str, str, str]]:
    """Return tool, arguments and result of the calls of a timeline, oldest first, and of a pending one."""
    names = sorted(inside.TOOLS)
    found = []
    for at in range(rounds + 1):
        arguments = json.dumps({"query": kind.query(at), "limit": 10, "language": "en"})
        result = f"{'abcdefghij'[kind.result(at) % 10] * (kind.result(at) + 1)}: {RESULT}"
        found.append((names[kind.tool(at)], arguments, result))
    return found


def timed(decision: Decision, source: Iterator[Moment]) -> float:
    """Return microseconds of one decision, the median of some. The input of each is made just before."""
    found = []
    for moment in islice(source, RUNS):
        begin = time.process_time_ns()
        decision(moment)
        found.append(time.process_time_ns() - begin)
    return statistics.median(found) / 1000


def likeness(size: int) -> Callable[[], float]:
    """Return a function that measures the microseconds of comparing two arguments of `size` bytes that differ in the
    middle and at the end."""
    numbers = count()

    def once() -> float:
        words = "some words that are to be written to a file, " * (size // 45)
        texts = [json.dumps({"path": "a.py", "text": f"{next(numbers)} {words} {next(numbers)}"}) for _ in range(200)]
        compare = inside.comparison(texts)
        begin = time.process_time()
        compare()
        return (time.process_time() - begin) / (len(texts) - 1) * 1e6

    return once


Row = tuple[float, Mapping[str, Callable[[], float]]]
"""The goal of each decision, and by name a function that measures once."""


def measurements() -> dict[str, Row]:
    """Return the rows of the table by name."""
    found: dict[str, Row] = {}
    for name, kind in KINDS.items():
        for rounds, goal in GOALS_US.items():
            calls = inside.calls_of(made(kind, rounds))
            for form in ("known", "fresh"):
                source = inside.moments(calls, fresh=form == "fresh")
                works = (inside.hold, inside.verdict, inside.both)
                measures = {work.__name__: partial(timed, work, source) for work in works}
                found[f"{name}, {rounds} rounds, {form}"] = goal, measures
    for rounds in (2, 12):
        source = inside.moments(inside.calls_of(made(KINDS["healthy"], rounds)), fresh=True)
        found[f"glance, {rounds} rounds"] = GLANCE_US * rounds / 2, {"glance": partial(timed, inside.glance, source)}
    found["likeness of 8 KB"] = ALIKE_US, {"likeness": likeness(8192)}
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    rows = measurements()
    best = {name: dict.fromkeys(works, float("inf")) for name, (_, works) in rows.items()}
    for _ in range(options.rounds):
        for name, (_, works) in rows.items():
            for work, once in works.items():
                best[name][work] = min(best[name][work], once())
    print(f"{'us':<28}{'hold':>9}{'verdict':>9}{'both':>9}{'goal':>7}")
    for name, found in best.items():
        goal = rows[name][0]
        decisions = [us for work, us in found.items() if work != "both"]
        line = "".join(f"{us:>9.1f}" for us in found.values())
        print(f"{name:<28}{line:<27}{goal:>7.0f}{'' if max(decisions) <= goal else '  missed'}")


if __name__ == "__main__":
    main()
