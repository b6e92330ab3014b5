"""`callfuse top` against a running `callfuse serve`, over its restart, and against servers that are none."""

import http.client
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.processes import CLEAN, callfuse
from tests.cli.test_feedback import looping
from tests.cli.test_serve import PATIENCE_S, TOKEN, serving
from tests.support.kits import KITS
from tests.support.meeting import ask
from tests.support.plain import spin
from tests.support.redis import free_port

__all__ = ["looping"]

pytestmark = pytest.mark.slow
CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def turn(port: int, session: str, times: int) -> None:
    """An agent that has made the same call so many times asks for the next one."""
    asked = ask(CHAT, spin(times), stream=False)
    headers = {"content-type": "application/json", "x-callfuse-session-id": session}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", asked.path, asked.body, headers)
        connection.getresponse().read()


def top(url: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`callfuse top` in a pipe."""
    return callfuse("top", "--url", url, *options, **{"CALLFUSE_ADMIN_TOKEN": TOKEN, **env})


def test_what_there_is_now(looping: str) -> None:
    """Sessions, the newest first, with their beads; only one of them where that is asked for; the token is obeyed."""
    with serving("--upstream", looping, TOOL_LOOP_MODE="block") as served:
        for session, times in (("one", 0), ("two", 0), ("two", 1), ("two", 2)):
            turn(served.port, session, times)
        url = f"http://127.0.0.1:{served.port}/_callfuse/"
        shown = top(url, "--once", PYTHONIOENCODING="utf-8")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert not CONTROL.search(shown.stdout)
        assert "4 exchanges   4 calls" in shown.stdout
        assert "1 blocked" in shown.stdout
        assert re.search(
            r"\ntwo  3 calls · 1 finding · 1 loop · 1 blocked · .* · openai-chat\n   A   A  [( ]A[) ]▌\n", shown.stdout
        )
        assert shown.stdout.index("\ntwo  ") < shown.stdout.index("\none  ")
        plain = top(url, PYTHONIOENCODING="ascii")
        assert (plain.returncode, plain.stderr) == (0, "")
        assert re.search(r"\n   A   A  [( ]A[) ]\|\n", plain.stdout)
        alone = top(url, "--session", "one")
        assert ("\none  " in alone.stdout, "\ntwo  " in alone.stdout) == (True, False)
        stranger = top(url, "--once", CALLFUSE_ADMIN_TOKEN="another-token-than-that")
        assert (stranger.returncode, stranger.stdout) == (1, "")
        assert "/_callfuse: the server refused the token in CALLFUSE_ADMIN_TOKEN; use the one" in stranger.stderr


class Terminal:
    """`callfuse top` in a terminal, and all that it has written there."""

    def __init__(self, url: str) -> None:
        self._leader, follower = pty.openpty()
        env = CLEAN | {"CALLFUSE_ADMIN_TOKEN": TOKEN, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        command = [sys.executable, "-m", "callfuse", "top", "--url", url]
        self.process = subprocess.Popen(
            command, env=env, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
        )
        os.close(follower)
        self.seen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._leader, 65536)
            except OSError:
                return
            self.seen += chunk.decode("utf-8", "replace")

    def until(self, text: str) -> None:
        """Wait until something is written anew."""
        begun, end = len(self.seen), time.monotonic() + PATIENCE_S
        while text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen[begun:]):
            assert self.process.poll() is None, self.seen
            assert time.monotonic() < end, f"no {text!r} in {self.seen[-3000:]!r}"
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        os.close(self._leader)
        return code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_goes_on_when_the_server_restarts(looping: str, number: signal.Signals) -> None:
    """It says that the server is lost, and then shows what the new process tells; Ctrl-C ends it with 0 and gives the
    screen back."""
    with serving("--upstream", looping) as served:
        port = served.port
        shown = Terminal(f"http://127.0.0.1:{port}/_callfuse")
        try:
            shown.until("live")
            turn(port, "before", 0)
            shown.until("before")
        finally:
            served.process.terminate()
            served.process.wait(PATIENCE_S)
    shown.until("lost, reconnecting")
    with serving("--upstream", looping, "--port", str(port)):
        shown.until("live")
        turn(port, "after", 0)
        shown.until("after")
        assert shown.end(number) == 0
    assert shown.seen.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in shown.seen
    assert "Traceback" not in shown.seen


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address of a server that answers in one way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/_callfuse"
        server.shutdown()
        thread.join()


def says(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            says(501, b'{"error": "the page needs another package: pip install"}'),
            "needs another package",
        ),
        (says(403, b'{"error": "\\u001b[31mno"}'), r"\x1b[31mno"),
        (says(404, b"nothing here"), "the server answered 404"),
        (says(302, b"", location="http://127.0.0.1:9/"), "the server answered 302"),
        (says(200, b"<html>", content_type="text/html"), "is not a live page"),
        (says(200, b"\x1b" * 10_000_000, content_type="text/event-stream"), "is not a live page"),
    ],
)
def test_what_is_no_page(answer: Callable[[BaseHTTPRequestHandler], None], why: str) -> None:
    """Is told in one line."""
    with answering(answer) as url:
        ended = top(url, "--once")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert why in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not CONTROL.search(ended.stderr)


def test_what_cannot_be_asked() -> None:
    """No server, no token, no address: each is told in a line."""
    url = f"http://127.0.0.1:{free_port()}/_callfuse"
    for at, env, code, why in (
        (url, {}, 1, "is `callfuse serve` running there?"),
        ("here", {}, 2, "the address of the admin page"),
        ("http://[::1", {}, 2, "the address of the admin page"),
        (url, {"CALLFUSE_ADMIN_TOKEN": ""}, 2, "CALLFUSE_ADMIN_TOKEN"),
    ):
        ended = top(at, "--once", **env)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert why in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


EVIL = "\x1b]0;pwned\x07\x1b[2J[bold red]\u202e\r\n\x9b31m"


def pages(handler: BaseHTTPRequestHandler) -> None:
    """A page that is not ours: texts that steer a terminal, and signs and numbers that nothing has."""
    bead = {"tool": EVIL, "sign": -(10**30), "action": EVIL, "held": 1e15}
    lane = {"calls": 10**30, "holding": -1.0, "blown": True, "beads": [bead]}
    place = {"model": EVIL, "dialect": EVIL, "used": -1e15, "counts": {EVIL: 1, "blocked": 0.5}, "more_lanes": 10**30}
    sessions = [{"session": name, **place, "changes": [EVIL], "lanes": [lane]} for name in (EVIL, "good")]
    page = {"server": EVIL, "version": 1, "now": 1e15, "matching": 10**30, "sessions": sessions}
    rates = {"bucket_s": 10**9, "totals": {EVIL: 1e15}, "series": {"calls": [0.5]}}
    says(200, json.dumps(rates if handler.path.endswith("/rates") else page).encode())(handler)


def test_foreign_texts_steer_no_terminal() -> None:
    """Whatever a page has in names, and whatever numbers it has, no control character is written, and the rest is."""
    with answering(pages) as url:
        ended = top(url, "--once")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not CONTROL.search(ended.stdout)
    assert "[bold red]" in ended.stdout
    assert "\ngood  " in ended.stdout
