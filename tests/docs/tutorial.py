"""Follows the tutorial as a reader does: writes its files, starts its servers, runs its commands, reads the output."""

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import Block
from tests.docs.commands import Command, commands_in, wrong_in
from tests.docs.outputs import missing_lines
from tests.docs.servers import Running, started, wait_until
from tests.hosts.mounting import free_port

SERVERS = ("uvicorn", "callfuse serve")
READ = ("mkdir", "cd", ".", "python3", "pip")
"""Programs whose lines are only read: the folder and the environment are there."""
TIMEOUT_S = 60


@dataclass
class Reader:
    """A reader with a folder and two terminals. `printed`: what the last command has printed; `ports`: those of the
    page, each with a free one."""

    folder: Path
    env: Mapping[str, str]
    stack: ExitStack
    printed: str = ""
    ports: dict[str, str] = field(default_factory=dict)
    servers: dict[str, tuple[ExitStack, Running]] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.file:
            (self.folder / block.file).write_text(self.put(block.text), encoding="utf-8")
        elif block.language == "sh":
            for command in commands_in(block.text):
                self._run(command)
        else:
            self._compare(block.text)

    def put(self, text: str) -> str:
        """The text with free ports in place of those of the page."""
        return re.sub(r"\b8[01]00\b", lambda found: self._port(found[0]), text)

    def _port(self, shown: str) -> str:
        return self.ports.setdefault(shown, str(free_port()))

    def _run(self, command: Command) -> None:
        if command.line.startswith(SERVERS):
            self._serve(command)
        elif command.name in READ:
            known = command.name in ("mkdir", "cd", ".") or wrong_in(command) == ""
            assert known, command.line
        else:
            line = self.put(command.line)
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.folder,
                env=dict(self.env),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            self.printed = done.stdout + done.stderr
            assert done.returncode == 0, self.printed

    def _serve(self, command: Command) -> None:
        """Start a server; the one that was in its terminal has been ended by Ctrl-C."""
        if command.name in self.servers:
            self.servers.pop(command.name)[0].close()
        line = command.line if "--port" in command.line else f"{command.line} --port 8100"
        own = self.stack.enter_context(ExitStack())
        server = own.enter_context(started(self.put(line), dict(self.env), self.folder))
        self.servers[command.name] = own, server
        self.printed = server.said

    def _compare(self, shown: str) -> None:
        """The lines are of the last command, or of a server's terminal, where they may come a little later."""
        shown = self.put(shown)

        def said() -> list[str]:
            return [self.printed, *(server.said for _, server in self.servers.values())]

        wait_until(lambda: not all(missing_lines(shown, text) for text in said()), timeout_s=10 if self.servers else 0)


def environment(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of the reader's programs: modules of the folder can be imported, and output comes at once."""
    return {**env, "PYTHONPATH": os.pathsep.join([env["PYTHONPATH"], str(folder)]), "PYTHONUNBUFFERED": "1"}
