"""Guarded agents of each framework play the same scenes as a loop without a framework, with the same outcome.

They run where their framework is installed with the tests' own packages; `CALLFUSE_HOSTS=1` makes environments for the
others, and for the oldest versions.
"""

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.agents import on_nothing
from tests.hosts.agents.scenes import MARK, NOTHING, PAGE, SCENES, play
from tests.hosts.environments import asked_for, environment, run_json

FOLDER = Path(__file__).with_name("agents")
LANGCHAIN = ("langchain==1.4.7", "langgraph==1.2.22")
OLD_LANGCHAIN = ("langchain==1.0.0", "langgraph==1.0.1", "langgraph-prebuilt==1.0.1")
OLD_LANGGRAPH = ("langchain==1.0.3", "langgraph==1.0.2", "langgraph-prebuilt==1.0.2")
ADK = ("google-adk==2.13.0",)


@dataclass(frozen=True)
class Framework:
    """A program beside this file with its options, what its environment needs, and the module that it imports."""

    program: str
    requirements: tuple[str, ...] = ()
    module: str = ""
    ends: bool = True
    """Whether a block can end the run."""

    def __str__(self) -> str:
        """Its name in test ids."""
        return "-".join([self.program.replace(" --", "-"), *self.requirements[:1]])


FRAMEWORKS = [
    Framework("on_pydantic_ai", module="pydantic_ai"),
    Framework("on_pydantic_ai --sync", module="pydantic_ai"),
    Framework("on_pydantic_ai --stream", module="pydantic_ai"),
    Framework("on_openai_agents", module="agents"),
    Framework("on_openai_agents --stream", module="agents"),
    Framework("on_langchain", LANGCHAIN),
    Framework("on_langchain --sync", LANGCHAIN),
    Framework("on_langchain --graph", LANGCHAIN, ends=False),
    Framework("on_langchain --graph --sync", LANGCHAIN, ends=False),
    Framework("on_langchain", OLD_LANGCHAIN),
    Framework("on_langchain --graph --sync", OLD_LANGGRAPH, ends=False),
    Framework("on_google_adk", ADK),
    Framework("on_google_adk --stream", ADK),
]


def in_any_order(account: dict[str, Any]) -> dict[str, Any]:
    """The same account for calls that ran side by side in another order."""
    return {**account, "used": Counter(account["used"])}


def played_by(framework: Framework) -> Any:
    """What the framework's program tells."""
    if framework.module and find_spec(framework.module) is None:
        pytest.skip(f"{framework.module} is not installed")
    python = environment(*framework.requirements) if framework.requirements else Path(sys.executable)
    program, *options = framework.program.split()
    return run_json(python, FOLDER / f"{program}.py", *options, timeout_s=120)


@pytest.fixture(scope="module")
def without() -> dict[str, Any]:
    """What comes of the scenes without a framework."""
    return play(on_nothing.build)


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "framework", [pytest.param(one, marks=[asked_for] if one.requirements else [], id=str(one)) for one in FRAMEWORKS]
)
def test_a_framework(framework: Framework, without: dict[str, Any]) -> None:
    """Its agents, guarded as `docs/frameworks.md` says, run the same calls, and read and say the same."""
    played = played_by(framework)
    if not framework.ends:
        without = {**without, "block": without["go on"], "page": {**without["go on"], "found": []}}
    for name in SCENES:
        assert in_any_order(played[name]) == in_any_order(without[name]), name


