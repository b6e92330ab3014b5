"""The live page of `callfuse serve` with two workers that share a Redis: either shows what has happened at both."""

import http.client
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callfuse.testing import ScriptedVendor, looping_model
from callfuse.testing import served as serving_app
from tests.cli.test_metrics import two_counting, workers_of
from tests.cli.test_serve import PATIENCE_S, TOKEN, Served, serving
from tests.support.redis import RedisServer, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="needs redis-server"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the workers in /proc"),
]
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


@pytest.fixture
def upstream() -> Iterator[str]:
    """A vendor whose model makes the same call again and again."""
    script = looping_model("search", {"query": "zebra crossing"}, stubborn=True)
    with serving_app(ScriptedVendor(script)) as url:
        yield url


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A store that may be ended, and started again."""
    server = RedisServer()
    server.start()
    yield server
    server.end()


def worker_of(port: int, served: Served) -> int:
    """The process that has taken a connection from this port."""
    ends = (f":{served.port:04X}", f":{port:04X}")
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    wanted = {f"socket:[{row[9]}]" for row in rows if (row[1][-5:], row[2][-5:]) == ends}
    for pid in workers_of(served):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it is closed meanwhile
                if str(file.readlink()) in wanted:
                    return pid
    raise AssertionError("no worker has it")


@contextmanager
def at_worker(served: Served, pid: int) -> Iterator[http.client.HTTPConnection]:
    """A connection that this one has taken."""
    for _ in range(500):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", "/_callfuse/health")
            connection.getresponse().read()
            if worker_of(connection.sock.getsockname()[1], served) == pid:
                yield connection
                return
    raise AssertionError("it takes none")


def told(served: Served, pid: int, below: str) -> dict[str, Any]:
    """What the page of a worker is told."""
    with at_worker(served, pid) as connection:
        connection.request("GET", f"/_callfuse/{below}", headers={"authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert answer.status == 200
        found: dict[str, Any] = json.loads(answer.read())
        return found


class Agent:
    """A session of an agent, whose exchanges may go to either worker."""

    def __init__(self, served: Served, session: str) -> None:
        self._served = served
        self.session = session
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the zebra crossing."}]

    def turn(self, pid: int) -> bytes:
        """One exchange; a call of its answer is made, and finds nothing."""
        body = json.dumps({"model": "gpt-4o", "messages": self._messages, "tools": TOOLS, "stream": True})
        headers = {"content-type": "application/json", "x-session-id": self.session}
        with at_worker(self._served, pid) as connection:
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer: bytes = connection.getresponse().read()
        if (found := re.search(rb'"id":"(call_\w+)"', answer)) is not None:
            function = {"name": "search", "arguments": '{"query":"zebra crossing"}'}
            call = {"id": found[1].decode(), "type": "function", "function": function}
            self._messages += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": "nothing was found"},
            ]
        return answer


def until(condition: Callable[[], bool], seen: Callable[[], object] = lambda: None) -> None:
    """Wait for it; else it is told what was `seen`."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, seen()
        time.sleep(0.05)


def beads_of(shown: dict[str, Any]) -> dict[str, list[str]]:
    """What was done with each call, by session."""
    found = [one for one in shown["sessions"] if one["lanes"]]
    return {one["session"]: [bead["action"] for lane in one["lanes"] for bead in lane["beads"]] for one in found}


def shows(served: Served, pid: int, expected: dict[str, list[str]]) -> bool:
    """Whether the page of a worker has these sessions, among others."""
    return beads_of(told(served, pid, "activity")).items() >= expected.items()


def is_shared(served: Served, pid: int) -> bool:
    """Whether the page of a worker shows what happens at all."""
    return not told(served, pid, "activity")["alone"]


def is_same(served: Served, pids: list[int]) -> bool:
    """Whether the pages of both workers have come to show the same, under the same name."""
    one, other = ({**told(served, pid, "activity"), "now": 0} for pid in pids)
    return one == other and one["alone"] is False


def has_results(served: Served, pids: list[int]) -> bool:
    """Whether both have the results of the calls that were made."""
    for pid in pids:
        (lane,) = told(served, pid, "activity/session?session=session-1")["lanes"]
        if not all("outcome" in bead for bead in lane["beads"][:2]):
            return False
    return True


def test_either_worker_shows_both(upstream: str, redis: RedisServer, tmp_path: Path) -> None:
    """Beads, holds, findings and results of sessions whose exchanges went to both, under one name; while the store is
    down each shows its own, and says so."""
    arguments = ("--upstream", upstream, "--workers", "2", "--store", redis.url)
    with serving(*arguments, TMPDIR=str(tmp_path), TOOL_LOOP_MODE="block") as served:
        two_counting(tmp_path)
        pids = workers_of(served)
        agents = [Agent(served, f"session-{number}") for number in range(3)]
        for turn in range(3):
            for number, agent in enumerate(agents):
                agent.turn(pids[(turn + number) % 2])
        expected = {agent.session: ["none", "none", "block"] for agent in agents}
        for pid in pids:
            until(partial(shows, served, pid, expected), partial(told, served, pid, "activity"))
        until(partial(is_same, served, pids), partial(told, served, pids[0], "activity"))
        until(partial(has_results, served, pids))
        details = [told(served, pid, "activity/session?session=session-1") for pid in pids]
        assert details[0]["lanes"] == details[1]["lanes"]
        first, second, third = details[0]["lanes"][0]["beads"]
        assert [bead["outcome"]["kind"] for bead in (first, second)] == ["no_data", "no_data"]
        assert third["held"] > 0
        assert (third["finding"]["count"], third["told"][:10]) == (3, "[callfuse]")
        assert told(served, pids[0], "rates")["totals"] == told(served, pids[1], "rates")["totals"]
        goes_on(served, redis, pids)
        code, printed = served.end(signal.SIGTERM)
    assert (code, "Traceback" in printed) == (0, False)


def goes_on(served: Served, redis: RedisServer, pids: list[int]) -> None:
    """The store ends, and begins again."""
    redis.end()
    for number, pid in enumerate(pids):
        agent = Agent(served, f"alone-{number}")
        agent.turn(pid)
        until(partial(shows, served, pid, {agent.session: ["none"]}))
    pages = [told(served, pid, "activity") for pid in pids]
    assert [page["alone"] for page in pages] == [True, True]
    assert pages[0]["server"] != pages[1]["server"]
    assert "alone-0" not in beads_of(pages[1])
    redis.start()
    for pid in pids:
        until(partial(is_shared, served, pid))
    Agent(served, "again").turn(pids[0])
    for pid in pids:
        until(partial(shows, served, pid, {"again": ["none"]}))
