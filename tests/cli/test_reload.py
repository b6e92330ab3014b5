"""Settings that are read again while `callfuse serve` runs."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from callfuse.cli.reload import FIXED, Origin, file_version, keep_fixed
from callfuse.config import resolve
from callfuse.config.model import keys
from tests.cli.test_serve import PATIENCE_S, Served, serving

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")


@contextmanager
def vendor(name: bytes) -> Iterator[str]:
    """The base URL of a server that answers everything with its name."""

    class Vendor(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("content-length", str(len(name)))
            self.end_headers()
            self.wfile.write(name)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Vendor) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def vendors() -> Iterator[tuple[str, str]]:
    """Two of them."""
    with vendor(b"one") as one, vendor(b"other") as other:
        yield one, other


def told(served: Served, what: str) -> str:
    """The next line of the log that holds these words, and what follows it within."""
    assert served.process.stderr is not None
    while line := served.process.stderr.readline():
        if what in line:
            return line
    raise AssertionError(f"the log ended without {what!r}")


def eventually(served: Served, answer: bytes, times: int = 1) -> None:
    """Wait for so many of these answers in a row, each over a connection of its own."""
    until = time.monotonic() + PATIENCE_S
    row = 0
    while row < times:
        assert time.monotonic() < until, f"no {answer!r}"
        row = row + 1 if served.get("/") == answer else 0


def test_a_signal_has_the_file_read_again(vendors: tuple[str, str], tmp_path: Path) -> None:
    """Good settings hold at once and are named; what cannot change is said; bad ones are refused, and the old stay."""
    one, other = vendors
    file = tmp_path / "c.yaml"
    file.write_text(f"serve: {{upstream: {one}}}\n")
    with serving("--config", str(file)) as served:
        assert served.get("/") == b"one"
        file.write_text(
            f"tool_call_loop: {{mode: block}}\nserve: {{upstream: {other}, workers: 3}}\nstore: redis://h\n"
        )
        served.process.send_signal(signal.SIGHUP)
        line = told(served, "reloaded ")
        assert line.endswith(f"reloaded {file}; changed: tool_call_loop.mode, serve.upstream\n")
        assert told(served, "restart to").endswith("restart to change: store, serve.workers\n")
        assert served.get("/") == b"other"
        file.write_text("tool_call_loop: {mode: blok}\nserve: {upstream: 3}\n")
        served.process.send_signal(signal.SIGHUP)
        assert f"ERROR   callfuse.serve: {file} has errors, the settings stay" in told(served, "has errors")
        assert told(served, "blok").startswith(f"  tool_call_loop.mode = 'blok' ({file}, line 1): use one of ")
        assert told(served, "upstream").startswith(f"  serve.upstream = 3 ({file}, line 2): use ")
        assert served.get("/") == b"other"
        file.write_text("{}")
        served.process.send_signal(signal.SIGHUP)
        assert told(served, "serve.upstream is not set").startswith("  serve.upstream is not set; ")
        assert served.get("/") == b"other"
        file.write_text(f"serve: {{upstream: {one}}}\n")
        served.process.send_signal(signal.SIGHUP)
        assert f"INFO    callfuse.serve: {file} is valid again" in told(served, "valid again")
        assert "reloaded" in told(served, "reloaded")
        assert served.get("/") == b"one"
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in printed


def test_a_change_is_seen(vendors: tuple[str, str], tmp_path: Path) -> None:
    """Without a signal; a file that is gone for a while, or replaced, is no matter; options win as at the start."""
    one, other = vendors
    file = tmp_path / "c.toml"
    file.write_text(f'[serve]\nupstream = "{one}"\n')
    with serving(CALLFUSE_CONFIG=str(file)) as served:
        assert served.get("/") == b"one"
        file.unlink()
        new = tmp_path / "new.toml"
        new.write_text(f'[serve]\nupstream = "{other}"\nport = 1\n')
        new.replace(file)
        eventually(served, b"other")
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert f"reloaded {file}; changed: serve.upstream" in printed
    assert "ERROR" not in printed
    assert "serve.port" not in printed, "--port is given, so the file's never held"


def test_every_worker_reads_it(vendors: tuple[str, str], tmp_path: Path) -> None:
    """Each by itself, at the signal to their parent, and none is begun anew."""
    one, other = vendors
    file = tmp_path / "c.yaml"
    file.write_text(f"serve: {{upstream: {one}}}\n")
    with serving("--config", str(file), "--workers", "2") as served:
        eventually(served, b"one")
        file.write_text(f"serve: {{upstream: {other}}}\n")
        served.process.send_signal(signal.SIGHUP)
        for _ in range(2):
            assert f"reloaded {file}" in told(served, "changed: serve.upstream")
        eventually(served, b"other", times=20)
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "restarting" not in printed
    assert "Traceback" not in printed


def test_without_a_file_there_is_nothing_to_read(vendors: tuple[str, str]) -> None:
    """A hangup ends the process, as any other: a closed terminal leaves no server behind."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a child inherits that
    with serving("--upstream", vendors[0]) as served:
        assert served.get("/") == b"one"
        code, _ = served.end(signal.SIGHUP)
    assert code == -signal.SIGHUP
    assert Origin.of("", {}) is None


def test_what_is_fixed_exists() -> None:
    """Every key that cannot change is one."""
    assert {path for path, _ in keys()} >= FIXED


def test_what_is_fixed_is_as_it_was_at_the_start() -> None:
    """With the source that it had then; all else is new, with its own."""
    start = resolve({"store": "redis://one", "serve": {"port": 1}, "tool_call_loop": {"max_sessions": 7}}, {})
    env = {
        "CALLFUSE_STORE": "redis://other",
        "CALLFUSE_STORE_TIMEOUT_S": "9",
        "CALLFUSE_SERVE_PORT": "2",
        "CALLFUSE_SERVE_HOST": "::",
        "CALLFUSE_ADMIN_PATH": "/a",
        "CALLFUSE_WINDOW": "9",
    }
    held = keep_fixed(resolve(env=env), start)
    loop = {"window": 9, "max_sessions": 7}
    assert held.config == resolve({"store": "redis://one", "tool_call_loop": loop, "serve": {"port": 1}}, {}).config
    assert held.sources == {
        ("store",): "keyword",
        ("serve", "port"): "keyword",
        ("tool_call_loop", "max_sessions"): "keyword",
        ("tool_call_loop", "window"): "environment variable CALLFUSE_WINDOW",
    }


def test_the_version_of_a_file(tmp_path: Path) -> None:
    """Another one after each write; none for what is not there."""
    file = tmp_path / "c.yaml"
    assert file_version(str(file)) is None
    file.write_text("{}")
    first = file_version(str(file))
    file.write_text("{ }")
    assert file_version(str(file)) not in (None, first)