ENDED = "[callfuse]"
MORE: list[tuple[Framework, dict[str, Any]]] = [
    (
        Framework("more_openai_agents", module="agents"),
        {
            "hooks": ["answer", "call", "answer", "call", "answer", "answer"],
            "output type": 4,
            "stops": NOTHING,
            "agent as tool": ["Done.", ["a"] * 6],
            "handoff": [ENDED, ["llamas"] * 2],
        },
    ),
    (
        Framework("more_pydantic_ai", module="pydantic_ai"),
        {
            "output type": 4,
            "retries": [False, False, False, True, True, False],
            "validation": [False, False, True, True, False],
            "more": [False, False, True, False],
            "runs": 8,
        },
    ),
    (
        Framework("more_langchain", LANGCHAIN),
        {
            "command": [False] * 2 + [True] * 6,
            "tried again": [4, ENDED],
            "unknown": [10, ENDED],
            "people": [["llamas"] * 2, ENDED],
            "runs": 8,
            "sub-agents at once": [4, 4],
            "equal system messages": [2] * 5,
            "graphs": [[4, 2, "tool", True, 2, 1, "tool", True], ["GraphRecursionError"] * 2],
        },
    ),
    (
        Framework("more_google_adk", ADK),
        {
            "agent as tool": ["Done.", ["a"] * 6],
            "unknown": ENDED,
            "raises": "no such index",
            "dict": [ENDED, ["llamas"] * 2],
        },
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("framework", "expected"),
    [pytest.param(*one, marks=[asked_for] if one[0].requirements else [], id=str(one[0])) for one in MORE],
)
def test_what_only_one_framework_has(framework: Framework, expected: dict[str, Any]) -> None:
    """Agents that run as tools, handoffs, retries, people, hooks: they stay what they are, and loops end."""
    assert played_by(framework) == expected


def test_what_comes_of_the_scenes(without: dict[str, Any]) -> None:
    """A looping call is not run; the model reads what stands in its place; a block ends the run, or goes on."""
    assert without["healthy"] == {
        "used": ["a", "b", "c"],
        "read": [NOTHING, NOTHING, "Llamas are camelids."],
        "found": [],
        "words": ["Done."],
        "raised": [],
    }
    assert without["steer"]["used"] == ["llamas", "llamas", "something else"]
    assert without["steer"]["read"][2].startswith(f"{NOTHING}\n\n{MARK} This call was not run.")
    assert without["block"]["used"] == ["llamas"] * 2
    assert without["block"]["found"] == ["repeat 3 steer", "repeat 4 block"]
    assert without["block"]["words"][0].startswith(f"{MARK} Stopped a tool call loop")
    assert without["go on"]["words"] == ["I give up."]
    assert all(text.startswith(f"{NOTHING}\n\n{MARK}") for text in without["go on"]["read"][2:])
    assert (without["raise"]["words"], without["raise"]["raised"]) == ([], without["block"]["words"])
    assert len(without["warn"]["used"]) == len(without["off"]["used"]) == 8
    assert [MARK in text for text in without["warn"]["read"]] == [False] * 2 + [True] * 6
    assert not any(MARK in text for text in without["off"]["read"])


def test_parallel_calls_conversations_and_turns(without: dict[str, Any]) -> None:
    """Calls of one answer are judged together, an innocent one beside a block runs, and nobody else's calls count."""
    assert without["siblings"]["used"] == ["a", "a", "a", "p", "a", "a"]
    assert without["siblings"]["found"] == ["repeat 3 steer", "repeat 4 steer"]
    assert (without["beside a block"]["used"], without["beside a block"]["words"]) == (["a", "a", "p"], ["Done."])
    assert [MARK in text for text in without["same error"]["read"]] == [False] * 3 + [True] * 2
    for name in ("conversations", "turns"):
        assert (without[name]["found"], set(without[name]["words"])) == ([], {"Done."})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "root", "package"),
    [
        ("langchain", "langchain", "langchain>="),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai-slim>="),
        ("openai_agents", "agents", "openai-agents>="),
        ("google_adk", "google.adk", "google-adk>="),
    ],
)
def test_a_framework_that_is_missing(name: str, root: str, package: str) -> None:
    """The error says which package to install."""
    program = f"import sys\nsys.modules['{root}'] = None\nimport callfuse.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: callfuse.integrations.{name} needs ")
    assert f"pip install '{package}" in last


def test_the_page_names_what_was_tried() -> None:
    """The versions in its table are those of the environments here."""
    page = PAGE.read_text()
    for requirement in {one for framework in FRAMEWORKS for one in framework.requirements}:
        assert requirement == OLD_LANGGRAPH[0] or requirement.replace("==", " ") in page
