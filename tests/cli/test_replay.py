"""`callfuse replay` as it is typed: what stands on which stream, exit codes, reports, settings, in a pipe."""

import csv
import io
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import CLEAN, PLAIN, callfuse, on_terminal


def run(success: bool | None, *arguments: str, **more: Any) -> dict[str, Any]:
    """A recorded run of one tool with these arguments, always with the same result."""
    calls = [{"turn": at, "name": "look", "arguments": text, "result": "nothing"} for at, text in enumerate(arguments)]
    return {"id": "r", "source": "lab", "success": success, "calls": calls} | more


LOOP = run(False, '"a"', '"a"', '"a"', '"a"')
FINE = run(True, '"a"', '"b"', '"c"')


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A file with a failed run that loops, and one that is fine."""
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(LOOP)}\n{json.dumps(FINE)}\n")
    return str(path)


def test_help_names_the_options() -> None:
    """Asking for help reads nothing."""
    text = callfuse("replay", "--help").stdout
    for word in ("FILE", "--config", "--source", "--rule", "--show", "--json", "--csv", "--html"):
        assert word in text


def test_the_table_in_a_pipe(log: str) -> None:
    """Plain lines on stdout, nothing on stderr, exit code 0."""
    ended = callfuse("replay", log, "--show", "1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    answer, blank, head, lab, *rest = ended.stdout.splitlines()
    assert answer == "No recommendation: 2 runs with a call or a finding; at least 20 are needed."
    assert blank == ""
    assert head.split()[:2] == ["source", "rule"]
    assert lab.split() == ["lab", "any", "rule", "1", "1", "0", "(0.0%)", "1", "(100.0%)", "0", "(0.0%)", "2", "0",
                           "2", "(50.0%)", "8", "(50.0%)"]  # fmt: skip
    assert "repeat 3 of look (soft, from 3): steer" in rest


def test_standard_input_and_a_name_for_it() -> None:
    """A dash reads a pipe; `--source` names what comes through it."""
    content = lzma.compress(json.dumps(LOOP).encode())
    command = [sys.executable, "-m", "callfuse", "replay", "-", "--source", "piped"]
    ended = subprocess.run(command, input=content, capture_output=True, env=CLEAN | PLAIN, timeout=60, check=True)
    assert ended.stdout.decode().splitlines()[3].startswith("piped ")


def test_reports_are_written_beside_the_table(log: str, tmp_path: Path) -> None:
    """Each to its file; the table stays on stdout."""
    names = {kind: str(tmp_path / f"report.{kind}") for kind in ("json", "csv", "html")}
    ended = callfuse("replay", log, *(part for kind, name in names.items() for part in (f"--{kind}", name)))
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[2].startswith("source")
    told = json.loads(Path(names["json"]).read_text())
    assert told["rows"][0]["saved_calls"] == 2
    assert [run["acts_from"] for run in told["runs"]] == [3]
    assert next(csv.DictReader(io.StringIO(Path(names["csv"]).read_text())))["saved_calls"] == "2"
    assert Path(names["html"]).read_text().count("title=") == 4


def test_a_report_may_go_to_stdout(log: str) -> None:
    """Then nothing else does."""
    assert json.loads(callfuse("replay", log, "--json", "-").stdout)["rows"][0]["source"] == "lab"
    rows = list(csv.DictReader(io.StringIO(callfuse("replay", log, "--csv", "-").stdout)))
    assert [row["rule"] for row in rows] == ["any rule", "repeat"]


def test_settings_decide(log: str, tmp_path: Path) -> None:
    """A file, or the environment, says what is a loop; a switch that is off is as if on, and says so."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop: {enabled: false, mode: warn, max_repeats: 4}\n")
    for ended in (callfuse("replay", log, "--json", "-", "--config", str(file)),
                  callfuse("replay", log, "--json", "-", CALLFUSE_CONFIG=str(file))):  # fmt: skip
        report = json.loads(ended.stdout)
        row = next(row for row in report["rows"] if row["rule"] == "repeat")
        assert (row["findings_soft"], row["saved_calls"]) == (1, 0)
        assert report["tool_call_loop"]["mode"] == ["warn"]
        assert ended.stderr == "callfuse replay: tool_call_loop.enabled is false; replay runs as if it were true\n"


