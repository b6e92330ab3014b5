"""`callfuse config`: what is printed where, and the exit codes."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from callfuse.cli.config import app
from callfuse.reference.schema import json_schema
from callfuse.reference.template import template
from tests.cli.processes import callfuse


def test_a_right_file_is_told(tmp_path: Path) -> None:
    """What it sets, with lines and without credentials; the environment stays out of it."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "tool_call_loop:\n  mode: chance\n  commands: off\n  per_tool:\n    a.b: {detectors: {cycle: {laps: 5}}}\n"
        'serve: {upstream: "https://me:s3cret@h/v1", log_level: DEBUG}\n'
    )
    shown = callfuse("config", "check", str(file), TOOL_LOOP_MODE="blok", CALLFUSE_CONFIG="missing.yaml")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.replace(f"{tmp_path}/", "").splitlines() == [
        "tool_call_loop.mode = chance_then_block (c.yaml, line 2)",
        "tool_call_loop.commands.enabled = false (c.yaml, line 3)",
        "tool_call_loop.per_tool.a.b.detectors.cycle = 5 (c.yaml, line 5)",
        "serve.upstream = https://***@h/v1 (c.yaml, line 6)",
        "serve.log_level = debug (c.yaml, line 6)",
        "c.yaml is valid: it sets 5 keys",
    ]


@pytest.mark.parametrize("suffix", ["yaml", "toml"])
def test_a_wrong_file_is_told_with_all_that_is_wrong(suffix: str, tmp_path: Path) -> None:
    """One line a problem on standard error, and exit code 2."""
    file = tmp_path / f"c.{suffix}"
    file.write_text(
        "[tool_call_loop]\nmode = 'blok'\nmax_repeat = 3\n[serve]\nport = -1\n"
        if suffix == "toml"
        else "tool_call_loop:\n  mode: blok\n  max_repeat: 3\nserve:\n  port: -1\n"
    )
    shown = callfuse("config", "check", str(file))
    assert (shown.returncode, shown.stdout) == (2, "")
    name = f"c.{suffix}"
    lines = shown.stderr.replace(f"{tmp_path}/", "").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(
        f"tool_call_loop.max_repeat ({name}, line 3): unknown key; did you mean tool_call_loop.m"
    )
    assert lines[1].startswith(f"tool_call_loop.mode = 'blok' ({name}, line 2): use one of observe, ")
    assert lines[2] == f"serve.port = -1 ({name}, line 5): use a whole number from 0 to 65535"


def test_several_files_are_checked(tmp_path: Path) -> None:
    """Each, also behind one that is wrong: pre-commit names all that have changed at once."""
    for name, text in {"a": "mode: warn", "b": "mode: blok", "c": "window: 20", "d": "port: 1"}.items():
        (tmp_path / f"{name}.yaml").write_text(f"tool_call_loop: {{{text}}}\n")
    shown = CliRunner().invoke(app, ["check", *(str(tmp_path / f"{name}.yaml") for name in "abcd")])
    assert shown.exit_code == 2
    assert [line.partition(" is valid")[0] for line in shown.stdout.splitlines() if "valid" in line] == [
        str(tmp_path / "a.yaml"),
        str(tmp_path / "c.yaml"),
    ]
    assert [line.partition(" (")[0] for line in shown.stderr.splitlines()] == [
        "tool_call_loop.mode = 'blok'",
        "tool_call_loop.port",
    ]


def test_a_new_file(tmp_path: Path) -> None:
    """It is written once, is right, and is never written over; without a name, or as -, it goes to standard output."""
    for suffix in ("yaml", "toml"):
        file = tmp_path / f"callfuse.{suffix}"
        assert callfuse("config", "init", str(file)).returncode == 0
        assert file.read_text(encoding="utf-8") == template(toml=suffix == "toml")
        assert callfuse("config", "check", str(file)).stdout == f"{file} is valid: it sets 0 keys\n"
        again = callfuse("config", "init", str(file))
        assert (again.returncode, again.stderr) == (
            2,
            f"cannot write {file}: File exists; use the name of a new file\n",
        )
    for arguments in ([], ["-"]):
        written = CliRunner().invoke(app, ["init", *arguments])
        assert (written.exit_code, written.stdout) == (0, template())
    assert not Path("-").exists()


def test_the_schema() -> None:
    """As JSON on standard output."""
    assert json.loads(callfuse("config", "schema").stdout) == json_schema()


def test_what_holds_and_why(tmp_path: Path) -> None:
    """For people a line a setting, for programs JSON; the file is the given one or that of the environment."""
    file = tmp_path / "c.yaml"
    file.write_text("tool_call_loop:\n  models:\n    'openai:gpt-4o': {mode: block}\n")
    asked = ("config", "explain", "--model", "openai:gpt-4o", "--tool", "search_web")
    shown = callfuse(*asked, "--config", str(file), TOOL_LOOP_MAX_REPEATS="7")
    rows = {row.split()[0]: row.split(None, 2)[1:] for row in re.split(r"\n(?! )", shown.stdout) if row}
    assert [" ".join(part.split()) for part in rows["tool_call_loop.mode"]] == [
        "block",
        f"models openai:gpt-4o: {file}, line 3",
    ]
    assert rows["tool_call_loop.max_repeats"] == ["7", "server: environment variable TOOL_LOOP_MAX_REPEATS"]
    assert rows["tool_call_loop.window"] == ["10", "default"]
    told = json.loads(callfuse(*asked, "--json", CALLFUSE_CONFIG=str(file)).stdout)
    assert {"key": "tool_call_loop.mode", "value": "block", "tier": "models openai:gpt-4o",
            "source": f"{file}, line 3"} in told  # fmt: skip
    assert {row["key"] for row in told} == set(rows)


@pytest.mark.parametrize("tool", [["--tool", "search_web"], []])
def test_the_table_fits_100_columns(tool: list[str]) -> None:
    """What has no room beside its key follows below it, and nothing of it is lost."""
    globs = ",".join(f"a_tool_of_some_length_{at}_*" for at in range(9))
    asked = ("config", "explain", *tool)
    shown = callfuse(*asked, CALLFUSE_POLLERS=globs, CALLFUSE_ERROR_MESSAGES_BLOCK="b" * 40, TOOL_LOOP_MAX_REPEATS="7")
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert all(f'"{glob}"' in shown.stdout for glob in globs.split(","))
    [at] = [at for at, line in enumerate(lines) if line.startswith("tool_call_loop.max_repeats ")]
    assert lines[at].split()[1:] == ["7"]
    assert lines[at + 1] == "    server: environment variable TOOL_LOOP_MAX_REPEATS"
    assert any(line.split() == ["tool_call_loop.window", "10", "default"] for line in lines)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["explain", "--model", "gpt-4o"],
            "--model 'gpt-4o': there is no such backend; use backend and model, as in openai:gpt-4o\n",
        ),
        (
            ["explain", "--model", "opnai:gpt-4o"],
            "--model 'opnai:gpt-4o': there is no such backend; did you mean openai:gpt-4o?\n",
        ),
        (["explain", "--config", "missing.yaml"], "missing.yaml: cannot read this file: No such file or directory\n"),
        (["check", "missing.yaml"], "missing.yaml: cannot read this file: No such file or directory\n"),
        (["init", "no/such/folder.yaml"], "cannot write no/such/folder.yaml: No such file or directory; use the name"),
    ],
)
def test_what_cannot_be_done(arguments: list[str], expected: str) -> None:
    """Exit code 2, and why."""
    ended = callfuse("config", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(expected)
