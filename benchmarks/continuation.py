"""Measure how many calls a loop still makes after it is found, on recorded runs that were not stopped.

    python -m benchmarks.continuation [FOLDER]

FOLDER holds recorded runs as `callfuse replay` reads them (default ../shared/trajectories). There is a row for each
kind and each distance of the count above its soft limit: the number of findings, the share of these whose next call
also had one, and the average number of consecutive calls with a finding that followed. `callfuse/observe/saved.py` uses
these figures.
"""

import argparse
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path

from benchmarks.quality import DEFAULT_FOLDER, SOURCES
from callfuse.offline.files import Reading
from callfuse.offline.judging import Judged, judge_run
from callfuse.offline.runs import RecordedRun, Unreadable
from callfuse.policy.settings import LoopSettings

MOST_ABOVE = 4
"""The most counts above the limit with a row of their own; the last row includes all higher ones."""

Row = tuple[str, int]
"""A kind, and the distance above its soft limit."""


def lasting(run: RecordedRun, settings: LoopSettings) -> list[tuple[Row, int]]:
    """Return, for each finding of a run, its row, and the number of findings that follow directly."""
    found = []
    for _, calls in groupby(judge_run(run, settings), key=lambda judged: judged.turn):
        after = 0
        for judged in [*calls][::-1]:
            if judged.finding is None:
                after = 0
                continue
            found.append((_row(judged), after))
            after += 1
    return found


def _row(judged: Judged) -> Row:
    finding = judged.finding
    assert finding is not None
    return str(finding.kind), min(finding.count - finding.threshold, MOST_ABOVE)


def main(arguments: list[str]) -> int:
    """Print the table, only for modern runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.continuation")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    folder = parser.parse_args(arguments).folder
    modern = {name for name, source in SOURCES.items() if source.group == "modern"}
    names = sorted(str(path) for path in folder.iterdir() if path.name.partition(".")[0] in modern)
    rows: defaultdict[Row, list[int]] = defaultdict(list)
    runs = 0
    for one in Reading(names):
        if isinstance(one, Unreadable):
            print(one, file=sys.stderr)
            continue
        runs += 1
        for row, after in lasting(one, LoopSettings()):
            rows[row].append(after)
            rows["any", row[1]].append(after)
    print(f"{runs} runs of {len(names)} sources")
    print(f"{'kind':<18}{'above':>6}{'findings':>10}{'go on':>8}{'follow':>8}")
    for (kind, above), follow in sorted(rows.items()):
        share = sum(after > 0 for after in follow) / len(follow)
        mean = sum(follow) / len(follow)
        print(f"{kind:<18}{above:>6}{len(follow):>10}{share:>8.0%}{mean:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
