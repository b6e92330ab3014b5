"""What a page says that a program prints, against what it prints.

Numbers that are never the same (times, ports, ids) count as equal; `...` stands for anything, alone in a line for any
lines.
"""

import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from benchmarks import fleet

from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest, served
from tests.docs import shell, started
from tests.docs.blocks import Block, blocks_of, is_block
from tests.docs.servers import wait_until
from tests.docs.world import BEARER, DESK, TIMEOUT_S, World, run_agent

USER = {"x-session-id": "abc", "authorization": "Bearer mine"}
_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b\d{13}-\d+\b"), "ID"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{4}\.\.\."), "..."),
    (re.compile(r"(?<=token )[\w-]{43}\b"), "TOKEN"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"\b\d+ (?:s|min) ago\b"), "N ago"),
    (re.compile(r"\b\d+(?:\.\d+)? (ms|s|MB|bytes waiting)\b"), r"N \1"),
    (re.compile(r"\b\d{10}(?:\.\d+)?\b"), "TIME"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"), "TIME"),
)


def without_varying(text: str) -> str:
    """The text with one word for each thing that is never the same."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


_PREFIX = r"(?:TIME |\S.*?: )?"
"""What a page may leave out of a line of a log: the time, and whose line it is."""
_METRIC = re.compile(r"\w+\{.*\} \d")


def missing_lines(shown: str, printed: str) -> list[str]:
    """The lines of a page that are not printed, in their order; metrics have none."""
    rest = [without_varying(line).rstrip() for line in printed.splitlines()]
    found = []
    for line in shown.splitlines():
        text = without_varying(line).rstrip()
        if text in ("", "..."):
            continue
        pattern = re.compile(_PREFIX + ".*".join(map(re.escape, text.split("..."))))
        at = next((n for n, one in enumerate(rest) if pattern.fullmatch(one)), None)
        if at is None:
            found.append(line)
        elif not _METRIC.match(line):
            del rest[: at + 1]
    return found


def run(block: Block, world: World, folder: Path) -> None:
    """Compare a block with what `PRINTED` has for it. What is JSON has the same keys, and the same kinds of values."""
    [prints] = [prints for (page, start), prints in PRINTED.items() if is_block(block, page, start)]
    printed = prints(block, world, folder)
    if block.language == "json":
        shown, real = json.loads(block.text), json.loads(printed)
        assert shape(shown) == shape(real)
    else:
        assert missing_lines(block.text, printed) == [], printed


def shape(value: Any) -> Any:
    """The keys, and the types of the values."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value).__name__


def run_console(block: Block, world: World, folder: Path) -> None:
    """Lines behind `$ ` are typed; the others are what they print."""
    typed = "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
    shown = "\n".join(line for line in block.text.splitlines() if not line.startswith("$ "))
    printed = shell.run(Block(block.page, block.line, "sh", f"{typed}\n"), world, folder)
    assert missing_lines(world.put(shown), printed) == [], printed


def _demo(block: Block, world: World, folder: Path) -> str:
    """The demo, once for all pages."""
    return _play_demo(world)


