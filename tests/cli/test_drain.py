"""A process that is told to stop: it is not ready first, serves what is still on its way, and then lets streams end."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator, MutableMapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from callfuse.cli.drain import Drain
from tests.cli.test_reload import told, vendors
from tests.cli.test_serve import PATIENCE_S, TOKEN, Served, Vendor, serving, vendor

__all__ = ["vendor", "vendors"]
HOURS = "9999"


class Probe:
    """An app whose lifespan goes on until a test ends it, and which answers everything with one header."""

    def __init__(self) -> None:
        self.started, self.end = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            self.started.set()
            await self.end.wait()
        else:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body", "body": b"c"})


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that the server's own handler gets."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def _never() -> Any:
    """Nothing comes."""
    await asyncio.Event().wait()


async def headers_of(app: Drain, version: str) -> list[tuple[bytes, bytes]]:
    """Those of an answer."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "http_version": version}, _never, send)
    assert sent[1:] == [{"type": "http.response.body", "body": b"c"}]
    found: list[tuple[bytes, bytes]] = sent[0]["headers"]
    return found


async def test_the_signal_to_stop_is_told(heard: list[int]) -> None:
    """At once, and to the server's own handler, which is there again at the end."""
    own = signal.getsignal(signal.SIGTERM)
    probe, told_to_stop = Probe(), asyncio.Event()
    drain = Drain(probe, 0, told_to_stop.set)
    lifespan = asyncio.ensure_future(drain({"type": "lifespan"}, _never, _never))  # type: ignore[arg-type]
    await probe.started.wait()
    assert not told_to_stop.is_set()
    signal.raise_signal(signal.SIGTERM)
    await told_to_stop.wait()
    assert heard == [signal.SIGTERM]
    assert await headers_of(drain, "1.1") == [(b"a", b"b")]
    probe.end.set()
    await lifespan
    assert signal.getsignal(signal.SIGTERM) is own


async def test_the_server_s_handler_waits(heard: list[int]) -> None:
    """Until a second signal; meanwhile answers of HTTP/1.1 end their connections."""
    probe, told_to_stop = Probe(), asyncio.Event()
    drain = Drain(probe, float(HOURS), told_to_stop.set)
    lifespan = asyncio.ensure_future(drain({"type": "lifespan"}, _never, _never))  # type: ignore[arg-type]
    await probe.started.wait()
    assert await headers_of(drain, "1.1") == [(b"a", b"b")]
    signal.raise_signal(signal.SIGTERM)
    await told_to_stop.wait()
    assert heard == []
    assert await headers_of(drain, "1.1") == [(b"a", b"b"), (b"connection", b"close")]
    assert await headers_of(drain, "2") == [(b"a", b"b")]
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    probe.end.set()
    await lifespan


async def test_the_server_s_handler_gets_the_signal_later() -> None:
    """Of itself."""
    probe, arrived = Probe(), asyncio.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: arrived.set())
    lifespan = asyncio.ensure_future(Drain(probe, 0.01, lambda: None)({"type": "lifespan"}, _never, _never))  # type: ignore[arg-type]
    await probe.started.wait()
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        await arrived.wait()
    probe.end.set()
    await lifespan
    signal.signal(signal.SIGTERM, before)


def readiness(served: Served) -> tuple[int, str]:
    """The status of `ready` and what it says of serving."""
    with served.asked("/_callfuse/ready", {"authorization": f"Bearer {TOKEN}"}) as answer:
        return answer.status, json.loads(answer.read())["serving"]


def test_ready_fails_first_and_then_streams_end(vendor: str) -> None:
    """New connections are served while the process drains; after it an open stream ends in peace."""
    with serving("--upstream", vendor, CALLFUSE_SERVE_DRAIN_S=HOURS) as served, served.asked("/slow") as stream:
        assert stream.read(3) == b"/sl"
        assert readiness(served) == (200, "ok")
        served.process.send_signal(signal.SIGTERM)
        assert "draining: ready answers 503, and requests are served for another 9999 s" in told(served, "draining")
        assert readiness(served) == (503, "failed")
        with served.asked("/late") as answer:
            assert (answer.status, answer.getheader("connection")) == (200, "close")
            assert answer.read() == b"/late and its end"
        served.process.send_signal(signal.SIGTERM)
        assert told(served, "stopping")
        Vendor.go_on.set()
        assert stream.read() == b"ow and its end"
        served.process.communicate(timeout=PATIENCE_S)
        assert served.process.returncode == 0


def test_workers_drain_too(vendor: str) -> None:
    """Each by itself, at the signal to their parent; all end with 0."""
    env = {"CALLFUSE_SERVE_DRAIN_S": "1"}
    with serving("--upstream", vendor, "--workers", "2", **env) as served:
        while readiness(served) != (200, "ok"):
            time.sleep(0.05)
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert printed.count("draining: ready answers 503") == 2
    assert "Traceback" not in printed


class Asking(threading.Thread):
    """Asks again and again over one connection, until `enough` is set."""

    def __init__(self, port: int, enough: threading.Event) -> None:
        super().__init__()
        self.port, self.enough = port, enough
        self.answers: list[tuple[int, bytes]] = []

    def run(self) -> None:
        """Note status and body of each answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        while not self.enough.is_set():
            connection.request("GET", "/")
            with connection.getresponse() as answer:
                self.answers.append((answer.status, answer.read()))
        connection.close()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_new_settings_under_load(vendor: str, vendors: tuple[str, str], tmp_path: Path) -> None:
    """No request fails while settings change, each gets one of the two upstreams, and an open stream goes on."""
    file = tmp_path / "c.yaml"
    file.write_text(f"serve: {{upstream: {vendor}}}\n")
    enough = threading.Event()
    with serving("--config", str(file), CALLFUSE_SERVE_ACCESS_LOG="off") as served, served.asked("/slow") as stream:
        assert stream.read(3) == b"/sl"
        clients: list[Asking] = []
        for turn in range(10):
            file.write_text(f"serve: {{upstream: {vendors[turn % 2]}}}\n")
            served.process.send_signal(signal.SIGHUP)
            line = told(served, "reloaded ")
            assert line.endswith("changed: serve.upstream\n")
            if not clients:
                clients = [Asking(served.port, enough) for _ in range(4)]
                for one in clients:
                    one.start()
            seen = [len(one.answers) for one in clients]
            while any(len(one.answers) < count + 5 for one, count in zip(clients, seen, strict=True)):
                assert all(one.is_alive() for one in clients)
                time.sleep(0.01)
        enough.set()
        for one in clients:
            one.join()
        assert {answer for one in clients for answer in one.answers} == {(200, b"one"), (200, b"other")}
        Vendor.go_on.set()
        assert stream.read() == b"ow and its end"
        code, printed = served.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in printed
