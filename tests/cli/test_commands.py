"""The command line as it is typed: help, version, exit codes, and what stands on which stream."""

import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer.main

from callfuse.cli import listed
from callfuse.cli.app import app
from callfuse.config.serve import LOG_FORMATS, LOG_LEVELS, ServeSettings
from callfuse.errors import install_hint
from callfuse.observe.events import FEEDBACK
from tests.cli.processes import callfuse, callfuse_here


def test_help_names_the_commands() -> None:
    """`--help` says what there is and exits with 0."""
    shown = callfuse("--help")
    assert shown.returncode == 0
    assert all(word in shown.stdout for word in ("serve", "demo", "config", "--version", "tool-call loops"))


def test_help_of_serve_names_options_and_defaults() -> None:
    """Every option is there, with the words that it takes and the value that holds where nothing says otherwise."""
    text = " ".join(callfuse("serve", "--help").stdout.split())
    for option in ("--upstream", "--config", "--host", "--port", "--workers", "--log-level"):
        assert option in text
    defaults = [ServeSettings.model_fields[key].default for key in ("host", "port", "workers", "log_level")]
    words = [f"One of {', '.join(LOG_LEVELS)};", f"One of {', '.join(LOG_FORMATS)};", "CALLFUSE_CONFIG"]
    for said in (*(f"default: {default}." for default in defaults), *words):
        assert said in text
    assert "http://HOST:PORT/_callfuse/, with the token of CALLFUSE_ADMIN_TOKEN" in text


def test_help_of_feedback_names_its_kinds() -> None:
    """Those that the admin page takes."""
    assert f"One of {', '.join(FEEDBACK)}." in " ".join(callfuse("feedback", "--help").stdout.split())


def test_help_of_demo_names_its_options() -> None:
    """Asking for the demo's help runs no demo."""
    text = callfuse("demo", "--help").stdout
    assert "--stubborn" in text
    assert "--plain" in text


COMMANDS = [
    "",
    "serve",
    "ext-proc",
    "run",
    "doctor",
    "demo",
    "replay",
    "tune",
    "report",
    "feedback",
    "allow",
    "top",
    "explain",
    "config",
    "config check",
    "config init",
    "config schema",
    "config explain",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_h_is_help(command: str) -> None:
    """Every command knows both names, and shows the same."""
    short, long = callfuse(*command.split(), "-h"), callfuse(*command.split(), "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert f"Usage: {' '.join(['callfuse', *command.split()])} [OPTIONS]" in short.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_for_people(command: str) -> None:
    """No name of a Python type, and no range in signs, stands where the kind of a value does; it fits any terminal."""
    text = callfuse(*command.split(), "--help", COLUMNS="80").stdout
    assert not re.search(r"<\w+(\[\w+\])?>|x[<>]=|\[\[|\{\w+\.\.\.\}", text)
    assert max(map(len, text.splitlines())) <= 80


def test_every_command_is_looked_at() -> None:
    """The list of commands is the command line's."""
    root: Any = typer.main.get_command(app)
    found = [name for name in root.commands if name != "config"]
    assert sorted(COMMANDS) == sorted(
        ["", "config", *found, *(f"config {name}" for name in root.commands["config"].commands)]
    )


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            "callfuse ",
            [
                "serve",
                "ext-proc",
                "run",
                "doctor",
                "demo",
                "replay",
                "tune",
                "report",
                "feedback",
                "allow",
                "top",
                "explain",
                "config",
            ],
        ),
        ("callfuse config ex", ["explain"]),
        ("callfuse serve --lo", ["--log-level", "--log-format"]),
        ("callfuse serve --log-level w", ["warning"]),
        ("callfuse serve --log-format j", ["json"]),
        ("callfuse replay --rule no_", ["no_news", "no_effect", "no_difference"]),
        ("callfuse explain same", ["same_error"]),
    ],
)
def test_a_shell_completes(typed: str, expected: list[str]) -> None:
    """Commands, options and the words of a choice, as what `--install-completion` installs asks for them."""
    at = str(len(typed.split(" ")) - 1)
    shown = callfuse(_CALLFUSE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=at)
    assert shown.stdout.split() == expected


