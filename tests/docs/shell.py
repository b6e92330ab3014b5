"""Runs the commands of a block, line by line, in a folder of its own.

What ends by itself runs; a server is started, asked, and stopped; what installs is only read. Nothing runs of a block
that is for a machine (with `docker`, `systemctl`, ...). `PROGRAMS` has a line for each program that a page may name.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from callfuse.cli.app import app as command_line
from tests.docs import given
from tests.docs.blocks import Block, blocks_of, is_block
from tests.docs.commands import Command, commands_in, lines_in, wrong_in
from tests.docs.hosted import hosts_type
from tests.docs.servers import Running, started
from tests.docs.snippets import can_run
from tests.docs.world import TIMEOUT_S, World, run_agent
from tests.hosts import client
from tests.hosts.mounting import free_port
from tests.project.sources import PROJECT

FOREVER = 28
"""curl's status where its time was up, as with a feed."""
_PORT = re.compile(r"(?<=--port )\d+")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:ya?ml|json|toml|py|service|conf|env)")


@dataclass
class Shell:
    """Where the commands of one block run. `printed` collects what they have written to stdout and stderr."""

    block: Block
    world: World
    folder: Path
    env: dict[str, str]
    printed: list[str] = field(default_factory=list)

    def check(self, line: str, status: int, said: str, expected: int | None = None) -> None:
        """Fail where a command has not ended as it is to: with 0, if no table says otherwise."""
        self.printed.append(said)
        if expected is None:
            expected = next((code for text, code in given.STATUS.items() if text in line), 0)
        assert status == expected, f"{line}: ended with {status}\n{said}"


def run(block: Block, world: World, folder: Path, **env: str) -> str:
    """Run all commands of a block; returns what they have printed."""
    text = world.put(block.text)
    commands = commands_in(text)
    if any(command.name in MACHINES for command in commands):
        for command in commands:
            read(command, block)
        return ""
    for command in commands:
        assert command.name in {"", *PROGRAMS}, f"nobody runs {command.name}: add it to `PROGRAMS`"
    make_files(text, block, world, folder)
    shell = Shell(block, world, folder, {**world.environment(folder), **env})
    if "$?" in text:
        _through_sh(text, shell, expected=0)
    else:
        for line in lines_in(text):
            run_line(line, shell)
    return "".join(shell.printed)


def run_line(line: str, shell: Shell) -> None:
    """Run one line: by what its program needs, or if there is more than a command in it, in a real shell."""
    first, *more = commands_in(line)
    if more or not first.is_plain:
        _through_sh(line, shell)
    elif first.words:
        PROGRAMS[first.name](first, shell)
    else:
        shell.env.update(first.variables)


def read(command: Command, block: Block) -> None:
    """What can be told of a command without its machine: the files of the project that it names are there, and those of
    its words that are callfuse's or an installer's are right."""
    known = {one.file for one in blocks_of(block.page)} | set(given.FILES)
    for word in command.words[1:]:
        is_ours = word.partition("/")[0] in ROOMS and "/" in word
        if is_ours or (_FILE.fullmatch(word) and "/" not in word):
            assert word in known or (PROJECT / word).exists(), f"{command.line}: {word} is not there"
    if command.name in ("callfuse", "pip", "make"):
        own = Command(command.line, command.variables, (command.name, *command.words[1:]))
        assert wrong_in(own) == ""


ROOMS = frozenset({"deploy", "docs", "examples", "src", "tests"})


