"""What the blocks run in: a scripted vendor, one `callfuse serve` before it, and a folder with an environment.

The vendor is that of `script`. The guard has the token `TOKEN`, and has seen the sessions that pages speak of.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest, looping_model, served
from tests.cli.processes import CLEAN, PLAIN
from tests.cli.test_serve import TOKEN, serving
from tests.docs import given
from tests.hosts import client
from tests.project.sources import PROJECT

SEARCH = "search"
DESK = "order-desk"
"""The session of which `callfuse top` shows a cycle that is steered."""
LAP = (Call("find_order", {"id": 7}), Call("open_order", {"id": 7}))
TIMEOUT_S = 60


@dataclass(frozen=True)
class World:
    """`vendor` and `guard`: their base URLs; `finding`: the id of a finding of the guard."""

    vendor: str
    guard: str
    finding: str

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
        }

    def admin(self, path: str) -> httpx.Response:
        """What the guard's admin page answers."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        return httpx.get(f"{self.guard}/_callfuse/{path}", headers=headers, timeout=TIMEOUT_S, trust_env=False)

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

    def ask(self, session: str, model: str, messages: list[Any], tool: str = SEARCH) -> dict[str, Any]:
        """The next message of a model that an agent asks through the guard."""
        tools = [{"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}}]
        tools += [{"type": "function", "function": {"name": call.name}} for call in LAP]
        body = {"model": model, "messages": messages, "tools": tools, "stream": True}
        with httpx.Client(
            base_url=self.guard, timeout=TIMEOUT_S, trust_env=False, headers={"x-session-id": session}
        ) as http:
            return client.ask(http, client.PATH, body)

    def run_agent(self, session: str, model: str, rounds: int = 8, asked: str = "Find it.") -> list[Any]:
        """An agent whose tools bring nothing, until the model calls none any more; returns the messages."""
        messages: list[Any] = [{"role": "user", "content": asked}]
        for _ in range(rounds):
            messages.append(self.ask(session, model, messages))
            calls = messages[-1].get("tool_calls") or ()
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "no results"} for call in calls]
            if not calls:
                break
        return messages


def script(request: VendorRequest) -> Answer:
    """A model that calls the first tool that the request declares again and again, until it is told; one whose name
    begins with `stubborn` for ever. The order desk goes round in laps, until it is told."""
    declared = [*_names(request.body.get("tools") or request.body.get("toolConfig", {}).get("tools") or [])]
    if not declared:
        return Answer("Llamas are camelids of the Andes.")
    if b"Where is order 7?" not in request.raw:
        return looping_model(declared[0], stubborn=request.model.startswith("stubborn"))(request)
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
    with served(ScriptedVendor(script, judge=False)) as vendor, serving("--upstream", vendor) as process:
        world = World(vendor, f"http://127.0.0.1:{process.port}", "")
        world.run_agent(DESK, "gpt-4o", asked="Where is order 7?")
        world.run_agent("ID", "stubborn", 6)
        lanes = world.admin("activity/session?session=ID").json()["lanes"]
        [finding, *_] = [bead["finding"]["id"] for lane in lanes for bead in lane["beads"] if "finding" in bead]
        yield World(vendor, world.guard, finding)


def copied(name: str, folder: Path) -> None:
    """Copy the stand-ins for a reader's own code, of `tests/hosts/apps`, into a folder."""
    for source in (PROJECT / "tests/hosts/apps/common", PROJECT / "tests/hosts/apps" / name):
        if source.exists():
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
