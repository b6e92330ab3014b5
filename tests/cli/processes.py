"""callfuse in an environment without any of its variables: in this process, or as one of its own."""

import io
import os
import pty
import subprocess
import sys
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import pytest

from callfuse.__main__ import main

CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(("CALLFUSE_", "TOOL_LOOP_"))}
# Wide and plain, so that a terminal's width or a colour never decides a test.
PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


PROCESSES = {"serve", "run", "demo", "top"}
"""Commands that serve, follow, take signals or start programs."""


def callfuse(*arguments: str, code: str | None = None, **env: str) -> CompletedProcess[str]:
    """Run the command line with these arguments, or some code that ends in calling it.

    A process of its own imports everything, which is what most tests would take: other commands than `PROCESSES`, and
    any command's help, run in this one.
    """
    if not code and (not arguments or arguments[0] not in PROCESSES or arguments[-1] in ("-h", "--help")):
        return callfuse_here(*arguments, **env)
    program = ["-c", code] if code else ["-m", "callfuse"]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**CLEAN, **PLAIN, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def callfuse_here(*arguments: str, **env: str) -> CompletedProcess[str]:
    """Run the command line in this process, with an environment and standard streams of its own."""
    out, err, nothing = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(3))
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ, CLEAN | PLAIN | env, clear=True):
        patch.setattr(sys, "argv", ["callfuse", *arguments])
        for name, stream in (("stdin", nothing), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        try:
            main()
            status: Any = 0
        except SystemExit as ended:
            status = ended.code
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    return CompletedProcess(["callfuse", *arguments], status or 0, printed, told)


def on_terminal(*arguments: str, content: bytes = b"") -> tuple[str, str]:
    """`python -m callfuse` with a terminal as stderr and `content` as standard input: what stdout and terminal show."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "callfuse", *arguments]
    env = CLEAN | {"TERM": "xterm", "COLUMNS": "120"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=follower, env=env) as process:
        os.close(follower)
        assert process.stdin is not None
        process.stdin.write(content)
        process.stdin.close()
        process.stdin = None
        seen = b""
        while chunk := _read(leader):
            seen += chunk
        out, _ = process.communicate(timeout=60)
    os.close(leader)
    return out.decode(), seen.decode()


def _read(descriptor: int) -> bytes:
    """What a terminal was written; nothing once it is closed."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