def make_files(text: str, block: Block, world: World, folder: Path) -> None:
    """Write the files that commands read: those that a reader has, and those that stand on the page as blocks."""
    for name, make in given.FILES.items():
        pattern = re.escape(name.replace("one", "*"))
        is_written = re.search(rf"(?:init|--write|>) {pattern}", text)
        if re.search(rf"(?<![\w./]){pattern}(?![\w.])", text) and not is_written:
            _write(folder / name, make())
    for one in blocks_of(block.page):
        saved = [name for (page, start), name in given.SAVED.items() if is_block(one, page, start)]
        if one.file or saved:
            _write(folder / (one.file or saved[0]), world.put(one.text).encode())


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _through_sh(text: str, shell: Shell, expected: int | None = None) -> None:
    """Run lines in a real shell, in which nothing outside of the folder is written."""
    assert not re.search(r">\s*[/~]", text), text
    shell.env |= {name: f"{shell.world.vendor}{path}" for name, path in given.VENDORS.items()}
    done = subprocess.run(
        ["sh", "-c", text],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    shell.check(text, done.returncode, done.stdout + done.stderr, expected)


def _as_process(command: Command, shell: Shell) -> None:
    _through_sh(command.line, shell)


def _callfuse(command: Command, shell: Shell) -> None:
    """A subcommand: one that serves is started and asked; one that starts programs or draws runs as a process; all
    others run here."""
    assert wrong_in(command) == ""
    arguments = [*command.words[1:]]
    if arguments[:1] == ["serve"] and "--help" not in arguments:
        _serve(command, shell)
    elif arguments[:1] in (["run"], ["demo"]):
        _as_process(command, shell)
    else:
        port = shell.world.guard.rpartition(":")[2]
        env = {"CALLFUSE_SERVE_PORT": port, **shell.env, **command.variables}
        ended = in_process(arguments, env, shell.folder)
        shell.check(command.line, ended.exit_code, ended.output)


def in_process(arguments: list[str], env: Mapping[str, str], folder: Path) -> Result:
    """`callfuse` with these arguments, in this process: starting one takes longer than most commands."""
    words = [name for word in arguments for name in (_matching(word, folder) if "*" in word else [word])]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(command_line, words, prog_name="callfuse", env=dict(env), catch_exceptions=False)


def _matching(pattern: str, folder: Path) -> list[str]:
    """The files that a pattern names, or the pattern, as in a shell."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern)) or [pattern]


def _serve(command: Command, shell: Shell) -> None:
    """Start `callfuse serve`, ask whether it is ready, and for a loop; stop it."""
    with _start(command, shell) as server:
        ready = httpx.get(f"{server.url}/_callfuse/ready", timeout=TIMEOUT_S, trust_env=False)
        assert ready.status_code == 200, ready.text
        if "mode=chance_then_block, max_repeats=3" in server.said:
            assert run_agent(server.url, "stubborn") == 2
        shell.printed.append(server.said)


def _start(command: Command, shell: Shell) -> AbstractContextManager[Running]:
    """A server that a line starts, on a free port."""
    line = _PORT.sub(str(free_port()), command.line)
    env = {**shell.env, "CALLFUSE_SERVE_PORT": "0"} if "--port" not in line else shell.env
    return started(line, env, shell.folder)


def _uvicorn(command: Command, shell: Shell) -> None:
    """Start a server with an app of the page, and ask it for a loop, where its app can be imported here."""
    file = f"{command.words[1].partition(':')[0].replace('.', '/')}.py"
    files = [one for one in blocks_of(shell.block.page) if one.file == file]
    if files and can_run(files[0], shell.world, shell.folder):
        with _start(command, shell) as server:
            assert run_agent(server.url, "stubborn", tool=client.TOOL) == 2
    else:
        _hosted(command, shell)


def _curl(command: Command, shell: Shell) -> None:
    """Ask the running guard. A feed is read until the time is up."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if is_feed := "-N" in command.words:
        (shell.folder / ".curlrc").write_text(f"{given.CURL}max-time = 2\n", encoding="utf-8")
    _through_sh(command.line, shell, FOREVER if is_feed else 0)


def _python(command: Command, shell: Shell) -> None:
    """A file of the page runs; a program of the project is only asked for its options."""
    match command.words:
        case [_, "-m", "callfuse", *arguments]:
            _callfuse(Command(command.line, command.variables, ("callfuse", *arguments)), shell)
        case [_, file, *_] if (shell.folder / file).exists():
            _as_process(command, shell)
        case _ if not hosts_type(command.line):
            assert wrong_in(command) == ""


def _read(command: Command, shell: Shell) -> None:
    """Only whether it could run."""
    assert wrong_in(command) == ""


def _enter(command: Command, shell: Shell) -> None:
    """Enter a virtual environment: the tests have one."""
    assert command.words[1].endswith("/bin/activate"), command.line


def _uvx(command: Command, shell: Shell) -> None:
    """What it installs is read, and what that starts runs."""
    assert wrong_in(command) == ""
    words = [*command.words[1:]]
    if words[:1] == ["--from"]:
        words = words[2:]
    if words[0].partition("[")[0] == "callfuse":
        words[0] = "callfuse"
        _callfuse(Command(shlex.join(words), command.variables, tuple(words)), shell)


def _export(command: Command, shell: Shell) -> None:
    """Set variables for the rest of the block. `...` and `$NAME` stand for what the reader has."""
    for word in command.words[1:]:
        name, _, value = word.partition("=")
        if value.strip(".") and not value.startswith(("$", "sk-")):
            shell.env[name] = value
        else:
            assert name in shell.env, f"{name}: add it to `given.VARIABLES`"


def _hosted(command: Command, shell: Shell) -> None:
    """`tests/hosts` runs it, or at least loads what vLLM is told to load."""
    is_read = command.name == "vllm" and wrong_in(command) == ""
    assert is_read or hosts_type(command.line), f"nobody runs {command.line}: see `tests/hosts`"


PROGRAMS: Mapping[str, Callable[[Command, Shell], None]] = {
    "callfuse": _callfuse,
    "curl": _curl,
    "export": _export,
    "opentelemetry-instrument": _serve,
    "python": _python,
    "python3": _python,
    "uvicorn": _uvicorn,
    "uvx": _uvx,
    **dict.fromkeys(("cat", "claude", "echo", "openssl", "pytest", "test", "zcat"), _as_process),
    **dict.fromkeys(("make", "pip", "pipx", "uv"), _read),
    **dict.fromkeys((".", "source"), _enter),
    # Started by `tests/hosts`, in environments with these programs.
    **dict.fromkeys(("bentoml", "granian", "gunicorn", "hypercorn", "litellm", "nginx", "serve", "vllm"), _hosted),
}
"""How each program runs, where its line has nothing else in it."""

MACHINES = frozenset(
    {
        "brew",
        "cd",
        "cp",
        "docker",
        "envoy",
        "gh",
        "git",
        "helm",
        "install",
        "kubectl",
        "npm",
        "npx",
        "rattler-build",
        "sudo",
        "systemctl",
        "unzip",
    }
)
"""Programs for a machine or a cluster of the reader's. `tests/deploy` lints the files that they take."""
