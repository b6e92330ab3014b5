"""callfuse as a process of its own, in an environment without any of its variables."""

import os
import pty
import subprocess
import sys

CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(("CALLFUSE_", "TOOL_LOOP_"))}
# Wide and plain, so that a terminal's width or a colour never decides a test.
PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def callfuse(*arguments: str, code: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m callfuse` with these arguments; or some code that ends in calling it."""
    program = ["-c", code] if code else ["-m", "callfuse"]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**CLEAN, **PLAIN, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
