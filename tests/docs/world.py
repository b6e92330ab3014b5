"""What the blocks run in: a scripted vendor, one `callfuse serve` before it, a store, and a folder with an environment.

The guard has the token `TOKEN`, and has seen the sessions that pages speak of.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest, looping_model, served
from tests.cli.processes import CLEAN, PLAIN
from tests.cli.test_serve import TOKEN
from tests.docs import given
from tests.docs.servers import started
from tests.hosts import client
from tests.project.sources import PROJECT
from tests.support import redis

TOOL = "search"
DESK = "order-desk"
"""The session of which `callfuse top` shows a cycle that is steered."""
LAP = (Call("find_order", {"id": 7}), Call("open_order", {"id": 7}))
TIMEOUT_S = 60
APPS = PROJECT / "tests/hosts/apps"


@dataclass(frozen=True)
class World:
    """`vendor` and `guard`: their base URLs; `store`: that of a Redis, or of the memory where there is none; `finding`:
    the id of a finding of the guard."""

    vendor: str
    guard: str
    store: str
    finding: str = ""

    def put(self, text: str) -> str:
        """The text with addresses and ids of this world in place of those of the pages."""
        for shown, name in given.ADDRESSES.items():
            text = text.replace(shown, str(getattr(self, name)))
        for shown, put in given.TEXTS.items():
            text = text.replace(shown, put)
        return text

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a program that is started in a folder: no setting but the token, and no proxy."""
        programs = home / ".bin"
        programs.mkdir(exist_ok=True)
        for name, script in given.PROGRAMS.items():
            file = programs / name
            file.write_text(f"#!/bin/sh\n{script.format(python=sys.executable, project=PROJECT)}\n", encoding="utf-8")
            file.chmod(file.stat().st_mode | stat.S_IEXEC)
        (home / ".curlrc").write_text(given.CURL, encoding="utf-8")
        own = {name: text for name, text in CLEAN.items() if not name.lower().endswith("_proxy")}
        return {
            **own,
            **PLAIN,
            **{name: self.put(text) for name, text in given.VARIABLES.items()},
            "CALLFUSE_ADMIN_TOKEN": TOKEN,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)]),
            "PYTHONUNBUFFERED": "1",
        }

    def admin(self, path: str) -> httpx.Response:
        """What the guard's admin page answers."""
        return httpx.get(f"{self.guard}/_callfuse/{path}", headers=BEARER, timeout=TIMEOUT_S, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        """What the guard answers to somebody without a token."""
        return httpx.get(f"{self.guard}{path}", timeout=TIMEOUT_S, trust_env=False)

    def send(self, body: Any) -> None:
        """Send the body of a request through the guard, to the first path at which the vendor takes it."""
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = httpx.post(f"{self.guard}{path}", json=body, timeout=TIMEOUT_S, trust_env=False)
            if answer.status_code == 200:
                return
        raise AssertionError(answer.text)


BEARER = {"authorization": f"Bearer {TOKEN}"}


def run_agent(
    url: str,
    model: str,
    *,
    asked: str = "Find it.",
    tool: str = TOOL,
    session: str = "",
    rounds: int = 8,
) -> int:
    """An agent whose tools bring nothing, until its model calls none any more. Returns how many calls have run."""
    names = [tool, *(call.name for call in LAP)]
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    messages: list[Any] = [{"role": "user", "content": asked}]
    executed = 0
    with client.open_client(url) as http:
        http.headers.update({"authorization": "Bearer none"} | ({"x-session-id": session} if session else {}))
        for _ in range(rounds):
            body = {"model": model, "messages": messages, "tools": tools, "stream": True}
            messages.append(client.ask(http, client.PATH, body))
            calls = messages[-1].get("tool_calls") or ()
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "no results"} for call in calls]
            executed += len(calls)
            if not calls:
                break
    return executed


def script(request: VendorRequest) -> Answer:
    """A model that calls the first tool that the request declares again and again, until it is told; one whose name
    begins with `stubborn` for ever. The order desk goes round in laps, until it is told."""
    declared = [*_names(request.body.get("tools") or request.body.get("toolConfig", {}).get("tools") or [])]
    if not declared:
        return Answer("Llamas are camelids of the Andes.")
    if b"Where is order 7?" in request.raw:
        return _at_the_desk(request)
    return looping_model(declared[0], stubborn=request.model.startswith("stubborn"))(request)


def _at_the_desk(request: VendorRequest) -> Answer:
    if request.guidance:
        return Answer(calls=[Call("write_note", {"text": "not found"})])
    if any(call.name == "write_note" for call in request.calls):
        return Answer("I left a note.")
    return Answer(calls=[LAP[any(call.same_as(LAP[0]) for call in request.calls)]])


def _names(value: Any) -> Iterator[str]:
    """The names of tools, wherever a format has them."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            if isinstance(one.get("name"), str):
                yield one["name"]
            else:
                for key in ("function", "functionDeclarations", "function_declarations", "toolSpec"):
                    yield from _names(one.get(key, []))


@contextmanager
def opened() -> Iterator[World]:
    """A world, with the sessions that pages speak of."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        vendor = stack.enter_context(served(ScriptedVendor(script)))
        store = "memory://"
        if redis.program() is not None:
            store = stack.enter_context(contextmanager(redis.running)()).url
        env = World(vendor, "", store).environment(home)
        keeping = {**env, "CALLFUSE_ADMIN_KEEP_EXCHANGES": "true"}
        guard = stack.enter_context(started(f"callfuse serve --port 0 --upstream {vendor}", keeping, home))
        run_agent(guard.url, "gpt-4o", asked="Where is order 7?", session=DESK)
        run_agent(guard.url, "stubborn", session="ID")
        world = World(vendor, guard.url, store)
        lanes = world.admin("activity/session?session=ID").json()["lanes"]
        [finding, *_] = [bead["finding"]["id"] for lane in lanes for bead in lane["beads"] if "finding" in bead]
        yield World(vendor, guard.url, store, finding)


def copied(page: str, folder: Path) -> None:
    """Copy the stand-ins for a reader's own modules into a folder; for FastAPI too, if the page is of no host."""
    names = ["common", Path(page).stem]
    if not page.startswith("docs/mount/") and find_spec("fastapi") is None:
        names.append("without-fastapi")
    for source in (APPS / name for name in names):
        if source.exists():
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
