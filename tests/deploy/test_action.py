"""`deploy/action`: the action of GitHub runs an agent behind a guard, and hands on how that ended."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.testing import ScriptedVendor, looping_model, served
from tests.cli.processes import CLEAN, PLAIN
from tests.docs.commands import commands_in, wrong_in
from tests.docs.started import CODING_AGENT
from tests.project.sources import PROJECT

FOLDER = PROJECT / "deploy/action"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
SCRIPT = (FOLDER / "run.sh").read_text(encoding="utf-8")
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def test_its_parts_fit() -> None:
    """Inputs reach the script as variables, never as text of it; outputs are those of the step."""
    install, run = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert "${{" not in install["run"] + run["run"]
    used = {value.removeprefix("${{ inputs.").removesuffix(" }}") for value in run["env"].values()}
    assert used == ACTION["inputs"].keys()
    for name in run["env"].keys() - {"CALLFUSE_MODE"}:
        assert f"${{{name}" in SCRIPT or f"${name}" in SCRIPT
    for name, output in ACTION["outputs"].items():
        assert output["value"] == f"${{{{ steps.{run['id']}.outputs.{name} }}}}"
        assert f'echo "{name}=' in SCRIPT
    assert [name for name, value in ACTION["inputs"].items() if value.get("required")] == ["command"]
    assert all(one["description"] for one in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))


def test_the_command_exists() -> None:
    """With its options."""
    [line] = [line for line in SCRIPT.splitlines() if line.startswith("callfuse run ")]
    options = "--log x --config x --upstream x"
    assert all(f"({word}" in SCRIPT or f"+=({word}" in SCRIPT for word in options.split() if word.startswith("--"))
    command = line.replace('"${options[@]}"', options).partition(" 2>")[0]
    assert [wrong_in(one) for one in commands_in(command)] == [""]


def outcome(folder: Path, command: str, **env: str) -> tuple[int, dict[str, str], str, str]:
    """Run the script as a job does: its exit code, its outputs, its summary and what it printed."""
    program = folder / "callfuse"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m callfuse "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    files = {"GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary"}
    own = {name: str(path) for name, path in files.items()} | {"RUNNER_TEMP": str(folder), "COMMAND": command}
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", str(FOLDER / "run.sh")],
        env={**CLEAN, **PLAIN, "PATH": path, **own, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done.returncode, outputs, files["GITHUB_STEP_SUMMARY"].read_text(), done.stdout + done.stderr


@needs_bash
@pytest.mark.slow
@pytest.mark.parametrize(("fails", "code"), [("true", 3), ("false", 0)])
def test_a_block(fails: str, code: int, tmp_path: Path) -> None:
    """The step fails, unless it is told not to; the report is in the summary, and the log where the output says."""
    agent = tmp_path / "agent.py"
    agent.write_text(CODING_AGENT, encoding="utf-8")
    with served(ScriptedVendor(looping_model("Bash", {"command": "ls"}, stubborn=True))) as vendor:
        ended, outputs, summary, printed = outcome(
            tmp_path,
            f"{sys.executable} {agent}",
            OPENAI_BASE_URL=f"{vendor}/v1",
            FAIL_ON_BLOCK=fails,
            CALLFUSE_MODE="",
            CONFIG="",
        )
    assert (ended, outputs["exit-code"], outputs["blocked"]) == (code, "3", "true"), printed
    assert "callfuse: a block ended the run of 1 session" in summary
    assert "callfuse: a block ended the run of 1 session" in printed
    assert "[callfuse] Stopped a tool call loop" in printed
    assert "Tool call loop detected" in Path(outputs["log"]).read_text()


@needs_bash
@pytest.mark.slow
def test_a_command_that_fails(tmp_path: Path) -> None:
    """Its own exit code is that of the step, whatever the input says; quotes and pipes are the command's own."""
    ended, outputs, _, printed = outcome(tmp_path, "echo 'a  b' | cat && exit 7", FAIL_ON_BLOCK="false")
    assert (ended, outputs["exit-code"], outputs["blocked"]) == (7, "7", "false")
    assert "a  b" in printed


@needs_bash
@pytest.mark.slow
def test_its_settings(tmp_path: Path) -> None:
    """A file that is wrong is named, and the command does not run."""
    (tmp_path / "wrong.yaml").write_text("tool_call_loop: {mode: blok}\n", encoding="utf-8")
    ended, _, _, printed = outcome(tmp_path, "echo ran", CONFIG=str(tmp_path / "wrong.yaml"))
    assert ended == 2
    assert "tool_call_loop.mode = 'blok'" in printed
    assert "ran\n" not in printed
