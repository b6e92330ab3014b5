"""`callfuse report` reads the log of a server that observes, and says whether to turn it on."""

import gzip
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from callfuse.cli.app import app
from callfuse.testing import served as serving_app
from tests.cli.test_metrics import looping
from tests.cli.test_serve import serving
from tests.offline.test_observed import exchange, finding
from tests.project.sources import document, quoted, rows
from tests.support.kits import KITS
from tests.support.meeting import reply
from tests.support.plain import again
from tests.support.scripted import play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


@pytest.fixture
def upstream() -> Iterator[str]:
    """A vendor whose model calls the same again."""
    with serving_app(play(reply(CHAT, again(), stream=False))) as url:
        yield url


def test_the_log_of_a_server_that_observes(upstream: str, tmp_path: Path) -> None:
    """Each session has a loop that was let through; each finding says what would have been done."""
    with serving("--upstream", upstream, "--log-format", "json", TOOL_LOOP_MODE="observe") as served:
        assert [looping(served, f"session {n}") for n in range(3)] == [200] * 3
        _, printed = served.end(signal.SIGTERM)
    assert printed.count('"callfuse.would":"steer"') == 3
    log = tmp_path / "log.jsonl"
    log.write_text(printed)
    ran = run_report(str(log))
    assert ran.exit_code == 0
    first, *rest = ran.stdout.splitlines()
    assert first == "No recommendation: 3 exchanges of 3 sessions are too few; observe until there are 200 of 20."
    assert "  loops that would have been acted on: 3 (3 by steer, at first)" in rest
    assert [line.split() for line in rest if line.startswith("search ")] == [["search", "repeat", "3", "3", "3"]]


def run_report(*arguments: str) -> Result:
    """What the command prints."""
    return CliRunner().invoke(app, ["report", *arguments])


def test_a_packed_log_and_ratings(tmp_path: Path) -> None:
    """Ratings come from the log, or from the file that the admin page writes; the last one counts."""
    lines = [exchange(f"s{n % 50}") for n in range(300)] + [finding(4, id_="a")]
    log, ratings = tmp_path / "log.jsonl.gz", tmp_path / "feedback.jsonl"
    log.write_bytes(gzip.compress(b"\n".join(lines)))
    ratings.write_text(json.dumps({"finding": "a", "feedback": "false_positive"}) + "\nno json\n[]\n")
    ran = run_report(str(log), "--feedback", str(ratings))
    assert ran.stdout.splitlines()[:2] == [
        "Change this first, because people rated 1 of 1 findings as no loop:",
        "  per_tool, search: max_repeats 3 -> 5, for 1 false positive",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"INFO callfuse: text\n", "no line of an exchange in"),
        (None, "No such file"),
        (b"\x1f\x8b\x08broken", "log"),
    ],
)
def test_what_is_no_log(tmp_path: Path, content: bytes | None, says: str) -> None:
    """One line says why, and what to do."""
    log = tmp_path / "log"
    if content is not None:
        log.write_bytes(content)
    ran = run_report(str(log))
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("callfuse report: ")
    assert says in ran.stderr


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """They are a model's."""
    log = tmp_path / "log"
    log.write_bytes(b"\n".join([exchange(), finding(tool="a\x1b[2J\nb")]))
    out = run_report(str(log)).stdout
    assert "\x1b" not in out
    assert os.linesep + "b" not in out


def test_as_json(tmp_path: Path) -> None:
    """One object, whose keys the docs describe; problems go to stderr as before."""
    log = tmp_path / "log"
    log.write_bytes(b"\n".join([exchange(), finding(tool="a\x1b[2J\nb")]))
    ran = run_report(str(log), "--json")
    assert ran.exit_code == 0
    assert "\x1b" not in ran.stdout
    told = json.loads(ran.stdout)
    assert (told["recommendation"], told["loops"]) == ("observe", 1)
    assert told["tools"][0]["tool"] == "a\x1b[2J\nb"
    table = rows(document("docs/observing.md"), "What observing has shown")
    keys = {key for row in table for key in quoted(row[0])}
    assert set(told) | {f"tools[].{key}" for key in told["tools"][0]} == keys
    wrong = run_report(str(tmp_path / "none"), "--json")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
