"""The README is true: its commands exist, its settings hold, its code runs, its transcript is the demo's."""

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml

from callfuse import CallFuseMiddleware
from callfuse.cli.app import app as command_line
from callfuse.config import Config, load_config
from callfuse.config.environment import CONFIG_FILE, variables
from callfuse.policy.settings import MODES, Rung
from tests.project.sources import PROJECT, blocks, document, quoted, rows
from tests.project.test_building import targets

README = document("README.md")
FREE_VALUES = {("serve", "upstream"), *(("tool_call_loop", key) for key in ("error_messages", "per_tool", "models"))}
"""Settings that the README shows with an example, not with their defaults."""


def commands(page: str) -> list[str]:
    """The commands of the page, without their comments."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    lines += [text for text in quoted(page) if text.startswith(("make ", "callfuse ", "vllm ", "python "))]
    return [line.partition("#")[0].strip() for line in lines if line.partition("#")[0].strip()]


def wrong_command(command: str) -> str:
    """What is wrong with a command: an unknown target, subcommand, option or module; nothing if it could be run."""
    program, *arguments = command.split()
    match program:
        case "make":
            wrong = [name for name in arguments if name not in targets(document("Makefile"))]
        case "callfuse":
            known: Any = typer.main.get_command(command_line)
            for name in arguments:
                known = known.commands.get(name) if hasattr(known, "commands") and name[0] != "-" else known
            options = {option for param in known.params for option in param.opts} if known else set()
            wrong = [name for name in arguments if name[0] == "-" and name not in {"-h", "--help", *options}]
            wrong += [] if known else [arguments[0]]
        case "python":
            wrong = [] if arguments[0] == "-m" and find_spec(arguments[1]) else arguments
        case "vllm":
            path = arguments[arguments.index("--middleware") + 1]
            module, _, name = path.rpartition(".")
            wrong = [] if inspect.isclass(getattr(import_module(module), name, None)) else [path]
        case _:
            wrong = [program]
    return " ".join(wrong)


def wrong_settings(block: str) -> list[str]:
    """The keys of a settings block whose value is not the default, or whose comment names a variable not theirs."""
    given: dict[str, dict[str, Any]] = yaml.safe_load(block)
    config = load_config(given, env={}).model_dump()
    default = Config().model_dump()
    wrong = []
    for top, keys in given.items():
        for key in keys:
            if (top, key) not in FREE_VALUES and config[top][key] != default[top][key]:
                wrong.append(key)
            names = re.findall(rf"^  {key}:.*# ((?:CALLFUSE|TOOL_LOOP)_\w+)", block, re.MULTILINE)
            if any(variables().get(name, ())[:2] != (top, key) for name in names):
                wrong.append(key)
    return wrong


@pytest.mark.parametrize("command", commands(README))
def test_commands_exist(command: str) -> None:
    """Whatever the page says to type is there."""
    assert wrong_command(command) == ""


@pytest.mark.parametrize(
    "command",
    [
        "make lunch",
        "callfuse watch",
        "callfuse --install-everything",
        "callfuse -x",
        "callfuse serve --upstreams URL",
        "python -m benchmarks.nothing",
        "vllm serve MODEL --middleware callfuse.Fuse",
        "npm start",
    ],
)
def test_a_command_that_is_not_there_is_found(command: str) -> None:
    """Unknown targets, subcommands, options, modules and programs are told."""
    assert wrong_command(command) != ""


def test_the_page_has_commands_of_every_kind() -> None:
    """The commands are read from the page, not missed."""
    assert {"make demo", "make test"} <= set(commands(README))
    assert {command.split()[0] for command in commands(README)} == {"make", "callfuse", "vllm", "python"}


def test_settings_are_the_defaults() -> None:
    """The block can be used as it stands, changes nothing but its examples, and names the right variables."""
    [block] = blocks(README, "yaml")
    assert wrong_settings(block) == []


@pytest.mark.parametrize(
    "line",
    ["max_repeats: 4", "window: 10  # TOOL_LOOP_WINDOW", "window: 10  # CALLFUSE_MAX_ROUNDS"],
)
def test_a_wrong_setting_is_found(line: str) -> None:
    """Another value than the default, and a variable that nobody reads or that sets another key, are told."""
    assert wrong_settings(f"tool_call_loop:\n  {line}\n") != []


def test_variables_exist() -> None:
    """Every environment variable that the page writes out is read."""
    named = set(re.findall(r"\b(?:CALLFUSE|TOOL_LOOP)_[A-Z_]+\b", README))
    assert CONFIG_FILE in named
    assert named <= {CONFIG_FILE, *variables()}


def test_modes_are_the_settings() -> None:
    """The table has the mode's own ladder for each name, and every mode apart from aliases."""
    table = {
        quoted(mode)[0]: re.findall(r"\*\*(\w+)\*\*", first + last)
        for mode, first, last in rows(README, "What happens")
    }
    named = {mode: ladder for mode, ladder in table.items() if mode in MODES}
    assert set(map(tuple, MODES.values())) == {MODES[mode] for mode in named}
    for mode, ladder in named.items():
        assert list(dict.fromkeys(ladder)) == list(dict.fromkeys(map(str, MODES[mode])))


def test_rungs_are_explained() -> None:
    """Each rung has its line."""
    assert re.findall(r"^- \*\*(\w+)\*\*", README, re.MULTILINE) == list(map(str, Rung))


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_code_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples run as they stand, whatever the host: here one that only knows how to add a middleware."""
    hosts: dict[str, dict[str, Any]] = {
        "fastapi": {"FastAPI": _Host},
        "litellm": {},
        "litellm.proxy": {},
        "litellm.proxy.proxy_server": {"app": _Host()},
    }
    for name, members in hosts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    found: dict[str, Any] = {}
    exec(code, found)
    app = found["app"]
    fuse = app.middleware if isinstance(app, _Host) else app
    assert isinstance(fuse, CallFuseMiddleware)


class _Host:
    """An app with a list of middleware, as frameworks have it."""

    def __init__(self) -> None:
        self.middleware: object = None

    def add_middleware(self, middleware: type, **options: Any) -> None:
        """Put it around the app, as Starlette does."""
        self.middleware = middleware(self._answer, **options)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Never called."""


@pytest.mark.slow
def test_the_transcript_is_the_demo_s() -> None:
    """Every line of it is a line that the demo writes."""
    [transcript] = blocks(README, "text")
    program = "from callfuse.cli.demo import run_demo; raise SystemExit(run_demo(plain=True, chunk_delay_s=0))"
    env = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    shown = [line for line in transcript.splitlines() if line not in ("", "...")]
    assert len(shown) > 10
    assert [line for line in shown if line not in done.stdout.splitlines()] == []


def test_paths_exist() -> None:
    """The files that the page leads to are there."""
    paths = [text for text in quoted(README) if re.fullmatch(r"[\w./-]+\.(py|md)|[\w-]+/", text)]
    assert "docs/architecture.md" in paths
    assert [path for path in paths if not (PROJECT / path).exists()] == []


def test_it_is_short() -> None:
    """Nobody reads more."""
    assert len(README.splitlines()) <= 165
