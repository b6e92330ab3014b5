"""Runs that real agents made, for the tests that walk them.

In: the folder named by `CALLFUSE_TRAJECTORIES`, by default `../shared/trajectories` beside the project. Out: some runs
of each file, so that a suite ends in minutes; `make fuzz` takes all of them.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from callfuse.offline.files import Reading
from callfuse.offline.runs import RecordedRun
from tests.support.examples import some

FOLDER = Path(os.environ.get("CALLFUSE_TRAJECTORIES", "../shared/trajectories"))
needs_recorded_runs = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no recorded runs in {FOLDER} (CALLFUSE_TRAJECTORIES)"
)


def recorded_runs(most: int, step: int) -> Iterator[list[RecordedRun]]:
    """Of the first `most` runs of each file each `step`-th, beginning with another one in each file."""
    for number, name in enumerate(sorted(FOLDER.glob("*.jsonl.xz"))):
        read = list(islice(Reading([str(name)]), most))
        listed = [read[at] for at in some(range(len(read)), step, number)]
        assert listed
        assert all(isinstance(run, RecordedRun) for run in read)
        yield [run for run in listed if isinstance(run, RecordedRun)]
