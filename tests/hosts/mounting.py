"""Starts a host as its page in `docs/mount` says, with an app of the scripted models behind it."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.hosts.client import PATH
from tests.hosts.environments import PROJECT
from tests.hosts.pages import page

APPS = Path(__file__).parent / "apps"
PORT = "8000"
"""The port in the commands and files of all pages; a free one takes its place."""
POLL_S = 0.1
QUIET = {"BENTOML_DO_NOT_TRACK": "true", "RAY_USAGE_STATS_ENABLED": "0"}
"""No host tells its makers of these runs."""
FAST = {"RAY_worker_niceness": "0"}
"""Ray's workers do not come after all other work of the machine, as they do by default: then it gives up waiting."""
READY: dict[str, Any] = {"model": "ready", "messages": [{"role": "user", "content": "Are you there?"}]}
NOT_YET = (404, 503)
"""What a host answers that listens before its app is there."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def mounted(
    name: str,
    command: str,
    python: Path,
    folder: Path,
    *,
    start_s: float = 60,
    env: Mapping[str, str] | None = None,
    ready: Mapping[str, Any] = READY,
) -> Iterator[str]:
    """Run a command of a page; yields its base URL once it listens. RuntimeError with its output if it does not.

    In the folder are the files of the page and those of `apps/NAME` and `apps/common`; commands are found in the
    environment of `python`. `env`: more variables; they win over those in front of the command.
    `ready`: a request that the app answers.
    """
    for source in (APPS / "common", APPS / name):
        if source.exists():
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    port = free_port()
    for path, text in page(name).files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace(PORT, str(port)), encoding="utf-8")
    variables, words = _split(command.replace(PORT, str(port)))
    environment = {
        **os.environ,
        **QUIET,
        **FAST,
        "HOME": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), str(python.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(folder)]),
        "PYTHONUNBUFFERED": "1",
        **variables,
        **(env or {}),
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for(process, port, ready, start_s, log)
        yield f"http://127.0.0.1:{port}"
    except BaseException as error:
        error.add_note(log.read_text(errors="replace")[-6000:])
        raise
    finally:
        _stop(process)


def _split(command: str) -> tuple[dict[str, str], list[str]]:
    """Variables set in front of a command, and its words."""
    words = shlex.split(command)
    variables: dict[str, str] = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words


def _wait_for(
    process: "subprocess.Popen[bytes]", port: int, ready: Mapping[str, Any], start_s: float, log: Path
) -> None:
    end = time.monotonic() + start_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the host has ended with {process.returncode}:\n{log.read_text()[-6000:]}")
        try:
            answer = httpx.post(f"http://127.0.0.1:{port}{PATH}", json=dict(ready), timeout=start_s, trust_env=False)
        except httpx.TransportError:
            time.sleep(POLL_S)
        else:
            if answer.status_code not in NOT_YET:
                return
            time.sleep(POLL_S)
    raise RuntimeError(f"the host does not answer after {start_s} s:\n{log.read_text()[-6000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it as a supervisor does, with what it has started."""
    for number, timeout_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    # Workers of the group that outlive their parent are ended by the second signal, and here those of other groups.
    for one in _session(process.pid):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _session(number: int) -> list[int]:
    """The processes of a session, which begins with the process of that number; Ray's HAProxy is in it, for one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == number:
                found.append(int(entry.name))
    return found
