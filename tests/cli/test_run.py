"""`callfuse run` as a process of its own, with commands that ask a scripted vendor."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callfuse.testing import Answer, Call, ScriptedVendor, looping_model, served
from tests.cli.processes import CLEAN, PLAIN, callfuse
from tests.support.rules import StrictVendor

AGENT = str(Path(__file__).with_name("small_agent.py"))
PATIENCE_S = 60
FOUND = "repeat of search, {} with a limit of 3: {} (session "


GOES_ON = """
import json, os, urllib.request
tools = [{"type": "function", "function": {"name": "search"}}]
def ask(messages):
    body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"x-session-id": "one"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
messages = [{"role": "user", "content": "Find it."}]
for turn in range(4):
    said = ask(messages)
    messages.append(said)
    for one in said.get("tool_calls") or ():
        messages.append({"role": "tool", "tool_call_id": one["id"], "content": "none"})
    if not said.get("tool_calls"):
        messages.append({"role": "user", "content": "Go on otherwise."})
"""
"""A program that goes on after a block, in the same session."""


def agent(*arguments: str) -> list[str]:
    """The command line of an agent."""
    return [sys.executable, AGENT, *arguments]


@pytest.fixture
def stubborn() -> Iterator[str]:
    """The URL of a vendor whose model makes the same call for ever."""
    with served(StrictVendor(looping_model("search", {"query": "it"}, stubborn=True))) as url:
        yield url


def test_a_block_that_ends_the_run_is_3(stubborn: str) -> None:
    """The agent gets the block's text and ends with 0; who has called it learns of the block."""
    done = callfuse("run", "--upstream", stubborn, "--", *agent("OPENAI_BASE_URL", "20"))
    assert done.returncode == 3
    assert done.stdout.startswith("[callfuse] Stopped a tool call loop")
    first, second, third = done.stderr.splitlines()
    assert first.startswith(
        "callfuse: 3 exchanges of 1 session guarded, 4 calls: 1 loop found (2 findings), 2 calls withheld, about "
    )
    assert second.startswith(f"callfuse:  {FOUND.format(4, 'steer, then block')}")
    assert third.startswith("callfuse: a block ended the run of 1 session: ")


def test_a_block_wins_over_the_command_s_own_code(stubborn: str) -> None:
    """Agents that fail because of it exit as they like."""
    done = callfuse("run", "--upstream", stubborn, "--", *agent("OPENAI_BASE_URL", "20", "1"))
    assert done.returncode == 3


@pytest.mark.parametrize("code", [0, 7])
def test_without_a_block_the_code_is_the_command_s(code: int) -> None:
    """A loop that guidance has ended is told, and no fault. The vendor is that of the variable."""
    with served(StrictVendor(looping_model("search", {"query": "it"}))) as url:
        done = callfuse("run", *agent("OPENAI_BASE_URL", "20", str(code)), OPENAI_BASE_URL=f"{url}/v1")
    assert done.returncode == code
    assert done.stdout == "I could not find it, so here is what I know without it.\n"
    assert FOUND.format(3, "steer") in done.stderr
    assert "ended" not in done.stderr


def test_what_goes_on_after_a_block_has_not_ended_by_it(stubborn: str) -> None:
    """The same session goes on, with other calls."""
    answers = [Answer(calls=[Call("search", {"query": "it"})])] * 5
    more = [Answer(calls=[Call("search", {"query": str(number)})]) for number in range(3)]
    with served(ScriptedVendor([*answers[:4], *more])) as url:
        done = callfuse("run", "--upstream", url, "--", sys.executable, "-c", GOES_ON)
    assert "then block" in done.stderr
    assert (done.returncode, "ended" in done.stderr) == (0, False)


def test_several_vendors_are_led_by_path() -> None:
    """One command asks two vendors: each request finds its own, as the variables have named it."""
    one, two = (StrictVendor([Answer(name)]) for name in ("one", "two"))
    with served(one) as first, served(two) as second:
        both = f"{' '.join(agent('OPENAI_BASE_URL', '1'))}; {' '.join(agent('OPENAI_API_BASE', '1'))}"
        env = {"OPENAI_BASE_URL": f"{first}/v1", "OPENAI_API_BASE": f"{second}/v1"}
        done = callfuse("run", "--", "sh", "-c", both, **env)
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    assert "callfuse: 2 exchanges of 1 session guarded, 0 calls: no loop found\n" in done.stderr


def test_a_command_that_asks_nobody_is_told() -> None:
    """Its own output stays alone on stdout; stderr says what it was given, without credentials."""
    done = callfuse("run", "--", "echo", "hello", ANTHROPIC_BASE_URL="https://me:s3cret@gateway.example/x")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "callfuse: the command did not use a model through callfuse." in done.stderr
    assert "/anthropic/x for https://***@gateway.example\n" in done.stderr
    assert "s3cret" not in done.stderr


