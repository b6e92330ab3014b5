"""`benchmarks.instructions` counts with valgrind where there is one, and says so where there is none."""

import json
import shutil
from pathlib import Path

import pytest
from benchmarks import instructions


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_an_exchange_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside stored figures, and stored itself: an exchange takes many times the instructions of its calls."""
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text('{"short": 1000}')
    instructions.main(["--only", "short", "--against", str(before), "--save", str(after)])
    counted = json.loads(after.read_text())["short"]
    assert 100_000 < counted < 20_000_000
    assert f"{counted / 1000:.1f}" in capsys.readouterr().out.splitlines()[-1]


def test_nothing_is_counted_without_valgrind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other programs of `make bench` follow, so it does not fail."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    instructions.main(["--only", "short"])
    assert "valgrind is not installed" in capsys.readouterr().out


def test_what_is_no_commit_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is measured, which takes a minute."""
    monkeypatch.setattr(shutil, "which", str)
    with pytest.raises(SystemExit):
        instructions.main(["--against", "no-such-commit"])
    assert "no-such-commit is neither a file nor a commit" in capsys.readouterr().err


def test_the_table() -> None:
    """Thousands of instructions, and the change in percent where there are figures to compare with."""
    lines = instructions.table({"short": 1_100_000, "call": 2_000_000}, {"short": 1_000_000}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["short", "1000.0", "1100.0", "+10.0%"],
        ["call", "-", "2000.0", "-"],
    ]
