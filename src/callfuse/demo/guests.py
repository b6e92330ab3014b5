"""Run more agents for the live page: a healthy one, and one for each other loop and rung.

Each has its own session and model with its name, and the model has a fixed list of calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callfuse.demo.agent import Task
from callfuse.testing import Answer, Call, VendorRequest

MODEL = "scripted-"


@dataclass(frozen=True, slots=True)
class Guest:
    """An agent and its model. `results`: by tool, the results of successive calls; the last one is repeated.

    `after_guidance`: the call after guidance, before the answer. If None, the model continues with its list, whose last
    call is repeated.
    """

    name: str
    calls: Sequence[Call]
    results: Mapping[str, Sequence[str]]
    after_guidance: Call | None

    def task(self) -> Task:
        """Return the task of its agent."""
        times = dict.fromkeys(self.results, 0)

        def run(tool: str, _: dict[str, Any]) -> str:
            at = times[tool]
            times[tool] += 1
            return self.results[tool][min(at, len(self.results[tool]) - 1)]

        tools = [{"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}} for tool in times]
        return Task("Go on.", tools, run, "Use your tools.", MODEL + self.name, self.name)

    def answer(self, request: VendorRequest) -> Answer:
        """Answer as its model, by the script."""
        after = self.after_guidance
        if request.guidance and after is not None:
            return Answer("I change course.", [after])
        if after is not None and any(call.same_as(after) for call in request.calls):
            return Answer("That is all.")
        made = sum(len(message.get("tool_calls") or ()) for message in request.body["messages"])
        if made >= len(self.calls) and after is not None:
            return Answer("That is all.")
        return Answer("Next step.", [self.calls[min(made, len(self.calls) - 1)]])


def _calls(tool: str, name: str, *values: str) -> list[Call]:
    return [Call(tool, {name: value}) for value in values]


_EDIT = Call("edit_file", {"path": "src/tides.py", "old": "round(x)", "new": "ceil(x)"})
_TESTS = Call("run_tests", {"path": "tests"})
_ORDER = Call("get_order", {"id": "A-1042"})
_STOCK = Call("check_stock", {"item": "lamp"})

GUESTS = (
    Guest(
        "fix-the-tides",
        [*_calls("read_file", "path", "README.md", "src/tides.py", "tests/test_tides.py"), _TESTS, _EDIT, _TESTS],
        {
            "read_file": ["# Tides", "def tide(x): return round(x)", "assert tide(1.2) == 2"],
            "run_tests": ["1 failed: tide(1.2) is 1", "3 passed"],
            "edit_file": ["done"],
        },
        Call("run_tests", {"path": "."}),
    ),
    Guest(
        "order-desk",
        [_ORDER, _STOCK] * 4,
        {
            "get_order": ["A-1042: waits for the lamp"],
            "check_stock": ["lamp: 0"],
            "ask_person": ["It comes on Monday."],
        },
        Call("ask_person", {"question": "When is the lamp back?"}),
    ),
    Guest(
        "deploy-bot",
        _calls("deploy", "region", *"abcdef"),
        {
            "deploy": ["Error: permission denied: you may not deploy to this project"],
            "ask_person": ["Kim may, and does it."],
        },
        Call("ask_person", {"question": "Who may deploy?"}),
    ),
    Guest("stubborn-search", _calls("search_web", "query", "harbour lights"), {"search_web": ["no results"]}, None),
)
"""All guests. Their names are also those of their models, by which the vendor distinguishes them."""
BY_MODEL = {MODEL + guest.name: guest for guest in GUESTS}
