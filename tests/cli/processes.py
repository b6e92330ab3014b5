"""callfuse as a process of its own, in an environment without any of its variables."""

import os
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
