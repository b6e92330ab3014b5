"""Files of every layout give the same records, whatever they are compressed with; what is broken is named."""

import gzip
import io
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest

from callfuse.offline import files
from callfuse.offline.files import Reading
from callfuse.offline.runs import RecordedRun, Unreadable
from tests.offline.reading import faults_in, runs_in, written
from tests.offline.records import calls, chat_history, gemini, responses

ONE, TWO = calls() | {"id": "one"}, calls() | {"id": "two"}
LINES = f"{json.dumps(ONE)}\n{json.dumps(TWO)}\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES.rstrip(),
        LINES.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + LINES,
        b"\n \n" + LINES.replace(b"\n", b"\n\n"),
        json.dumps([ONE, TWO]).encode(),
        json.dumps([ONE, TWO], indent=2).encode(),
        json.dumps([ONE, TWO], indent="\t").encode() + b"\n",
        b"[\n" + json.dumps(ONE).encode() + b",\n" + json.dumps(TWO).encode() + b"\n]\n",
        b"[\n" + LINES.rstrip().replace(b"\n", b"\n,\n") + b"]",
        json.dumps(ONE, indent=2).encode() + b"\n" + json.dumps(TWO, indent=2).encode(),
        json.dumps([ONE]).encode() + b"\n" + json.dumps([TWO]).encode(),
        gzip.compress(LINES),
        lzma.compress(LINES),
        gzip.compress(LINES[: LINES.index(b"\n") + 1]) + gzip.compress(LINES[LINES.index(b"\n") + 1 :]),
        lzma.compress(json.dumps([ONE, TWO], indent=2).encode()),
    ],
)
def test_every_layout_gives_the_same_runs(content: bytes, tmp_path: Path) -> None:
    """Lines, arrays, objects one after the other; indented or not, compressed or not."""
    path = tmp_path / "log"
    path.write_bytes(content)
    assert [run.id for run in runs_in(str(path))] == ["one", "two"]


@pytest.mark.parametrize("history", [chat_history(), gemini()["contents"], responses()["input"]])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_may_be_one_run_s_messages(history: list[Any], indent: int | None, tmp_path: Path) -> None:
    """An array of messages is one run; an array of such arrays is as many."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps(history, indent=indent))
    (run,) = runs_in(str(path))
    assert len(list(run.calls())) >= 5
    path.write_text(json.dumps([history, history[:3]], indent=indent))
    assert max(len(list(run.calls())) for run in Reading([str(path)]) if isinstance(run, RecordedRun)) >= 5


def test_lines_are_told_from_documents_where_the_first_is_broken(tmp_path: Path) -> None:
    """A first line that is cut costs itself, not the file."""
    name = written(tmp_path / "log.jsonl", b'{"id": "cut", "calls": [{"na', ONE, TWO)
    assert [fault.partition(":")[0] for fault in faults_in(name)] == ["line 1"]
    assert [one.id for one in Reading([name]) if isinstance(one, RecordedRun)] == ["one", "two"]


def test_faults_name_lines(tmp_path: Path) -> None:
    """Blank lines count, in lines as in documents."""
    name = written(tmp_path / "log.jsonl", ONE, b"", b"nonsense", TWO, {"a": 1})
    assert [fault.partition(":")[0] for fault in faults_in(name)] == ["line 3", "line 5"]
    path = tmp_path / "log.json"
    path.write_text(json.dumps([ONE, {"a": 1}, TWO], indent=1))
    (fault,) = faults_in(str(path))
    line = int(fault.removeprefix("line ").partition(":")[0])
    assert path.read_text().splitlines()[line - 1 : line + 1] == [" {", '  "a": 1']


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (lzma.compress(LINES * 50)[:-40], "cannot be read to its end: "),
        (gzip.compress(LINES * 50)[:-40], "cannot be read to its end: "),
        (b"\xfd7zXZ\x00" + b"x" * 100, "cannot be read to its end: "),
        (json.dumps([ONE, TWO], indent=2).encode()[:-9], "line 65: ends in the middle of a record"),
        (b'[\n{"a": nonsense}, {"b": 1}]', "line 2: is not JSON from here on: "),
        (b'[[1,\n 2], {"a": 1]', "line 1: is not JSON: "),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1: is not JSON: "),
    ],
)
def test_broken_files_are_named(content: bytes, fault: str, tmp_path: Path) -> None:
    """What ends early, or is something else, is a fault and no exception."""
    path = tmp_path / "log"
    path.write_bytes(content)
    faults = faults_in(str(path))
    assert faults
    assert faults[-1].startswith(fault) or faults[0].startswith(fault)


def test_what_was_read_before_a_break_counts(tmp_path: Path) -> None:
    """The runs in front of the place where a file ends early are judged."""
    many = b"".join(json.dumps(calls() | {"id": str(at)}).encode() + b"\n" for at in range(500))
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(many, 1)[:-2000])
    found = list(Reading([str(path)]))
    assert [one.id for one in found if isinstance(one, RecordedRun)][:100] == [str(at) for at in range(100)]
    assert isinstance(found[-1], Unreadable)


def test_too_long_a_record_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record beyond the limit is a fault of its own, and the next one is read."""
    monkeypatch.setattr(files, "MAX_PIECE", 3000)
    long = ONE | {"note": "x" * 10_000}
    path = tmp_path / "log"
    for content in (
        "\n".join(json.dumps(one) for one in (ONE, long, TWO)),
        json.dumps([ONE, long, TWO], indent=1),
    ):
        path.write_text(content)
        (fault,) = faults_in(str(path))
        assert "is a record of more than" in fault
        assert [one.id for one in Reading([str(path)]) if isinstance(one, RecordedRun)] == ["one", "two"]


def test_what_has_no_end_is_not_read_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that goes on and on, and a run's messages beyond the limit, end the reading of their file."""
    monkeypatch.setattr(files, "MAX_PIECE", 3000)
    monkeypatch.setattr(files, "_CHUNK", 1000)
    path = tmp_path / "log"
    for content in (
        json.dumps([ONE | {"note": "x" * 10_000}, TWO], indent=1),
        json.dumps(chat_history() * 10, indent=1),
    ):
        path.write_text(content)
        (fault,) = faults_in(str(path))
        assert "is a record of more than" in fault
        assert fault.endswith(("the rest is not read", "write each run in its own line"))


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    """One that is not there costs nothing but itself."""
    name = written(tmp_path / "log.jsonl", ONE)
    missing, folder, run = Reading([str(tmp_path / "gone"), str(tmp_path), name])
    assert str(missing) == f"{tmp_path / 'gone'}: cannot be opened: No such file or directory"
    assert str(folder) == f"{tmp_path}: cannot be opened: Is a directory"
    assert isinstance(run, RecordedRun)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash is what comes through a pipe, compressed or not, and it stays open."""
    for content in (LINES, lzma.compress(LINES)):
        stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert [run.id for run in runs_in("-")] == ["one", "two"]
        assert not stdin.closed


def test_the_position_grows_to_the_size(tmp_path: Path) -> None:
    """What a progress bar shows: bytes of the files as they stand."""
    names = [written(tmp_path / "a.jsonl", ONE, TWO), str(tmp_path / "b.xz")]
    Path(names[1]).write_bytes(lzma.compress(LINES))
    reading = Reading(names)
    positions = [reading.position for _ in reading]
    assert positions == sorted(positions)
    assert reading.position == sum(Path(name).stat().st_size for name in names)
