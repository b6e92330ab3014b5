"""Runs the commands of a block, line by line, in a folder of its own.

What ends by itself runs; a server is started, asked, and stopped; what installs is only read. `PROGRAMS` has a line for
each program that a page may name.
"""

import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx
import pytest
from typer.testing import CliRunner, Result

from callfuse.cli.app import app as command_line
from tests.docs import given
from tests.docs.blocks import Block, blocks_of
from tests.docs.commands import Command, commands_in, lines_in, wrong_in
from tests.docs.hosted import hosts_run
from tests.docs.snippets import can_run
from tests.docs.world import TIMEOUT_S, World
from tests.hosts import client
from tests.hosts.mounting import free_port
from tests.project.sources import PROJECT

FOREVER = 28
"""curl's status where its time was up, as with a feed."""
_PORT = re.compile(r"(?<=--port )\d+|(?<=--bind 127\.0\.0\.1:)\d+")
_PATH = re.compile(r"(?:\./)?[\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:ya?ml|json|toml|py|service|conf|env)")


@dataclass
class Shell:
    """Where the commands of one block run. `printed` collects what they have written to stdout and stderr."""

    block: Block
    world: World
    folder: Path
    env: dict[str, str]
    printed: list[str] = field(default_factory=list)

    def status(self, command: Command) -> int:
        """The status with which a command is to end."""
        told = [code for (page, start), code in given.STATUS.items() if self._is_named(command, page, start)]
        return told[0] if told else 0

    def _is_named(self, command: Command, page: str, start: str) -> bool:
        return self.block.page == page and self.world.put(start) in command.line

    def check(self, command: Command, status: int, said: str) -> None:
        """Fail where a command has not ended as it is to."""
        self.printed.append(said)
        assert status == self.status(command), f"{command.line}: ended with {status}\n{said}"


def run(block: Block, world: World, folder: Path) -> str:
    """Run all commands of a block; returns what they have printed."""
    text = world.put(block.text)
    _make_files(text, block, world, folder)
    shell = Shell(block, world, folder, world.environment(folder))
    for line in lines_in(text):
        run_line(line, shell)
    return "".join(shell.printed)


def run_line(line: str, shell: Shell) -> None:
    """Run one line by the first program of it that is known; AssertionError for one that is not."""
    commands = commands_in(line)
    for command in commands:
        if not command.words:
            continue
        assert command.program in PROGRAMS, f"nobody runs {command.program}: add it to `PROGRAMS`"
    if len(commands) > 1 or not commands[0].is_plain:
        _through_sh(commands[0], shell)
    elif commands[0].words:
        PROGRAMS[commands[0].program](commands[0], shell)
    else:
        shell.env.update(commands[0].variables)