@cache
def _play_demo(world: World) -> str:
    """The demo, in a pipe of 100 columns, as fast as it can."""
    program = "from callfuse.cli.demo import run_demo; raise SystemExit(run_demo(plain=True, chunk_delay_s=0))"
    with tempfile.TemporaryDirectory() as home:
        env = {**world.environment(Path(home)), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def _of_the_command_before(block: Block, world: World, folder: Path) -> str:
    """What the commands in the last block of the page before this one print."""
    *_, before = [one for one in blocks_of(block.page) if one.language == "sh" and one.line < block.line]
    return shell.run(before, world, folder)


def _access_lines(block: Block, world: World, folder: Path) -> str:
    """Exchanges through a mounted middleware: one of a session's first, one that is steered, one without tools."""

    def script(request: VendorRequest) -> Answer:
        return Answer("Hello.") if request.dialect == "anthropic" else Answer(calls=[_next(request)])

    def _next(request: VendorRequest) -> Call:
        return Call("search", {"query": "other" if request.guidance else "it"})

    messages: list[Any] = [{"role": "user", "content": "Find it."}]
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    body: dict[str, Any]
    logger, lines = logging.getLogger("callfuse.access"), Lines()
    logger.setLevel("INFO")
    logger.addHandler(lines)
    with (
        served(CallFuseMiddleware(ScriptedVendor(script), {"tool_call_loop": {}})) as url,
        httpx.Client(base_url=url, headers={"x-session-id": "abc"}, timeout=TIMEOUT_S, trust_env=False) as http,
    ):
        for number in range(3):
            body = {"model": "gpt-4o", "messages": messages, "tools": tools}
            said = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
            messages += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "none"}]
            assert number == 2 or "other" not in str(said)
        wait_until(lambda: len(lines.written) == 3)  # a line is written when the client has the answer already
        body = {"model": "claude", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello?"}]}
        http.post("/v1/messages", json=body)
    logger.removeHandler(lines)
    return "\n".join(lines.written)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.written.append(record.getMessage())


def _top(block: Block, world: World, folder: Path) -> str:
    """`callfuse top` of the guard, which has seen the order desk."""
    env = {**world.environment(folder), "PYTHONIOENCODING": "utf-8"}
    arguments = ["top", "--once", "--session", DESK, "--url", f"{world.guard}/_callfuse"]
    return shell.in_process(arguments, env, folder).output


def _feed(block: Block, world: World, folder: Path) -> str:
    """The feed's first finding of a session that loops while somebody reads."""
    agent = threading.Thread(target=run_agent, args=(world.guard, "gpt-4o"), kwargs={"session": "abc"})
    lines: list[str] = []
    path = f"{world.guard}/_callfuse/events?kind=finding&session=abc"
    with (
        httpx.Client(timeout=TIMEOUT_S, trust_env=False) as http,
        http.stream("GET", path, headers=BEARER) as response,
    ):
        agent.start()
        for line in response.iter_lines():
            lines.append(line)
            if line.startswith("data:"):
                break
    agent.join(TIMEOUT_S)
    return "\n".join(lines)


def _ready(block: Block, world: World, folder: Path) -> str:
    """What the guard says of itself."""
    return world.get("/_callfuse/ready").text


def _chat(block: Block, world: World, folder: Path) -> str:
    """The block is what a user types: its commands are carried out, and the model reads what is left."""
    vendor = ScriptedVendor([Answer("A zebra crossing.")])
    body: dict[str, Any] = {"model": "m", "tools": [{"type": "function", "function": {"name": "search"}}]}
    with (
        served(CallFuseMiddleware(vendor, {"tool_call_loop": {}})) as url,
        httpx.Client(base_url=url, headers=USER, timeout=TIMEOUT_S, trust_env=False) as http,
    ):
        for text in (block.text, "!/status"):
            body["messages"] = [{"role": "user", "content": text}]
            answer = http.post("/v1/chat/completions", json=body).json()
    assert [one["content"].strip() for one in vendor.requests[0].body["messages"]] == [block.text.splitlines()[-1]]
    assert "tool-loop-mode = warn (" in answer["choices"][0]["message"]["content"]
    return block.text


def _fleet(block: Block, world: World, folder: Path) -> str:
    """The calculation for the streams that the page names."""
    return "\n".join(fleet.report(fleet.Load(1_000_000, 30, 20), fleet.Figures()))


Prints = Callable[[Block, World, Path], str]
PRINTED: Mapping[tuple[str, str], Prints] = {
    **started.PRINTED,
    ("docs/fleet.md", "1,000,000 streams"): _fleet,
    ("README.md", "Without callfuse"): _demo,
    ("docs/agents.md", "callfuse: 3 exchanges"): _of_the_command_before,
    ("docs/index.md", "1  search_web"): _demo,
    ("docs/observing.md", "openai-chat 200"): _access_lines,
    ("docs/observing.md", "order-desk"): _top,
    ("docs/observing.md", "id: "): _feed,
    ("docs/observing.md", '{"status": "not ready"'): _ready,
    ("docs/settings.md", "!/set("): _chat,
}
"""Blocks of output, by page and beginning: what prints it."""
