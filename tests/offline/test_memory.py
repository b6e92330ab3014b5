"""Whatever the size of the input, what is held is one run, or what is allowed for conversations that may go on."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from callfuse.detect.registry import KINDS
from callfuse.offline.files import Reading
from callfuse.offline.replay import Replay
from callfuse.policy.settings import LoopSettings
from tests.offline.records import calls
from tests.offline.test_joining import body

pytestmark = pytest.mark.slow

MIB = 2**20


def peak_of(path: Path, **options: Any) -> tuple[Replay, int]:
    """A replay of a file, and the most memory that it held, in bytes."""
    replay = Replay(LoopSettings(), [*KINDS], show=5, draw=5)
    tracemalloc.start()
    try:
        for one in Reading([str(path)], **options):
            replay.take(one)
        return replay, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines(records: Iterable[Any], path: Path) -> Path:
    """A file of these records, of 16 MiB or more."""
    with path.open("w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    assert path.stat().st_size > 16 * MIB
    return path


def long_runs() -> Iterable[Any]:
    """Runs of 32 KB."""
    note = "x" * 30_000
    return (calls() | {"id": str(at), "note": note} for at in range(600))


@pytest.mark.parametrize("layout", ["lines", "array", "indented array"])
def test_runs_pass_one_at_a_time(layout: str, tmp_path: Path) -> None:
    """Sixteen MiB of runs in a small part of that."""
    path = lines(long_runs(), tmp_path / "log.jsonl")
    if layout != "lines":
        path.write_text(json.dumps(list(long_runs()), indent=1 if layout == "indented array" else None))
    replay, peak = peak_of(path)
    assert replay.figures["lab"].runs.total() == 600
    assert peak < 4 * MIB


def test_open_conversations_are_bounded(tmp_path: Path) -> None:
    """Sixteen MiB of requests, each repeating its history, in little more than is allowed for what may go on."""
    note = {"note": "x" * 4000}
    records = (body(at, name=f"{name}-") | note for name in range(640) for at in range(6))
    replay, peak = peak_of(lines(records, tmp_path / "log.jsonl"), limit_bytes=MIB // 2)
    assert replay.figures["log"].runs.total() == 640
    assert replay.figures["log"].calls.total() == 640 * 6
    assert peak < 4 * MIB
