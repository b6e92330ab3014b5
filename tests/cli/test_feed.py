"""The event feed of `callfuse serve`: two workers show the events of both, and no reader holds up its end."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from tests.cli.test_serve import PATIENCE_S, TOKEN, Served, Vendor, serving, vendor
from tests.support.redis import program, running

__all__ = ["vendor"]

pytestmark = pytest.mark.slow
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


class Feed:
    """An open feed of a server."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def next(self, name: str) -> dict[str, Any]:
        """The data of the next event of that name."""
        found = ""
        while line := self._answer.readline().decode().rstrip("\n"):
            if line.startswith("event: "):
                found = line.removeprefix("event: ")
            if line.startswith("data: ") and found == name:
                value = json.loads(line.removeprefix("data: "))
                assert isinstance(value, dict)
                self._answer.readline()
                return value
            if line.startswith("data: "):
                self._answer.readline()
        raise EOFError

    def rest(self) -> bytes:
        """All until its end."""
        return self._answer.read()


@contextmanager
def reading(served: Served) -> Iterator[Feed]:
    """A reader of the feed, on a connection of its own."""
    with served.asked("/_callfuse/events", AUTHORIZED) as answer:
        assert answer.status == 200
        yield Feed(answer)


def post(served: Served, session: str) -> None:
    """One exchange on a connection of its own, which either worker may take."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS})
    connection.request("POST", "/v1/chat/completions", body, {"x-callfuse-session-id": session})
    connection.getresponse().read()
    connection.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_readers_do_not_hold_up_the_end(vendor: str, workers: str) -> None:
    """An answer of the vendor may end, while feeds, which never end by themselves, are ended at once."""
    with serving("--upstream", vendor, "--workers", workers) as served, ThreadPoolExecutor(8) as threads:
        with reading(served) as first, reading(served) as second, served.asked("/slow") as slow:
            assert Vendor.half_sent.wait(PATIENCE_S)
            began = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            ends = [threads.submit(feed.rest) for feed in (first, second)]
            for end in ends:
                end.result(PATIENCE_S)
            took = time.monotonic() - began
            assert served.process.poll() is None, "it waits for the vendor's answer"
            threading.Timer(0.2, Vendor.go_on.set).start()
            assert slow.read() == b"/slow and its end"
        _, printed = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 0
    assert "Traceback" not in printed
    assert took < 20, "the limit of a shutdown is 30 s"


@pytest.mark.skipif(program() is None, reason="needs redis-server")
def test_two_workers_show_what_happens_at_both(vendor: str) -> None:
    """Through the store: every reader sees every exchange, whoever has taken it."""
    for server in running():
        with (
            serving("--upstream", vendor, "--workers", "2", "--store", server.url) as served,
            reading(served) as first,
            reading(served) as second,
            reading(served) as third,
        ):
            for number in range(12):
                post(served, f"session-{number}")
            for feed in (first, second, third):
                found = {feed.next("exchange")["gen_ai.conversation.id"] for _ in range(12)}
                assert found == {f"session-{number}" for number in range(12)}


class Receiver(BaseHTTPRequestHandler):
    """Takes what a webhook is sent."""

    taken: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        """One event."""
        self.taken.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""


def test_what_happens_last_is_sent(vendor: str) -> None:
    """The server ends when the webhook has it; the log names the host of the webhook, and no path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver, ThreadPoolExecutor(1) as threads:
        listening = threads.submit(receiver.serve_forever)
        hook = f"http://127.0.0.1:{receiver.server_address[1]}/s3cret"
        env = {"CALLFUSE_EVENTS_WEBHOOK": hook, "CALLFUSE_EVENTS_KINDS": "exchange"}
        with serving("--upstream", vendor, **env) as served:
            for number in range(20):
                post(served, f"session-{number}")
            code, printed = served.end(signal.SIGTERM)
        receiver.shutdown()
        listening.result(PATIENCE_S)
    assert (code, "s3cret" in printed) == (0, False)
    assert [one["gen_ai.conversation.id"] for one in Receiver.taken] == [f"session-{number}" for number in range(20)]
