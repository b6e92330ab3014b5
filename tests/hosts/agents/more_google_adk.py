"""What only Google ADK has: agents as tools with sessions of their own, tools that are not there, errors."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools import AgentTool

from callfuse.integrations.google_adk import LoopGuard
from tests.hosts.agents.on_google_adk import Agent, Scripted
from tests.hosts.agents.scenes import Model, Toolbox, in_rounds, search, stubborn


def agent(name: str, script: Model, *tools: Any) -> Any:
    """An agent."""
    return LlmAgent(name=name, description=name, model=Scripted(model="scripted", script=script), tools=[*tools])


def run(one: Any) -> str:
    """Its last words."""
    return asyncio.run(Agent(InMemoryRunner(agent=one, app_name="app", plugins=[LoopGuard()])).ask("Go.", "1"))


def main() -> dict[str, Any]:
    """What comes of each."""
    told: dict[str, Any] = {}
    tools = Toolbox()
    inner = AgentTool(agent("inner", in_rounds([search("a")], [search("a")]), tools.search))
    asks = in_rounds([("inner", {"request": "1"}), ("inner", {"request": "2"})], [("inner", {"request": "3"})])
    told["agent as tool"] = [run(agent("outer", asks, inner)), tools.used]
    nope = in_rounds(*[[("nope", {"at": at})] for at in range(6)])
    told["unknown"] = run(agent("one", nope, tools.search))[:10]

    def fails(query: str) -> str:
        raise ValueError("no such index")

    fails.__name__ = "search"
    try:
        run(agent("one", stubborn, fails))
    except ValueError as error:
        told["raises"] = str(error)

    table = Toolbox()

    def rows(query: str) -> dict[str, Any]:
        table.used.append(query)
        return {"rows": []}

    rows.__name__ = "search"
    told["dict"] = [run(agent("one", stubborn, rows))[:10], table.used]
    return told


if __name__ == "__main__":
    print(json.dumps(main()))
