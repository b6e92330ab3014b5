"""The app of `callfuse serve` under other servers: a loop is blocked, a stream goes on, and HTTP/2 where they can."""

import http.client
import os
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from callfuse.testing import served as serving_app
from tests.cli.processes import CLEAN
from tests.cli.test_serve import PATIENCE_S, TOKEN, Vendor, vendor
from tests.hosts.environments import PROJECT, asked_for, environment
from tests.hosts.mounting import free_port
from tests.project.sources import document
from tests.support.kits import KITS
from tests.support.meeting import ask, reply
from tests.support.plain import again, spin
from tests.support.scripted import play

__all__ = ["vendor"]
CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
SERVERS = ("granian==2.8.9", "hypercorn==0.18.0", "h2==4.4.1")
PORT = "8100"
UVICORN = "uvicorn --factory callfuse.server:create_app --port 8100"
COMMANDS = (
    "granian --interface asgi --factory callfuse.server:create_app --port 8100",
    "hypercorn 'callfuse.server:create_app()' --bind 127.0.0.1:8100",
    UVICORN,
)


def test_the_page_has_the_commands() -> None:
    """All that are tried here."""
    page = document("docs/deploy.md")
    assert [one for one in COMMANDS if one not in page] == []


@contextmanager
def running(command: str, upstream: str, folder: Path) -> Iterator[int]:
    """The app under a server; yields the port."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        extra = tomllib.load(file)["project"]["optional-dependencies"]["serve"]
    python = environment(*SERVERS, *extra)
    port = free_port()
    env = {
        **CLEAN,
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(PROJECT / "src"),
        "CALLFUSE_ADMIN_TOKEN": TOKEN,
        "CALLFUSE_SERVE_UPSTREAM": upstream,
        "TOOL_LOOP_MODE": "block",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(shlex.split(command.replace(PORT, str(port))), env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + PATIENCE_S
        while status_of(port, "/_callfuse/ready") != 200:
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()  # noqa: PT018
            time.sleep(0.1)
        yield port
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        assert "Traceback" not in (folder / "log").read_text()
    finally:
        process.kill()
        process.wait()


def status_of(port: int, path: str) -> int | None:
    """The status of an answer; None if nothing listens yet."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionError:
            return None


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_loop_is_blocked_and_a_stream_goes_on(command: str, vendor: str, tmp_path: Path) -> None:
    """With the settings of the environment; the log of callfuse is there."""
    request = ask(CHAT, spin(2), stream=True)
    with (
        serving_app(play(reply(CHAT, again(), stream=True))) as looping,
        running(command, looping, tmp_path) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection,
    ):
        connection.request("POST", request.path, request.body, {"content-type": "application/json"})
        assert b"[callfuse]" in connection.getresponse().read()
    assert "callfuse.access" in (tmp_path / "log").read_text()
    with (
        running(command, vendor, tmp_path) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection,
    ):
        connection.request("GET", "/slow")
        answer = connection.getresponse()
        assert answer.read(3) == b"/sl"
        Vendor.go_on.set()
        assert answer.read() == b"ow and its end"


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("curl") is None, reason="HTTP/2 is asked for with curl, which is not here")
@pytest.mark.parametrize("command", [one for one in COMMANDS if one != UVICORN])
def test_http_2(command: str, tmp_path: Path) -> None:
    """A stream with a blocked loop, over HTTP/2 to the client."""
    request = ask(CHAT, spin(2), stream=True)
    with serving_app(play(reply(CHAT, again(), stream=True))) as looping, running(command, looping, tmp_path) as port:
        asking = ["curl", "-sS", "--http2-prior-knowledge", "-w", "HTTP/%{http_version}", "--data-binary", "@-"]
        asking += ["-H", "content-type: application/json", f"http://127.0.0.1:{port}{request.path}"]
        done = subprocess.run(asking, input=request.body, capture_output=True, timeout=PATIENCE_S, check=True)
    assert b"[callfuse]" in done.stdout
    assert done.stdout.endswith(b"HTTP/2")
