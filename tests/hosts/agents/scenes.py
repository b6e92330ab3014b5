"""What the guarded agents of every framework play, and what is written down of it.

In: `play(Framework)`, of which each module beside this one has one. Out: for each scene which calls have run, what the
model has read as results, and how the agent ended. A model is a function of the user's last message, of the number of
answers that it has given since, and of the results of the newest of them; it returns calls, or its last words.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from callfuse import LoopDetection, ToolLoopError

Calls = list[tuple[str, dict[str, Any]]]
Model = Callable[[str, int, Sequence[str]], Calls | str]

MARK = "[callfuse]"
NOTHING = "Nothing new."
PAGE = Path(__file__).parents[3] / "docs" / "frameworks.md"


class Agent(Protocol):
    """An agent of a framework, with two tools `search(query: str)` and `read_page(url: str)`."""

    async def ask(self, text: str, conversation: str) -> str:
        """Give it a message of the user of this conversation; returns its last words."""


class Toolbox:
    """The tools, which write down how they were used."""

    def __init__(self) -> None:
        self.used: list[str] = []

    def search(self, query: str) -> str:
        """Search the web."""
        self.used.append(query)
        if query.startswith("bad"):
            return f"Error: no such index in {query}"
        return NOTHING

    async def read_page(self, url: str) -> str:
        """Read a page."""
        self.used.append(url)
        return "Llamas are camelids."


Build = Callable[[Model, Toolbox, Mapping[str, Any] | None], Agent]
"""Makes an agent, with these keyword arguments of its guard; None: as the page has it."""


def search(query: str) -> tuple[str, dict[str, Any]]:
    """A call of the search."""
    return "search", {"query": query}


def page(url: str) -> tuple[str, dict[str, Any]]:
    """A call of the reader."""
    return "read_page", {"url": url}


def listening(asked: str, at: int, results: Sequence[str]) -> Calls | str:
    """Repeats itself until a result tells it so; then searches for something else, and answers."""
    told = any(MARK in one for one in results)
    return "Got it." if at == 4 else [search("something else" if told else "llamas")]


def stubborn(asked: str, at: int, results: Sequence[str]) -> Calls | str:
    """Repeats itself whatever it reads, eight times."""
    return [search("llamas")] if at < 8 else "I give up."


def in_rounds(*rounds: Calls) -> Model:
    """A model that makes these calls, and then answers."""
    return lambda asked, at, results: rounds[at] if at < len(rounds) else "Done."


@dataclass(frozen=True)
class Scene:
    """A model, the arguments of the guard, and what the users of the conversations say: `conversation: message`.

    `guard` is None for the stanza of the page as it stands, with default settings. `at_once`: the messages are sent
    side by side.
    """

    model: Model
    guard: Mapping[str, Any] | None = field(default_factory=dict)
    messages: Sequence[str] = ("1: Go.",)
    at_once: bool = False


GO_ON = {"on_block": "continue"}
TWICE = in_rounds([search("a")], [search("a")])
SCENES: Mapping[str, Scene] = {
    "page": Scene(stubborn, None),
    "healthy": Scene(in_rounds([search("a")], [search("b")], [page("c")])),
    "steer": Scene(listening),
    "block": Scene(stubborn),
    "go on": Scene(stubborn, GO_ON),
    "raise": Scene(stubborn, {"on_block": "raise"}),
    "warn": Scene(stubborn, {"config": {"tool_call_loop": {"mode": "warn"}}}),
    "off": Scene(stubborn, {"enabled": False}),
    "siblings": Scene(in_rounds([search("a")], [search("a")], [search("a"), page("p")], [search("a")] * 4)),
    "beside a block": Scene(in_rounds(*[[search("a")]] * 3, [search("a"), page("p")]), {"on_block": "raise"}),
    "same error": Scene(in_rounds(*([search(f"bad{at}")] for at in range(5)))),
    "conversations": Scene(TWICE, messages=("1: Go.", "2: Go.", "3: Go.", "4: Go."), at_once=True),
    "turns": Scene(TWICE, messages=("1: Go.", "1: Again.", "1: Again.")),
}


def play(build: Build) -> dict[str, Any]:
    """Play all scenes with agents of this kind; returns for each what came of it."""
    return {name: asyncio.run(_play(build, scene)) for name, scene in SCENES.items()}


async def _play(build: Build, scene: Scene) -> dict[str, Any]:
    tools, read, found, words, raised = Toolbox(), list[str](), list[str](), list[str](), list[str]()

    def model(asked: str, at: int, results: Sequence[str]) -> Calls | str:
        read.extend(results)
        return scene.model(asked, at, results)

    def note(one: LoopDetection) -> None:
        found.append(f"{one.kind} {one.count} {one.action}")

    async def ask(message: str) -> None:
        conversation, _, text = message.partition(": ")
        try:
            words.append(await agent.ask(text, conversation))
        except ToolLoopError as error:
            raised.append(str(error))

    guard = None if scene.guard is None else {"config": {"tool_call_loop": {}}, "on_loop": note, **scene.guard}
    agent = build(model, tools, guard)
    if scene.at_once:
        await asyncio.gather(*map(ask, scene.messages))
    else:
        for message in scene.messages:
            await ask(message)
    return {"used": tools.used, "read": read, "found": found, "words": words, "raised": raised}


def by_the_page(package: str, name: str, **given: Any) -> Any:
    """Run the example of `docs/frameworks.md` that imports from this package; returns its variable of this name."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = dict(given)
    exec(next(block for block in blocks if f"from {package} import" in block), names)
    return names[name]


def tell(build: Build) -> None:
    """What the program of each framework does: play all, and print what came of it."""
    print(json.dumps(play(build)))
