"""`MCPMiddleware` between real servers and clients of MCP: FastMCP and the SDK, of both generations."""

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.outputs import missing_lines
from tests.hosts.environments import asked_for, environment, run_json
from tests.hosts.mounting import free_port
from tests.project.sources import PROJECT

pytestmark = [asked_for, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "mcp_scenarios.py"
NEW = ("mcp==2.3.0", "fastmcp==4.1.2")
"""They speak 2026-07-28 with each other, and 2025-11-25 if asked to (`legacy`)."""
OLD = ("mcp==1.30.0", "fastmcp==3.2.4")
"""These know sessions only."""


def run(packages: tuple[str, ...], *scenario: str) -> tuple[int, list[dict[str, Any]]]:
    """How often the tool has run, and what each of eight equal calls has brought."""
    done = run_json(environment(*packages), PROGRAM, *scenario)
    return done["runs"], done["results"]


@pytest.mark.parametrize("packages", [NEW, OLD], ids=["new", "old"])
def test_without_the_middleware_the_tool_runs_each_time(packages: tuple[str, ...]) -> None:
    """So that the tests below show something."""
    assert run(packages, "bare")[0] == 8


OF_FASTMCP = ["fastmcp", "fastmcp run", "fastmcp wrapped", "fastmcp mounted", "proxied", "client for each call"]
BOTH = [*OF_FASTMCP, "sdk", "sdk as json", "sdk stateless"]
NEW_ONLY = ["sdk legacy", "sdk legacy as json", "sdk legacy stateless", "progress", "resumed"]


@pytest.mark.parametrize(
    ("packages", "scenario"),
    [*((NEW, one) for one in (*BOTH, *NEW_ONLY)), *((OLD, one) for one in BOTH)],
    ids=[*(f"{one}, new" for one in (*BOTH, *NEW_ONLY)), *(f"{one}, old" for one in BOTH)],
)
def test_a_tool_does_not_run_in_a_loop(packages: tuple[str, ...], scenario: str) -> None:
    """Two of eight equal calls run, whatever the transport. All others bring the result of these, flagged as an error
    for its structured content; in sessions of their own, the notice alone."""
    runs, results = run(packages, scenario)
    alone = packages is OLD and scenario == "client for each call"
    assert runs == 2
    assert [len(one["texts"]) for one in results] == [1, 1, *[1 if alone else 2] * 6]
    assert [one["texts"][0] == "3" for one in results] == [True, True, *[not alone] * 6]
    assert [one["structured"] == {"result": 3} for one in results] == [True, True, *[not alone] * 6]
    assert all(one["texts"][-1].startswith("[callfuse]") for one in results[2:])
    assert [one["is_error"] for one in results] == [False] * 2 + [True] * 6


@pytest.mark.parametrize("packages", [NEW, OLD], ids=["new", "old"])
def test_what_may_change_something_is_not_said_to_have_done_so(packages: tuple[str, ...]) -> None:
    """The client reads an error, not that an email was sent."""
    runs, results = run(packages, "changing")
    assert runs == 2
    assert [one["texts"][0].partition(" ")[0] for one in results] == ["Email"] * 2 + ["[callfuse]"] * 6
    assert [one["is_error"] for one in results] == [False] * 2 + [True] * 6
    assert [one["structured"] for one in results[2:]] == [None] * 6


def test_the_page() -> None:
    """The same by the lines for FastMCP of `docs/mount/mcp.md`."""
    runs, results = run(NEW, "by the page")
    assert runs == 2
    assert [len(one["texts"]) for one in results] == [1, 1, 2, 2, 2, 2, 2, 2]


def _listens(port: int) -> bool:
    time.sleep(0.05)
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_the_first_page(tmp_path: Path) -> None:
    """Server and client of `docs/start/mcp.md`, as they stand there, print what it shows."""
    python = environment(*NEW, "uvicorn==0.54.0")
    blocks = blocks_of("docs/start/mcp.md")
    port = free_port()
    for block in blocks:
        if block.file:
            (tmp_path / block.file).write_text(block.text.replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    env = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "PYTHONUNBUFFERED": "1"}
    command = [str(python), "-m", "uvicorn", "server:app", "--port", str(port), "--log-level", "warning"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as server:
        while not _listens(port):
            assert server.poll() is None, server.communicate()[0]
        client = [str(python), "client.py"]
        done = subprocess.run(client, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        server.terminate()
        printed, _ = server.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    shown = [block.text for block in blocks if block.language == "text"]
    assert [missing_lines(text, real) for text, real in zip(shown, (done.stdout, printed), strict=True)] == [[], []]


def test_progress_reaches_the_client() -> None:
    """That of the calls that run."""
    assert [one["progress"] for one in run(NEW, "progress")[1]] == [3, 3, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("packages", [NEW, OLD], ids=["new", "old"])
def test_a_warning_is_added_to_the_result(packages: tuple[str, ...]) -> None:
    """The tool runs each time."""
    runs, results = run(packages, "warn")
    assert runs == 8
    assert [len(one["texts"]) for one in results] == [1, 1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("packages", [NEW, OLD], ids=["new", "old"])
def test_a_tool_that_fails_is_not_called_in_a_loop(packages: tuple[str, ...]) -> None:
    """Its error is given again, as an error."""
    runs, results = run(packages, "fastmcp failing")
    assert runs == 2
    assert all(one["is_error"] and "the disk is full" in one["texts"][0] for one in results)


def test_a_tool_that_does_not_exist() -> None:
    """The same."""
    runs, results = run(NEW, "unknown")
    assert runs == 0
    assert [one["texts"][0][:10] == "[callfuse]" for one in results] == [False] * 2 + [True] * 6


def test_a_tool_that_asks_the_user() -> None:
    """Each call is two requests, which are one call."""
    runs, results = run(NEW, "asking")
    assert runs == 4
    assert [one["texts"][0] for one in results] == ["ordered"] * 8
    assert len(results[2]["texts"]) == 2


def test_tokens_tell_callers_apart() -> None:
    """And nobody gets what was kept once its token is taken back: the server refuses it."""
    runs, results = run(NEW, "authenticated")
    assert runs == 4
    assert [len(one.get("texts", ())) for one in results] == [1, 1, 1, 1, 2, 0, 2]
    assert "error" in results[5]


@pytest.mark.parametrize("revision", ["auto", "legacy"])
def test_calls_that_time_out_may_be_tried_again(revision: str) -> None:
    """The client has cancelled them."""
    assert run(NEW, "timeouts", revision)[0] == 5
