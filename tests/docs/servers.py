"""Starts a server by a line as it is typed, and ends it as a supervisor does."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S, STOP_S, POLL_S = 60, 60, 0.02
_ADDRESS = re.compile(r"(?:callfuse \S+ on|running on) (http://127\.0\.0\.1:\d+).*")
_VARIABLES = re.compile(r"^((?:\w+=\S* )*)")


@dataclass(frozen=True)
class Running:
    """A server: its base URL, its process, and the file to which it writes all that it says."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, timeout_s: float = START_S) -> None:
        """Wait until it has said that."""
        wait_until(lambda: text in self.said, timeout_s)


def wait_until(is_so: Callable[[], bool], timeout_s: float = START_S) -> None:
    """Wait until it is so; AssertionError if it never is."""
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(POLL_S)


@contextmanager
def started(line: str, env: Mapping[str, str], folder: Path) -> Iterator[Running]:
    """Run the line in a folder; yields once it tells its address: `callfuse serve`, or uvicorn. At the end it must end
    by a signal, in peace."""
    log = folder / f".log-{time.monotonic_ns()}"
    with log.open("wb") as output:
        words = ["sh", "-c", _VARIABLES.sub(r"\1exec ", line, count=1)]  # so that signals reach it, not a shell
        process = subprocess.Popen(words, cwd=folder, env=dict(env), stdout=output, stderr=output)
    try:
        yield Running(_address(process, log), process, log)
        process.terminate()
        assert process.wait(STOP_S) in (0, -15), log.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_S)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        has_ended = process.poll() is not None
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := _ADDRESS.search(said):
            return found[1]
        assert not has_ended, f"it does not serve:\n{said}"
        time.sleep(POLL_S)
    raise AssertionError(f"it does not tell its address:\n{said}")
