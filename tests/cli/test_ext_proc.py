"""`callfuse ext-proc` as a command: what it says, where it listens, and how it ends."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callfuse.errors import install_hint
from tests.cli.processes import CLEAN, callfuse_here
from tests.envoy.playing import health
from tests.support.redis import free_port

COMMAND = (sys.executable, "-m", "callfuse", "ext-proc")


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that listens; gives its first line, too."""
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=CLEAN)
    assert process.stderr is not None
    try:
        yield process, process.stderr.readline()
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


async def test_it_listens_and_ends_on_a_signal(tmp_path: Path) -> None:
    """On a Unix socket; it says what it does where the model would be asked again, and SIGTERM ends it with 0."""
    address = f"unix:{tmp_path}/callfuse.sock"
    with started("--listen", address) as (process, line):
        assert f"on {address} guards for Envoy (mode=chance_then_block, max_repeats=3)" in line
        assert process.stderr is not None
        assert "no upstream" in process.stderr.readline()
        assert await health(address)
        process.send_signal(signal.SIGTERM)
        assert "stopping" in process.stderr.read()
        assert process.wait(20) == 0


async def test_it_takes_the_settings_of_serve(tmp_path: Path) -> None:
    """Upstreams without their credentials, a log as JSON, and a free port."""
    file = tmp_path / "callfuse.yaml"
    file.write_text("tool_call_loop: {mode: block}\nserve: {log_format: json, upstream: 'https://u:p@vendor.test'}\n")
    with started("--listen", "127.0.0.1:0", "--config", str(file)) as (_, line):
        said = json.loads(line)["message"]
        found = re.search(r"on (127\.0\.0\.1:\d+) guards", said)
        assert found is not None
        assert "mode=block" in said
        assert said.endswith("asks https://***@vendor.test again")
        assert await health(found[1])


def test_an_address_that_is_taken_is_an_error() -> None:
    """It names the option, and the code is 1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        ended = subprocess.run(
            [*COMMAND, "--listen", address], capture_output=True, text=True, timeout=60, check=False, env=CLEAN
        )
    assert ended.returncode == 1
    assert f"callfuse: cannot listen on {address}" in ended.stderr
    assert "--listen" in ended.stderr


def test_wrong_settings_end_it(tmp_path: Path) -> None:
    """As they end `serve`."""
    ended = callfuse_here("ext-proc", "--listen", f"127.0.0.1:{free_port()}", "--upstream", "vendor")
    assert (ended.returncode, "serve.upstream" in ended.stderr) == (2, True)


@pytest.mark.parametrize("package", ["grpc", "envoy"])
def test_without_its_packages_it_names_the_extra(package: str) -> None:
    """Whichever of them is missing."""
    program = f"import sys; sys.modules[{package!r}] = None; from callfuse.__main__ import main; main()"
    command = [sys.executable, "-c", program, "ext-proc"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=CLEAN)
    assert ended.returncode == 2
    assert install_hint("envoy") in ended.stderr
    assert f"{package} is missing" in ended.stderr
