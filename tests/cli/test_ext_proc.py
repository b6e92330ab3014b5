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

import httpx
import pytest

from callfuse.config.serve import ServeSettings
from callfuse.dialects import error_body
from callfuse.envoy.app import EnvoyApp
from callfuse.envoy.server import NOT_SERVING, SERVING
from callfuse.errors import install_hint
from tests.cli.processes import CLEAN, callfuse_here
from tests.envoy.playing import health, play
from tests.envoy.test_processor import chunks, history
from tests.support.redis import free_port

COMMAND = (sys.executable, "-m", "callfuse", "ext-proc", "--port", "0")
TOKEN = "token-of-the-test-0123456789"
PATIENCE_S = 60.0


@contextmanager
def started(*arguments: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that listens; gives its first line, too."""
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=CLEAN | env)
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
        assert await health(address) == SERVING
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
        assert said.endswith("asks the model again at https://***@vendor.test")
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


def page_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The address of a process's admin page, and the token that is printed with it; empty if it has one."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"admin page: (http://127\.0\.0\.1:\d+/_callfuse)/ with the token (?:of|(\S+))", line):
            return found[1], found[2] or ""
    raise AssertionError("it names no page")


async def test_it_serves_the_admin_page(tmp_path: Path) -> None:
    """With the rules of `serve`: its token, its hosts, its settings; metrics count what Envoy sends."""
    address = f"unix:{tmp_path}/callfuse.sock"
    with started("--listen", address, CALLFUSE_ADMIN_TOKEN=TOKEN) as (process, _):
        base, printed = page_of(process)
        assert printed == ""
        await play(address, history(0), chunks())
        async with httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, trust_env=False) as client:
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["upstream"]) == (200, "unknown")
            assert (await client.get("/metrics")).status_code == 401
            assert (await client.get("/", headers={"accept": "text/html"})).status_code == 200
            foreign = await client.get("/ready", headers={"host": "rebound.example"})
            assert (foreign.status_code, "serve.hosts" in foreign.text) == (421, True)
            elsewhere = await client.post(base.removesuffix("/_callfuse") + "/v1/chat/completions", json={})
            assert (elsewhere.status_code, "only the admin page is served here, at /_callfuse/" in elsewhere.text) == (
                404,
                True,
            )
            client.headers["authorization"] = f"Bearer {TOKEN}"
            metrics = (await client.get("/metrics")).text
            assert re.search(r'^callfuse_exchanges_total\{.*dialect="openai-chat".*\} 1\.0$', metrics, re.MULTILINE)
            assert len((await client.get("/sessions")).json()) == 1


def test_a_token_is_made_and_printed() -> None:
    """Without one; whatever the log level is."""
    with started("--listen", "127.0.0.1:0", "--log-level", "error") as (process, line):
        found = re.search(r"admin page: (http://127\.0\.0\.1:\d+/_callfuse/) with the token (\S{20,}) ", line)
        assert found is not None
        shown = httpx.get(f"{found[1]}settings", headers={"authorization": f"Bearer {found[2]}"}, trust_env=False)
        assert shown.status_code == 200
        assert process.poll() is None


def test_the_page_can_be_turned_off(tmp_path: Path) -> None:
    """Nothing listens for it then; otherwise a port that is taken is an error, which names the option."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [*COMMAND[:-1], str(port), "--listen", f"unix:{tmp_path}/callfuse.sock"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=CLEAN)
        assert ended.returncode == 1
        assert f"callfuse: cannot listen on 127.0.0.1, port {port}" in ended.stderr
        off = ("--port", str(port), "--listen", f"unix:{tmp_path}/callfuse.sock")
        with started(*off, CALLFUSE_ADMIN_ENABLED="off") as (process, line):
            assert "guards for Envoy" in line
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert "admin page" not in process.stderr.read()


async def test_it_is_not_ready_before_it_ends(tmp_path: Path) -> None:
    """For load balancers, as its page and its health checks say; meanwhile Envoy is served. A second signal ends it."""
    address = f"unix:{tmp_path}/callfuse.sock"
    with started("--listen", address, CALLFUSE_SERVE_DRAIN_S="9999", CALLFUSE_ADMIN_TOKEN=TOKEN) as (process, _):
        base, _ = page_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "draining: health checks fail" in process.stderr.readline()
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            ready = await client.get(f"{base}/ready")
        assert (ready.status_code, ready.json()["serving"]) == (503, "failed")
        assert await health(address) == NOT_SERVING
        answer = chunks()
        assert (await play(address, history(0), answer)).body == b"".join(answer)
        process.send_signal(signal.SIGTERM)
        assert "stopping" in process.stderr.read()
        assert process.wait(PATIENCE_S) == 0


def test_names_of_the_page_can_change() -> None:
    """As those of `serve`, while it runs."""
    app = EnvoyApp(ServeSettings(), error_body)
    scope = {"type": "http", "path": "/", "server": None, "headers": [(b"host", b"guard.internal")]}
    assert app.refusal_of(scope) is not None
    app.configure(ServeSettings(hosts=("guard.internal",)))
    assert app.refusal_of(scope) is None


def test_wrong_settings_end_it(tmp_path: Path) -> None:
    """As they end `serve`."""
    ended = callfuse_here("ext-proc", "--listen", f"127.0.0.1:{free_port()}", "--upstream", "vendor")
    assert (ended.returncode, "serve.upstream" in ended.stderr) == (2, True)
    short = callfuse_here("ext-proc", CALLFUSE_ADMIN_TOKEN="short")
    assert (short.returncode, "CALLFUSE_ADMIN_TOKEN" in short.stderr) == (2, True)


@pytest.mark.parametrize("package", ["grpc", "envoy"])
def test_without_its_packages_it_names_the_extra(package: str) -> None:
    """Whichever of them is missing."""
    program = f"import sys; sys.modules[{package!r}] = None; from callfuse.__main__ import main; main()"
    command = [sys.executable, "-c", program, "ext-proc"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=CLEAN)
    assert ended.returncode == 2
    assert install_hint("envoy") in ended.stderr
    assert f"{package} is missing" in ended.stderr