def test_version_is_the_package_s() -> None:
    """`--version` prints the name and the version on stdout."""
    from callfuse import __version__

    shown = callfuse("--version")
    assert (shown.returncode, shown.stdout) == (0, f"callfuse {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "env", "expected"),
    [
        ([], {}, ["serve.upstream = null (not given): give --upstream URL, the environment variable"]),
        (
            ["--upstream", "api.openai.com"],
            {},
            ["serve.upstream = 'api.openai.com' (option --upstream): use http:// or"],
        ),
        (["--port", "70000"], {}, ["serve.port = '70000' (option --port): use a whole number from 0 to 65535"]),
        (["--log-level", "loud"], {}, ["serve.log_level = 'loud' (option --log-level): use one of debug, info, "]),
        ([], {"TOOL_LOOP_MAX_REPEATS": "1"}, ["tool_call_loop.max_repeats = '1' (environment variable TOOL_LOOP_MAX_"]),
        (
            [],
            {"TOOL_LOOP_MODE": "blok"},
            ["tool_call_loop.mode = 'blok' (environment variable TOOL_LOOP_MODE): use one"],
        ),
        (
            [],
            {"CALLFUSE_HEARTBEAT": "1"},
            ["CALLFUSE_HEARTBEAT: unknown environment variable; did you mean CALLFUSE_HE"],
        ),
        (["--config", "missing.yaml"], {}, ["missing.yaml: cannot read this file: No such file or directory"]),
        (
            ["--upstream", "https://u:s3cret@h:x", "--workers", "0"],
            {"CALLFUSE_ERROR_MESSAGES_BLOCK": "{nope}"},
            [
                "serve.upstream = 'https://***@h:x'",
                "serve.workers = '0'",
                "tool_call_loop.error_messages.block = '{nope}'",
            ],
        ),
    ],
)
def test_bad_settings_exit_with_2(arguments: list[str], env: dict[str, str], expected: list[str]) -> None:
    """Wrong settings are named on stderr, a line each, without a traceback or a credential."""
    ended = callfuse_here("serve", *arguments, **env)
    first, *lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert first == "callfuse: cannot start with these settings:"
    assert len(lines) == len(expected)
    assert all(any(line.startswith(f"  {part}") for line in lines) for part in expected)
    assert "s3cret" not in ended.stderr


def test_a_bad_file_exits_with_2(tmp_path: Path) -> None:
    """What YAML cannot read is named with its place, whichever way the file is named."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop:\n  mode: warn: block\n")
    for more, env in ((("--config", str(file)), {}), ((), {"CALLFUSE_CONFIG": str(file)})):
        ended = callfuse_here("serve", *more, **env)
        assert ended.returncode == 2
        assert f"  {file}, line 2, column 13: this is not valid YAML" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [["serve", "--nope"], ["srve"]])
def test_what_is_no_command_exits_with_2(arguments: list[str]) -> None:
    """Unknown commands and options are usage errors."""
    ended = callfuse_here(*arguments)
    assert ended.returncode == 2
    assert arguments[-1] in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("uvicorn", "serve --upstream http://127.0.0.1:9", "serve"),
        ("starlette", "serve --upstream http://127.0.0.1:9", "serve"),
        ("yarl", "serve --upstream http://127.0.0.1:9", "serve"),
        ("rich", "top --once", "serve"),
        ("openai", "demo", "demo"),
        ("typer", "replay log.jsonl", "serve"),
        ("typer", "demo --help", "demo"),
    ],
)
def test_a_missing_extra_is_named(package: str, arguments: str, extra: str) -> None:
    """Without the packages of the extra there is one line that says how to get them, and exit code 2."""
    ended = without(package, *arguments.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    command = arguments.partition(" ")[0]
    assert ended.stderr == f"callfuse {command} needs the extra {extra} ({package} is missing): {install_hint(extra)}\n"
    assert f'pip install "callfuse[{extra}]", or in a checkout of callfuse: pip install ".[{extra}]"' in ended.stderr


def without(package: str, *arguments: str) -> CompletedProcess[str]:
    """What the command line answers where this package is not installed."""
    missing = f"import importlib.util as u, sys; sys.modules[{package!r}] = None; found = u.find_spec"
    missing += f"; u.find_spec = lambda name, *rest: None if name == {package!r} else found(name, *rest)"
    return callfuse(*arguments, code=f"{missing}\nfrom callfuse.__main__ import main\nmain()")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["--version"]])
def test_help_and_version_need_no_extra(arguments: list[str]) -> None:
    """They are printed with status 0, with a line a command, and what to install."""
    ended = without("typer", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    if arguments == ["--version"]:
        assert ended.stdout == callfuse("--version").stdout
        return
    assert set(re.findall(r"^  ([\w-]+) ", ended.stdout, re.MULTILINE)) >= set(listed.COMMANDS)
    assert install_hint("serve") in ended.stdout
    assert install_hint("demo") in ended.stdout
    assert max(map(len, ended.stdout.splitlines()[:-2])) <= 80


@pytest.mark.parametrize(("argument", "what"), [("srve", "command 'srve'"), ("--nope", "option: --nope")])
def test_what_is_no_command_is_told_without_the_extra(argument: str, what: str) -> None:
    """It is not said to need one."""
    ended = without("typer", argument)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"callfuse: there is no such {what}; callfuse --help lists the commands\n"


def test_a_plain_installation_lists_the_same_commands() -> None:
    """In the same order, with the same words, as the command line itself."""
    root: Any = typer.main.get_command(app)
    texts = {name: " ".join(command.help.partition("\n\n")[0].split()) for name, command in root.commands.items()}
    assert list(texts.items()) == list(listed.COMMANDS.items())


def test_no_arguments_are_help() -> None:
    """And no error."""
    ended = callfuse()
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", callfuse("--help").stdout)


def test_the_package_needs_no_extra() -> None:
    """Importing the configuration loads neither typer nor an HTTP client nor a server."""
    code = (
        "import sys, callfuse.config\nprint([name for name in ('typer', 'aiohttp', 'uvicorn') if name in sys.modules])"
    )
    assert callfuse(code=code).stdout == "[]\n"
