"""The systemd unit: it is a right one, shuts in what it runs, and that can live in there."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from callfuse.config import Config
from tests.cli.processes import CLEAN, callfuse
from tests.deploy.files import DEPLOY, debian_program, least_grace_s
from tests.hosts.environments import asked_for
from tests.hosts.mounting import free_port
from tests.project.sources import document

UNIT = (DEPLOY / "systemd" / "callfuse.service").read_text()
PROGRAM = "/opt/callfuse/bin/callfuse"
MOST_EXPOSURE = 1.5
"""As `systemd-analyze security` counts it: 0 is shut in, 10 may do all; below 2 is what it calls OK."""
START_S = 30
analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def value(key: str) -> str:
    """That of a key which is given once."""
    [found] = re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)
    return str(found)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is here."""
    path = tmp_path / "callfuse.service"
    path.write_text(UNIT.replace(PROGRAM, "/bin/true"))
    return path


@analyze
def test_systemd_takes_it(unit: Path) -> None:
    """No key is unknown or misplaced."""
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@analyze
def test_it_is_shut_in(unit: Path) -> None:
    """Nearly all that systemd can take away is taken away."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", unit], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search(r"exposure level for callfuse\.service: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSURE


def test_it_has_time_to_end() -> None:
    """With the settings that hold where none is given."""
    assert float(value("TimeoutStopSec")) > least_grace_s(Config())


def test_the_page_installs_what_it_starts() -> None:
    """At that place, with the file of the settings and that of the secrets."""
    page = document("docs/deploy.md")
    start = value("ExecStart").split()
    assert start[:3] == [PROGRAM, "serve", "--config"]
    folder = PROGRAM.removesuffix("/bin/callfuse")
    for named in (f"-m venv {folder}", start[3], value("EnvironmentFile").removeprefix("-"), "callfuse.service"):
        assert named in page, named


@pytest.mark.slow
def test_wrong_settings_are_not_tried_again(tmp_path: Path) -> None:
    """Their status is the one that prevents it."""
    path = tmp_path / "callfuse.yaml"
    path.write_text("serve: {upstreams: http://127.0.0.1:9}")
    assert callfuse("serve", "--config", str(path)).returncode == int(value("RestartPreventExitStatus"))


def allowed() -> set[str]:
    """The system calls that the filter of the unit lets through."""
    found: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.MULTILINE):
        calls = {call for name in line.removeprefix("~").split() for call in in_set(name)}
        found = found - calls if line.startswith("~") else found | calls
    return found


def in_set(name: str) -> Iterable[str]:
    """The system calls of a set of systemd, with those of the sets within."""
    command = ["systemd-analyze", "syscall-filter", name]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    for word in re.findall(r"^    (@?[\w-]+)$", shown, re.MULTILINE):
        yield from in_set(word) if word.startswith("@") else [word]


@asked_for
@analyze
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_it_does_without_what_is_forbidden(tmp_path: Path) -> None:
    """Two workers are started, asked and ended under strace: no system call beyond the filter, no memory that can be
    written and run."""
    strace = debian_program("strace", "usr/bin/strace")
    port, log = free_port(), tmp_path / "calls"
    serve = [sys.executable, "-m", "callfuse", "serve", "--upstream", "http://127.0.0.1:9", "--port", str(port)]
    command = [strace, "-f", "-qq", "-o", str(log), *serve, "--workers", "2"]
    with subprocess.Popen(command, env=CLEAN, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + START_S
        while not is_up(port):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", f"-{signal.SIGTERM}", child], check=True)
        assert process.wait(START_S) == 0
    lines = log.read_text().splitlines()
    used = {found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line))}
    assert {"epoll_wait", "clone3", "accept4"} & used
    assert used - allowed() == set()
    assert [line for line in lines if "PROT_WRITE|PROT_EXEC" in line and "ENOSYS" not in line] == []


def is_up(port: int) -> bool:
    """Whether it answers."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/_callfuse/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
