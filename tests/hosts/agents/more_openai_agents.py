"""What only the OpenAI Agents SDK has: hooks, stops, output types, agents as tools, handoffs."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import agents
from pydantic import BaseModel

from callfuse import ToolLoopError
from callfuse.integrations.openai_agents import guard_agent
from tests.hosts.agents.on_openai_agents import Scripted
from tests.hosts.agents.scenes import Model, Toolbox, in_rounds, search, stubborn


class Hooks(agents.AgentHooks):
    """A user's own."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_llm_end(self, *given: Any) -> None:
        """An answer."""
        self.seen.append("answer")

    async def on_tool_start(self, *given: Any) -> None:
        """A call."""
        self.seen.append("call")


class Shape(BaseModel):
    """An output that is no text."""

    number: int


def agent(script: Model, tools: list[Any], **more: Any) -> Any:
    """A guarded agent."""
    own = [agents.function_tool(tool) if callable(tool) else tool for tool in tools]
    return guard_agent(agents.Agent(name="one", model=Scripted(script), tools=own, **more))


async def run(one: Any) -> str:
    """Its last words."""
    result = await agents.Runner.run(one, "Go.", run_config=agents.RunConfig(tracing_disabled=True))
    return str(result.final_output)


async def main() -> dict[str, Any]:
    """What comes of each."""
    told: dict[str, Any] = {}
    hooks, tools = Hooks(), Toolbox()
    await run(agent(stubborn, [tools.search], hooks=hooks))
    told["hooks"] = hooks.seen
    try:
        await run(agent(stubborn, [Toolbox().search], output_type=Shape))
    except ToolLoopError as error:
        told["output type"] = error.detection.count
    stop: Any = {"stop_at_tool_names": ["search"]}
    told["stops"] = await run(agent(stubborn, [Toolbox().search], tool_use_behavior=stop))
    tools = Toolbox()
    inner = agent(in_rounds([search("a")], [search("a")]), [tools.search]).as_tool("ask", "Asks.")
    outer = in_rounds([("ask", {"input": "1"}), ("ask", {"input": "2"})], [("ask", {"input": "3"})])
    told["agent as tool"] = [await run(agent(outer, [inner])), tools.used]
    tools = Toolbox()
    second = agent(stubborn, [tools.search]).clone(name="second")
    first = agent(in_rounds([("transfer_to_second", {})]), [], handoffs=[second])
    told["handoff"] = [(await run(first))[:10], tools.used]
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
