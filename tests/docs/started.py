"""What the pages show that tell how to begin: each text is printed anew by the page's own blocks.

The model is scripted: it searches for the ferry until a result tells it to stop, or, stubborn, for ever.
"""

import io
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.testing import ScriptedVendor, looping_model, served
from tests.cli.processes import CLEAN, PLAIN
from tests.cli.test_serve import PATIENCE_S, TOKEN, Served, serving
from tests.docs import shell
from tests.docs.blocks import Block, blocks_of
from tests.docs.world import World

START = "docs/start"
FERRY = {"query": "Svalbrook ferry"}
FOUND = "The harbour office lists Sundays 10:15 and 16:40."
LISTED = "There is one file, notes.txt."
CODING_AGENT = """
import json, os, urllib.request
tools = [{"type": "function", "function": {"name": "Bash", "parameters": {"type": "object"}}}]
messages = [{"role": "user", "content": "List the files."}]
headers = {"content-type": "application/json", "x-session-id": "234e980b-ec52-4e02-af68-f1348cb8a060"}
while True:
    body = json.dumps({"model": "claude", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["message"])
    if not (calls := messages[-1].get("tool_calls")):
        break
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": "notes.txt"} for call in calls]
print(messages[-1]["content"])
"""
"""In place of Claude Code, which `tests/cli/test_run_agents.py` runs: it lists the files until its model answers."""
RELOAD_S = 0.05

Prints = Callable[[Block, World, Path], str]


def file_of(page: str, name: str) -> Block:
    """The block of a page that is a file of this name."""
    [block] = [block for block in blocks_of(page) if block.file == name]
    return block


def ferry_model(*, stubborn: bool = False) -> ScriptedVendor:
    """The vendor of most of these pages."""
    return ScriptedVendor(looping_model("search_web", FERRY, conclusion=FOUND, stubborn=stubborn))


