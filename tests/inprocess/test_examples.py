"""The examples for agents of one's own run as they stand, and show what they say."""

import runpy
from types import SimpleNamespace
from typing import Any

import pytest

from callfuse import LoopDetector, ToolCall
from tests.project.sources import PROJECT, blocks, document


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        (
            "tracker",
            ["call 2 of search_web: run:", "call 3 of search_web: not run: [callfuse]", "answer after 3 calls"],
        ),
        ("detector", ["  warn: lap 2 of one sequence", "  block: lap 3 of one sequence", "3 warnings, 1 blocks"]),
        (
            "guarded_tools",
            [
                'TOOL[search]: {"results":[]}\n',
                "You already called search and got:",
                "There is no tool serach",
                "  ended",
            ],
        ),
    ],
)
def test_an_example(name: str, shows: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints, in order."""
    runpy.run_path(str(PROJECT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    places = [said.find(text) for text in shows]
    assert -1 not in places
    assert places == sorted(places)


def test_the_page() -> None:
    """The code of `docs/agents.md` runs as it stands, in an agent that repeats itself."""
    page = blocks(document("docs/agents.md"), "python")
    guarded, checked = (compile(block, "docs/agents.md", "exec") for block in page)
    function = SimpleNamespace(name="search", arguments='{"query": "llamas"}')
    message = SimpleNamespace(tool_calls=[SimpleNamespace(id="c1", function=function)])
    names: dict[str, Any] = {"message": message, "messages": [], "search": lambda query: query, "read_file": open}
    exec(guarded, names)
    assert names["messages"] == [{"role": "tool", "tool_call_id": "c1", "name": "search", "content": "llamas"}]
    one = LoopDetector({"tool_call_loop": {"mode": "graduated"}})
    names = {"LoopDetector": lambda *_, **__: one, "tell": None, "run": lambda _: "x", "calls": [ToolCall("", "a", {})]}
    read = []
    for _ in range(5):
        exec(checked, names)
        read.append(names["content"].split("[callfuse]")[0])
    assert read == ["x", "x", "x\n\n", "x\n\n", ""]
