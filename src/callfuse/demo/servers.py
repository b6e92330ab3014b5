"""`callfuse serve` as a process of its own, and the findings that it logs.

An upstream URL enters; the guard's URL and its findings leave. The process is started on a free port, is told nothing
by the environment of whoever runs the demo, and is ended with the block, whatever happens in it.
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

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0

_LISTENING = re.compile(r"callfuse \S+ on (http://\S+) guards ")
_FINDING = re.compile(r"Tool call loop detected in session [^:]*: (.*)")
_OWN_SETTINGS = ("CALLFUSE_", "TOOL_LOOP_")
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})


class DemoError(Exception):
    """The demo cannot go on; the message says why, for the person who runs it."""


class Log:
    """What the process writes: when it listens, what it finds, and its last lines for when it fails."""

    def __init__(self, on_finding: Callable[[str], None]) -> None:
        self._on_finding = on_finding
        self._changed = threading.Condition()
        self._findings = 0
        self._ended = False
        self.url: str | None = None
        self.last_lines: deque[str] = deque(maxlen=12)

    def read(self, stream: IO[str]) -> None:
        """Read to the end; runs in a thread of its own, for a full pipe would stop the process."""
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
        """The URL; `DemoError` where the process ends or is silent for too long."""
        with self._changed:
            self._changed.wait_for(lambda: self.url or self._ended, START_TIMEOUT_S)
        if self.url is None:
            raise DemoError("callfuse serve did not start:\n" + "\n".join(self.last_lines))
        return self.url

    def wait_for_findings(self, count: int, timeout_s: float) -> None:
        """Give the log up to `timeout_s` to show that many findings, so that the story is told in its order."""
        with self._changed:
            self._changed.wait_for(lambda: self._findings >= count or self._ended, timeout_s)


@contextmanager
def callfuse_serve(upstream: str, on_finding: Callable[[str], None]) -> Iterator[tuple[str, Log]]:
    """`callfuse serve --upstream URL` with its default settings: its URL and its log."""
    command = [sys.executable, "-m", "callfuse", "serve", "--upstream", upstream, "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(  # noqa: S603 - our own program, no shell
        command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
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


def _environment() -> dict[str, str]:
    """The environment without settings of callfuse and without proxies."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_SETTINGS) and name.upper() not in _PROXIES
    }