def executed(block: Block, **replaced: str) -> str:
    """What a Python block prints; `replaced` names texts of the page and what stands in their place."""
    text = block.text
    for shown, put in replaced.items():
        text = text.replace(shown, put)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("OPENAI_API_KEY", "none")
        exec(compile(text, block.page, "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def run_agent(url: str) -> str:
    """What the small agent of the pages prints, with the guard at this address."""
    return executed(file_of(f"{START}/vendor.md", "agent.py"), **{"http://127.0.0.1:8100": url})


@contextmanager
def logged(level: int) -> Iterator[list[str]]:
    """The messages of the logger `callfuse` from this level on."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("callfuse"), Keeping()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _coding_agent(*, stubborn: bool) -> Prints:
    """`callfuse run` with an agent that lists files; its output, then that of callfuse."""

    def prints(block: Block, world: World, folder: Path) -> str:
        call = {"command": "ls", "description": "List"}
        vendor = ScriptedVendor(looping_model("Bash", call, conclusion=LISTED, stubborn=stubborn))
        with served(vendor) as url:
            done = subprocess.run(
                [sys.executable, "-m", "callfuse", "run", "--", sys.executable, "-c", CODING_AGENT],
                env={**CLEAN, **PLAIN, "OPENAI_BASE_URL": f"{url}/v1"},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        assert done.returncode == (3 if stubborn else 0), done.stderr
        return done.stdout + done.stderr

    return prints


def _blocked(block: Block, world: World, folder: Path) -> str:
    """The log of a guard that blocks the agent which lists files."""
    vendor = ScriptedVendor(looping_model("Bash", {"command": "ls", "description": "List"}, stubborn=True))
    with logged(logging.WARNING) as lines, served(CallFuseMiddleware(vendor, {"tool_call_loop": {}})) as url:
        command = [sys.executable, "-c", CODING_AGENT]
        env = {**CLEAN, **PLAIN, "OPENAI_BASE_URL": f"{url}/v1"}
        subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE_S, check=True)
    return "\n".join(lines)


def _mounted(block: Block, world: World, folder: Path) -> str:
    """The log of a mounted middleware while the agent loops."""
    with logged(logging.WARNING) as lines, served(CallFuseMiddleware(ferry_model(), {"tool_call_loop": {}})) as url:
        run_agent(url)
    return "\n".join(lines)


@contextmanager
def _guard(*arguments: str, **env: str) -> Iterator[Served]:
    """`callfuse serve` before the vendor of these pages; an empty variable says nothing."""
    with served(ferry_model()) as vendor, serving("--upstream", vendor, *arguments, **env) as guard:
        guard.greeting = guard.greeting.replace(vendor, "https://api.openai.com")
        yield guard


def _greeting(block: Block, world: World, folder: Path) -> str:
    """All lines with which `callfuse serve` begins before the vendor of the page, where nobody has set a token."""
    with serving("--upstream", "https://api.openai.com", CALLFUSE_ADMIN_TOKEN="") as guard:
        guard.get("/_callfuse/ready")
        return guard.greeting + guard.end(signal.SIGTERM)[1]


def _agent(block: Block, world: World, folder: Path) -> str:
    """The small agent's output."""
    with _guard() as guard:
        return run_agent(f"http://127.0.0.1:{guard.port}")


def _log(block: Block, world: World, folder: Path) -> str:
    """The log of `callfuse serve` meanwhile."""
    with _guard() as guard:
        run_agent(f"http://127.0.0.1:{guard.port}")
        return guard.end(signal.SIGTERM)[1]


def _loop(block: Block, world: World, folder: Path) -> str:
    """What the page's loop prints."""
    return executed(file_of(block.page, "loop.py"))


def _observed(*command: str) -> Prints:
    """What the admin page or a command tells after an agent has looped that was only observed."""

    def prints(block: Block, world: World, folder: Path) -> str:
        with _guard(CALLFUSE_MODE="observe") as guard:
            run_agent(f"http://127.0.0.1:{guard.port}")
            if not command:
                with guard.asked("/_callfuse/metrics", {"authorization": f"Bearer {TOKEN}"}) as answer:
                    return answer.read().decode()
            env = {**world.environment(folder), "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
            url = f"http://127.0.0.1:{guard.port}/_callfuse"
            return shell.in_process([*command, "--url", url], env, folder).output

    return prints


def _ready(block: Block, world: World, folder: Path) -> str:
    """What a guard that nobody has asked for anything says of itself."""
    with _guard() as guard:
        return guard.get("/_callfuse/ready").decode()


def _replayed(block: Block, world: World, folder: Path) -> str:
    """The page's own run, replayed."""
    [run] = [one for one in blocks_of(block.page) if one.language == "json"]
    (folder / "run.json").write_text(run.text, encoding="utf-8")
    env = {**world.environment(folder), "COLUMNS": "200"}
    return shell.in_process(["replay", "run.json", "--show", "1"], env, folder).output


def _tuned(block: Block, world: World, folder: Path) -> str:
    """What the commands of the block before print."""
    *_, before = [one for one in blocks_of(block.page) if one.language == "sh" and one.line < block.line]
    return shell.run(before, world, folder)


def _verdict(block: Block, world: World, folder: Path) -> str:
    """The page's example: what its log tells, without the names of sessions, and what it prints."""
    with logged(logging.DEBUG) as lines:
        printed = executed(file_of(block.page, "verdict.py"))
    told = [re.sub(r"^(?:Guard|Verdict) in session \w+: ", "", line) for line in lines]
    return "\n".join([*told, printed])


def _changed(right: str, wanted: str) -> Prints:
    """What `callfuse serve` tells once its file has changed to this."""

    def prints(block: Block, world: World, folder: Path) -> str:
        file = folder / "callfuse.yaml"
        with served(ferry_model()) as vendor:
            file.write_text(f"tool_call_loop:\n  mode: observe\nserve: {{upstream: {vendor}}}\n", encoding="utf-8")
            with serving("--config", str(file)) as guard:
                file.write_text(f"tool_call_loop:\n  {right}\nserve: {{upstream: {vendor}}}\n", encoding="utf-8")
                assert guard.process.stderr is not None
                lines = [guard.greeting]
                until = time.monotonic() + PATIENCE_S
                while not any(wanted in line for line in lines) and time.monotonic() < until:
                    lines.append(guard.process.stderr.readline())
                return "".join([*lines, guard.end(signal.SIGTERM)[1]]).replace(str(file), file.name)

    return prints


def check_verdict(left: Any) -> None:
    """The vendor was asked a second time, with guidance."""
    assert [bool(request.guidance) for request in left["vendor"].requests] == [False, True]


PRINTED: Mapping[tuple[str, str], Prints] = {
    (f"{START}/agent.md", LISTED): _coding_agent(stubborn=False),
    (f"{START}/agent.md", "[callfuse] Stopped"): _coding_agent(stubborn=True),
    (f"{START}/app.md", "Tool call loop detected"): _mounted,
    (f"{START}/vendor.md", "callfuse 0.2.0 on"): _greeting,
    (f"{START}/vendor.md", "1 search_web"): _agent,
    (f"{START}/vendor.md", "2026-"): _log,
    (f"{START}/loop.md", "(search runs)"): _loop,
    (f"{START}/operator.md", '{"status"'): _ready,
    (f"{START}/operator.md", "callfuse_exchanges_total"): _observed(),
    (f"{START}/operator.md", "bec990469b82cec852250384b506a2b5"): _observed("top", "--once"),
    (f"{START}/recordings.md", "source  rule"): _replayed,
    (f"{START}/recordings.md", "crm"): _tuned,
    ("docs/tasks/why-blocked.md", "[callfuse] Stopped"): _coding_agent(stubborn=True),
    ("docs/tasks/why-blocked.md", "Tool call loop detected"): _blocked,
    ("docs/verdict.md", "choice 0: PASSING"): _verdict,
    ("docs/verdict.md", "choice 0: HOLDING"): _verdict,
    ("docs/verdict.md", "kind=repeat"): _verdict,
    ("docs/verdict.md", "the vendor was asked"): _verdict,
    ("docs/verdict.md", "{'role'"): _verdict,
    ("docs/operating.md", "2026-11-23 16:26:49,495 INFO"): _changed("mode: chance_then_block", "reloaded "),
    ("docs/operating.md", "2026-11-23 16:27:59,282 ERROR"): _changed("enabled: yess", "use true or false"),
}
"""Blocks of output of these pages, by page and beginning: what prints it."""
