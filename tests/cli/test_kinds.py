"""`callfuse explain` prints the page of a kind, and lists all kinds with whether they are on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from callfuse.cli.app import app
from callfuse.cli.kinds import WIDTH
from callfuse.detect.registry import KINDS
from callfuse.observe.pages import DOCUMENTATION, page_of
from callfuse.policy.settings import LoopSettings
from callfuse.reference.kind_pages import kinds_that_are_on, page_text, summary
from tests.project.sources import PROJECT, document, rows
from tests.project.test_building import METADATA

OFF = {"no_effect", "similar", "stagnation", "error_rate", "truncated", "monologue", "budget"}


def explain(*arguments: str, code: int = 0) -> str:
    """What the command prints; problems if it fails."""
    done = CliRunner().invoke(app, ["explain", *arguments])
    assert done.exit_code == code, done.output
    return done.stderr if code else done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_printed(kind: str) -> None:
    """Word for word, except for its links, which lead somewhere from a terminal."""
    printed, page = explain(kind), document(f"docs/kinds/{kind}.md")
    assert re.sub(r"\]\([^)]*\)", "", printed) == re.sub(r"\]\([^)]*\)", "", page)
    links = re.findall(r"\]\(([^)]*)\)", printed)
    assert links
    for link in links:
        path = link.removeprefix(DOCUMENTATION).partition("#")[0]
        assert link.startswith(f"{DOCUMENTATION}/")
        assert (PROJECT / "docs" / path.removeprefix("/")).is_file(), link


def test_kinds_are_listed() -> None:
    """Each with the first sentence of its page and whether it is on by default."""
    text = explain()
    assert max(map(len, text.splitlines())) <= WIDTH
    listed = dict(re.findall(r"^(\w+) +(on|off) ", text, re.MULTILINE))
    assert [*listed] == [*KINDS]
    assert {kind for kind, state in listed.items() if state == "off"} == OFF
    assert " ".join(summary("repeat").split()) in text
    assert listed == {
        row[0].split("`")[1]: row[4].partition(",")[0] for row in rows(document("docs/detection.md"), "The kinds")
    }


def test_settings_decide_what_is_on(tmp_path: Path) -> None:
    """Those of the file, here for all tools and for one."""
    file = tmp_path / "settings.yaml"
    file.write_text(
        "tool_call_loop: {max_calls: 9, detectors: {cycle: false}, per_tool: {a: {detectors: {no_effect: 3}}}}"
    )
    listed = dict(re.findall(r"^(\w+) +(on|off) ", explain("--config", str(file)), re.MULTILINE))
    assert (listed["budget"], listed["cycle"], listed["no_effect"], listed["repeat"]) == ("on", "off", "on", "on")
    assert not any(kinds_that_are_on(LoopSettings(enabled=False)).values())


def test_a_typing_error_is_mended() -> None:
    """The message names the kind that was meant, or all of them; control characters are shown as such."""
    assert explain("repet", code=2) == "callfuse explain: there is no kind 'repet'; did you mean repeat?\n"
    assert "use repeat, repeat_changing" in explain("xyz\x1b", code=2)
    assert "\x1b" not in explain("xyz\x1b", code=2)


def test_a_wrong_file_is_told(tmp_path: Path) -> None:
    """The list needs the settings."""
    file = tmp_path / "settings.yaml"
    file.write_text("tool_call_loop: {max_repeats: x}")
    assert "tool_call_loop.max_repeats" in explain("--config", str(file), code=2)


@pytest.mark.slow
def test_a_terminal_shows_it_set(tmp_path: Path) -> None:
    """Without the marks of Markdown."""
    program = "import sys; sys.stdout.isatty = lambda: True; from callfuse.cli.kinds import run_explain"
    env = os.environ | {"COLUMNS": "80", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; run_explain('repeat', None)"],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=True,
    )
    assert "What it finds" in done.stdout
    assert "## " not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_addresses_are_the_documentation_s() -> None:
    """That of the package's metadata, and the path of the page below it."""
    assert METADATA["project"]["urls"]["Documentation"] == DOCUMENTATION
    assert page_of("repeat") == f"{DOCUMENTATION}/kinds/repeat.md"
    assert page_text("repeat").startswith("# `repeat`\n")
