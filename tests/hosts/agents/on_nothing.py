"""A loop of no framework around `AgentRuns`, as an adapter to a framework uses it."""

import asyncio
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

from callfuse import ToolCall
from callfuse.inprocess.runs import AgentRun, AgentRuns, substitute
from callfuse.inprocess.values import append_text, as_text
from tests.hosts.agents.scenes import Model, Toolbox


class Agent:
    """A model, tools, and the runs."""

    def __init__(self, model: Model, tools: Toolbox, runs: AgentRuns) -> None:
        self.model = model
        self.tools = tools
        self.runs = runs
        self.asked = 0

    async def ask(self, text: str, conversation: str) -> str:
        """Run the calls of the model until it has none."""
        self.asked += 1
        run, results = self.runs.get(conversation, self.asked), list[str]()
        for at in range(100):
            said = self.model(text, at, results)
            if isinstance(said, str):
                break
            calls = [ToolCall(f"c{number}", *call) for number, call in enumerate(said)]
            run.begin(calls)
            if run.ended is not None:
                return run.ended.message
            results = await asyncio.gather(*(self._result(run, call.id, said[n]) for n, call in enumerate(calls)))
        return str(said)

    async def _result(self, run: AgentRun, call_id: str, call: tuple[str, dict[str, Any]]) -> str:
        if (found := run.withheld(call_id)) is not None:
            return as_text(substitute(found))
        name, arguments = call
        result = getattr(self.tools, name)(**arguments)
        result = await result if isawaitable(result) else result
        text = run.finish(call_id, result)
        return str(append_text(result, text) if text else result)


def build(model: Model, tools: Toolbox, guard: Mapping[str, Any] | None) -> Agent:
    """An agent with these tools."""
    return Agent(model, tools, AgentRuns(**guard or {}))