def test_stdout_is_the_command_s_alone() -> None:
    """Though stderr is closed."""
    command = f"{sys.executable} -m callfuse run -- echo hello 2>&-"
    done = subprocess.run(["sh", "-c", command], env=CLEAN | PLAIN, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "hello\n")


STRANGER = """
import os, urllib.error, urllib.request
from urllib.parse import urlsplit
base = urlsplit(os.environ["OPENAI_BASE_URL"])
own = base.path.split("/")[1]
for place in ("", "/", f"/{own[:-1]}", f"/{own}x", f"/x/../{own}", "/%2e", f"/{own}"):
    path = f"{place}/openai/v1/models"
    try:
        print(urllib.request.urlopen(f"http://{base.netloc}{path}").status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""
"""A program that looks for the guard by its port alone; the last path is that which it was given."""


def test_who_finds_the_port_is_not_served() -> None:
    """Another user of the machine, or a page in a browser: credentials of a base URL are for the command alone."""
    asked: list[tuple[str, bytes]] = []

    async def gateway(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        asked.append((scope["path"], dict(scope["headers"]).get(b"authorization", b"")))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with served(gateway) as url:
        own = url.replace("//", "//me:s3cret@") + "/v1"
        done = callfuse("run", "--", sys.executable, "-c", STRANGER, OPENAI_BASE_URL=own)
    assert done.stdout.split() == ["404"] * 6 + ["200"]
    assert asked == [("/v1/models", b"Basic bWU6czNjcmV0")]


@pytest.mark.parametrize(
    ("arguments", "env", "code", "said"),
    [
        (["no-such-program"], {}, 127, "callfuse run: no-such-program: No such file or directory"),
        (["/"], {}, 126, "callfuse run: /: Permission denied"),
        (["true"], {"OPENAI_BASE_URL": "nowhere"}, 2, "callfuse run: OPENAI_BASE_URL: this environment variable"),
        (["--upstream", "nowhere", "true"], {}, 2, "callfuse run: serve.upstream = 'nowhere' (option --upstream): use"),
        (["--config", "/nowhere.yaml", "true"], {}, 2, "callfuse run: /nowhere.yaml: cannot read this file"),
        (["--log", "/nowhere/log", "true"], {}, 2, "callfuse run: --log /nowhere/log: cannot be written: No such file"),
        ([], {}, 2, "Usage: callfuse run"),
    ],
)
def test_what_cannot_run_says_why(arguments: list[str], env: dict[str, str], code: int, said: str) -> None:
    """One line, and the exit code that shells use."""
    done = callfuse("run", *arguments, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "did not use a model" not in done.stderr


def test_settings_hold_and_a_log_is_written(stubborn: str, tmp_path: Path) -> None:
    """The environment's mode is the guard's; findings and exchanges are logged only to the file that was asked for."""
    log = tmp_path / "guard.log"
    command = ["run", "--upstream", stubborn, "--log", str(log), "--", *agent("OPENAI_BASE_URL", "6")]
    done = callfuse(*command, TOOL_LOOP_MODE="warn")
    assert done.returncode == 0
    assert FOUND.format(6, "warn") in done.stderr
    assert "Tool call loop detected" in log.read_text()
    assert "Tool call loop detected" not in done.stderr


WAITING = "trap 'echo got {0}; exit 5' {0}; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1"])
def test_signals_go_on_to_the_command(name: str) -> None:
    """What ends the guard is the command's end."""
    command = [sys.executable, "-m", "callfuse", "run", "--", "sh", "-c", WAITING.format(name)]
    with subprocess.Popen(
        command, env=CLEAN | PLAIN, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (5, f"got {name}\n")


def test_a_signal_that_kills_the_command_is_told_as_shells_do() -> None:
    """128 and its number."""
    assert callfuse("run", "--", "sh", "-c", "kill -KILL $$").returncode == 137


COUNTING = "n=0; trap 'n=$((n+1))' INT; echo ready; sleep 1 & wait; sleep 0.5 & wait; echo counted $n"


def test_ctrl_c_at_a_terminal_comes_once() -> None:
    """The terminal itself sends it to the command, which has the terminal."""
    pid, leader = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "callfuse", "run", "--", "sh", "-c", COUNTING],
            CLEAN | PLAIN,
        )
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while b"counted" not in seen and time.monotonic() < deadline:
        had = b"ready" in seen
        seen += os.read(leader, 1024)
        if b"ready" in seen and not had:
            os.write(leader, b"\x03")
    assert b"counted 1" in seen
    _, status = os.waitpid(pid, 0)
    os.close(leader)
    assert os.waitstatus_to_exitcode(status) == 0