def test_equal_answers_are_read_where_they_count(tmp_path: Path) -> None:
    """They are read only where the settings have the kind."""
    words = [{"role": "assistant", "content": "I can only transfer you."}, {"role": "user", "content": "Hello?"}]
    name = tmp_path / "log.jsonl"
    name.write_text(json.dumps({"messages": [{"role": "user", "content": "Cancel it."}, *words * 3]}))
    config = tmp_path / "callfuse.yaml"
    config.write_text("tool_call_loop: {detectors: {monologue: true}}")
    ended = callfuse("replay", str(name), "--show", "1", "--config", str(config))
    assert "monologue 3 of - (soft, from 3): warn" in ended.stdout
    assert "monologue" not in callfuse("replay", str(name), "--show", "1").stdout


def test_what_does_not_hold_is_said(log: str, tmp_path: Path) -> None:
    """Settings of models are left out: records do not tell the backend."""
    file = tmp_path / "callfuse.yaml"
    file.write_text('tool_call_loop: {models: {"*": {max_repeats: 2}}}\n')
    ended = callfuse("replay", log, "--config", str(file))
    assert ended.returncode == 0
    assert ended.stderr == "callfuse replay: tool_call_loop.models is ignored, because few records name the backend\n"


def test_a_rule_alone(log: str) -> None:
    """Other findings are left out."""
    rows = json.loads(callfuse("replay", log, "--json", "-", "--rule", "repeat_changing").stdout)["rows"]
    assert [(row["rule"], row["fired_failed"]) for row in rows] == [("any rule", 0)]


def test_what_cannot_be_read_is_told_and_changes_nothing(log: str, tmp_path: Path) -> None:
    """On stderr, by file and line, and not without end."""
    with Path(log).open("a") as file:
        file.write("nonsense\n" * 30)
    ended = callfuse("replay", log, str(tmp_path / "gone.jsonl"), "--json", "-")
    first, *lines = ended.stderr.splitlines()
    assert ended.returncode == 0
    assert first == "callfuse replay: 31 faults in the input:"
    assert lines[0].startswith(f"  {log}, line 3: is not JSON: ")
    assert lines[-1] == "  and 11 more"
    assert json.loads(ended.stdout)["faults"]["count"] == 31


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "FILE"),
        (["gone.jsonl"], "no recorded run in gone.jsonl"),
        (["/dev/null"], "no recorded run in /dev/null"),
        (["x", "--rule", "nope"], "--rule nope: use one of repeat, "),
        (["x", "--show", "-1"], "--show -1: use 0 or more"),
        (["x", "--nope"], "--nope"),
        (["x", "--config", "gone.yaml"], "gone.yaml: cannot read this file: No such file or directory"),
        (["x", "--json", "-", "--csv", "-"], "only one report can go to standard output"),
    ],
)
def test_wrong_use_exits_with_2(arguments: list[str], expected: str) -> None:
    """It says what is wrong, without a traceback and with nothing on stdout."""
    ended = callfuse("replay", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_report_that_cannot_be_written(log: str, tmp_path: Path) -> None:
    """The file is named."""
    ended = callfuse("replay", log, "--html", str(tmp_path / "gone" / "page.html"))
    assert ended.returncode == 2
    assert ended.stderr.endswith("page.html: No such file or directory\n")


@pytest.mark.parametrize(("options", "begins"), [("", "No "), ("--csv -", "sou")])
def test_a_reader_that_goes_away(options: str, begins: str, log: str) -> None:
    """`callfuse replay ... | head` ends without a traceback."""
    command = f"{sys.executable} -m callfuse replay {log} {options} | head -c 3"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=CLEAN | PLAIN, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == (begins, "")


@pytest.mark.parametrize("name", ["the file", "-"])
def test_a_bar_on_a_terminal_only(name: str, log: str) -> None:
    """Progress is on stderr where that is a terminal, however little there is to read, and leaves the table alone."""
    out, seen = on_terminal("replay", log if name == "the file" else name, content=Path(log).read_bytes())
    assert "replaying" in seen
    assert "2 runs" in seen
    assert ("100%" in seen) == (name == "the file")
    assert out.startswith("No recommendation")
    assert callfuse("replay", log).stderr == ""
