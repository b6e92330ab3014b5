"""Run `callfuse serve` as a separate process, and read the findings from its log.

The process gets a free port and an environment without settings and proxies. It always ends with the `with` block.
"""

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from callfuse.config.environment import ADMIN_TOKEN

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

_LISTENING = re.compile(r"callfuse \S+ on (http://\S+) guards ")
_FINDING = re.compile(r"Tool call loop detected in session [^:]*: (.*)")
_OWN_SETTINGS = ("CALLFUSE_", "TOOL_LOOP_")
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})


class DemoError(Exception):
    """Raised if the demo fails. The message says why, for the person who runs it."""


class Log:
    """Reads the log of the process: its URL, its findings, and its last lines for an error message."""

    def __init__(self, on_finding: Callable[[str], None]) -> None:
        self._on_finding = on_finding
        self._changed = threading.Condition()
        self._findings = 0
        self._ended = False
        self.url: str | None = None
        self.last_lines: deque[str] = deque(maxlen=12)

    def read(self, stream: IO[str]) -> None:
        """Read the log to its end. Run this in a thread, because a full pipe would stop the process."""
        with stream:
            for line in stream:
                self._read_line(line)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_line(self, line: str) -> None:
        self.last_lines.append(line.rstrip())
        listening, finding = _LISTENING.search(line), _FINDING.search(line)
        if finding:
            self._on_finding(finding[1])
        with self._changed:
            self.url = self.url or (listening and listening[1])
            self._findings += finding is not None
            self._changed.notify_all()

    def wait_until_it_listens(self) -> str:
        """Wait for the URL and return it. Raises DemoError if the process ends, or is silent for `START_TIMEOUT_S`."""
        with self._changed:
            self._changed.wait_for(lambda: self.url or self._ended, START_TIMEOUT_S)
        if self.url is None:
            printed = "\n".join(self.last_lines) or "it printed nothing"
            when = "" if self._ended else f" within {START_TIMEOUT_S:g} s"
            raise DemoError(f"callfuse serve did not start{when}:\n{printed}")
        return self.url

    def wait_for_findings(self, count: int, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for this many findings, so that entries are shown in order."""
        with self._changed:
            self._changed.wait_for(lambda: self._findings >= count or self._ended, timeout_s)


@contextmanager
def callfuse_serve(upstream: str, on_finding: Callable[[str], None], token: str = "") -> Iterator[tuple[str, Log]]:
    """Run `callfuse serve --upstream URL` with default settings. Yields its URL and its log. Raises DemoError.

    `token`: the token of its admin page; empty: a random one.
    """
    command = [sys.executable, "-m", "callfuse", "serve", "--upstream", upstream, "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(  # noqa: S603 - our own program, no shell
        command, env=_environment(token), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    log = Log(on_finding)
    reader = threading.Thread(target=log.read, args=(process.stderr,), name="callfuse-serve-log", daemon=True)
    try:
        reader.start()
        yield log.wait_until_it_listens(), log
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(STOP_TIMEOUT_S)


def _environment(token: str) -> dict[str, str]:
    """Return the environment without callfuse's settings and without proxies, and with the token of the admin page."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_SETTINGS) and name.upper() not in _PROXIES
    }
    return kept | ({ADMIN_TOKEN: token} if token else {})