def _make_files(text: str, block: Block, world: World, folder: Path) -> None:
    """Write the files that the block reads: those that its page has as blocks, and those of `given.FILES`."""
    for one in blocks_of(block.page):
        if one.file:
            _write(folder / one.file, world.put(one.text).encode())
    for name, make in given.FILES.items():
        pattern = re.escape(name.replace("one", "*"))
        is_written = re.search(rf"(?:init|--write|>) {pattern}", text)
        is_here = (folder / name).exists()
        if re.search(rf"(?<![\w./]){pattern}(?![\w.])", text) and not is_written and not is_here:
            _write(folder / name, make())


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _through_sh(command: Command, shell: Shell) -> None:
    """Run a whole line in a real shell."""
    done = subprocess.run(
        ["sh", "-c", command.line],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    shell.check(command, done.returncode, done.stdout + done.stderr)


def _callfuse(command: Command, shell: Shell) -> None:
    """A subcommand: one that serves is started and asked; one that starts programs or draws runs as a process; all
    others run here."""
    assert wrong_in(command) == ""
    arguments = [*command.words[1:]]
    env = {**shell.env, **command.variables}
    if arguments[:1] == ["serve"] and "--help" not in arguments:
        _serve(command, shell)
    elif arguments[:1] == ["run"]:
        shell.env |= {name: f"{shell.world.vendor}{path}" for name, path in given.VENDORS.items()}
        _through_sh(command, shell)
    elif arguments[:1] == ["demo"]:
        _through_sh(command, shell)
    else:
        env.setdefault("CALLFUSE_SERVE_PORT", shell.world.guard.rpartition(":")[2])
        ended = in_process(arguments, env, shell.folder)
        shell.check(command, ended.exit_code, ended.output)


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
    if "--port" not in command.words:
        shell.env["CALLFUSE_SERVE_PORT"] = "0"
    with _started(command, shell) as (url, greeting):
        ready = httpx.get(f"{url}/_callfuse/ready", timeout=TIMEOUT_S, trust_env=False)
        assert ready.status_code == 200, ready.text
        if "mode=chance_then_block, max_repeats=3" in greeting:
            _ask_for_a_loop(url)


def _serve_app(command: Command, shell: Shell) -> None:
    """Start a server of ASGI apps with an app of the page, and ask it for a loop."""
    with _started(command, shell) as (url, _):
        _ask_for_a_loop(url)


def _ask_for_a_loop(url: str) -> None:
    with client.open_client(url) as http:
        calls, text = client.run_agent(http, client.PATH, "stubborn", streamed=True)
    assert calls == [client.LOOPING, client.LOOPING], calls
    assert text.startswith("[callfuse]"), text


@contextmanager
def _started(command: Command, shell: Shell) -> Iterator[tuple[str, str]]:
    """A server that a line starts, as a process; yields its address and the line that names it. It ends with the
    block, by a signal and in peace."""
    port = str(free_port())
    line = _PORT.sub(port, command.line)
    process = subprocess.Popen(
        ["sh", "-c", re.sub(r"^((?:\w+=\S* )*)", r"\1exec ", line)],
        cwd=shell.folder,
        env=shell.env,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        url, greeting = _address(process.stderr, said)
        rest = threading.Thread(target=lambda stream: said.extend(stream), args=(process.stderr,), daemon=True)
        rest.start()
        yield url, greeting
        process.terminate()
        assert process.wait(TIMEOUT_S) in (0, -15), "".join(said)
        rest.join(TIMEOUT_S)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        process.stderr.close()
    shell.printed += said


def _address(stream: IO[str], said: list[str]) -> tuple[str, str]:
    """Read until a line names the address: that of `callfuse serve`, or uvicorn's own."""
    for line in stream:
        said.append(line)
        if found := re.search(r"(?:callfuse \S+ on|running on) (http://127\.0\.0\.1:\d+)", line):
            return found[1], line
    raise AssertionError(f"it does not serve:\n{''.join(said)}")


def _curl(command: Command, shell: Shell) -> None:
    """Ask the running guard."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        ["sh", "-c", command.line],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    endless = "-N" in command.words and done.returncode == FOREVER
    shell.check(command, 0 if endless else done.returncode, done.stdout + done.stderr)


def _python(command: Command, shell: Shell) -> None:
    """A program of the project is only asked for its options; a file of the page runs."""
    match command.words:
        case ["python", "-m", "callfuse", *arguments]:
            _callfuse(Command(command.line, command.variables, ("callfuse", *arguments)), shell)
        case ["python", file, *_] if (shell.folder / file).exists():
            _through_sh(command, shell)
        case _ if not hosts_run(shell.block, command.line):
            _read(command, shell)


def _read(command: Command, shell: Shell) -> None:
    """Only whether it could run."""
    assert wrong_in(command) == ""


def _uvx(command: Command, shell: Shell) -> None:
    """What it installs is read, and what that starts runs."""
    _read(command, shell)
    words = [*command.words[1:]]
    if words[:1] == ["--from"]:
        words = words[2:]
    if words[0].partition("[")[0] == "callfuse":
        line = shlex.join(["callfuse", *words[1:]])
        _callfuse(Command(line, command.variables, ("callfuse", *words[1:])), shell)


def _export(command: Command, shell: Shell) -> None:
    """Set variables for the rest of the block. `...` and `$NAME` stand for what the reader has."""
    for word in command.words[1:]:
        name, _, value = word.partition("=")
        if value.strip(".") and not value.startswith(("$", "sk-")):
            shell.env[name] = value
        else:
            assert name in shell.env, f"{name}: add it to `given.VARIABLES`"


def _paths(command: Command, shell: Shell) -> None:
    """Another test runs it, as it needs a machine of its own; here the files that it names are there."""
    known = {one.file for one in blocks_of(shell.block.page)} | set(given.FILES)
    for word in command.words[1:]:
        if _PATH.fullmatch(word) and not word.startswith("/"):
            assert word in known or (PROJECT / word).exists(), f"{command.line}: {word} is not there"


def _hosted(command: Command, shell: Shell) -> None:
    """`tests/hosts` runs it."""
    assert hosts_run(shell.block, command.line), "nobody runs this command: see `tests/hosts`"


def _uvicorn(command: Command, shell: Shell) -> None:
    """Started here where its app can be imported here."""
    files = [one for one in blocks_of(shell.block.page) if one.file == _file_of(command.words[1])]
    is_here = bool(files) and can_run(files[0], shell.folder)
    if is_here:
        _serve_app(command, shell)
    else:
        assert hosts_run(shell.block, command.line), "nobody runs this command: see `tests/hosts`"


def _file_of(app: str) -> str:
    """The file of an app that is named as `mysite.asgi:app`."""
    return f"{app.partition(':')[0].replace('.', '/')}.py"


def _wait(command: Command, shell: Shell) -> None:
    """At most a moment."""
    time.sleep(0)


PROGRAMS: Mapping[str, Callable[[Command, Shell], None]] = {
    "callfuse": _callfuse,
    "curl": _curl,
    "export": _export,
    "python": _python,
    "uvicorn": _uvicorn,
    "uvx": _uvx,
    "opentelemetry-instrument": _serve,
    "zcat": _through_sh,
    "cat": _through_sh,
    "make": _read,
    "pip": _read,
    "pipx": _read,
    "sleep": _wait,
    # Started by `tests/hosts`, in environments with these programs.
    **dict.fromkeys(("bentoml", "granian", "gunicorn", "hypercorn", "litellm", "nginx", "serve", "vllm"), _hosted),
    # They need a machine, a cluster or a repository; `tests/deploy` lints their files.
    **dict.fromkeys(("cd", "cp", "docker", "git", "helm", "kubectl", "npm", "npx", "sudo", "systemctl"), _paths),
}
"""How each program runs."""
