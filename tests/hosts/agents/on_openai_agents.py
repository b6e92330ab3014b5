"""Agents of the OpenAI Agents SDK; `--stream`: with streamed answers."""

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import json

import agents
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from callfuse.integrations.openai_agents import guard_agent
from tests.hosts.agents.scenes import Model, Toolbox, by_the_page, tell


class Scripted(agents.Model):
    """A model that asks a script."""

    def __init__(self, script: Model) -> None:
        self.script = script

    async def get_response(self, *given: Any, **named: Any) -> Any:
        """One answer to the system's instructions and the input, which come first."""
        asked = named["input"] if "input" in named else given[1]
        items: list[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        start = max(at for at, one in enumerate(items) if one.get("role") == "user")
        turn = items[start:]
        answers = {int(one["call_id"].partition("-")[0]) for one in turn if one.get("type") == "function_call"}
        last = f"{len(answers) - 1}-"  # the ids of calls begin with the number of their answer
        results = [one["output"] for one in turn if "output" in one and one["call_id"].startswith(last)]
        said = self.script(turn[0]["content"], len(answers), results)
        output: list[Any] = []
        if isinstance(said, str):
            text = ResponseOutputText(annotations=[], text=said, type="output_text")
            output.append(
                ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            )
        else:
            output += [
                ResponseFunctionToolCall(
                    arguments=json.dumps(args),
                    call_id=f"{len(answers)}-{at}-{len(items)}",
                    name=name,
                    type="function_call",
                )
                for at, (name, args) in enumerate(said)
            ]
        return agents.ModelResponse(output=output, usage=agents.Usage(), response_id=None)

    async def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        """One answer, at once."""
        whole = await self.get_response(*given, **named)
        response = Response(id="r", created_at=0, model="scripted", object="response", output=whole.output,
                            parallel_tool_calls=True, tool_choice="auto", tools=[])  # fmt: skip
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


class Agent:
    """An agent, and the histories of its conversations."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.histories: dict[str, list[Any]] = {}

    async def ask(self, text: str, conversation: str) -> str:
        """Run it on."""
        asked = [*self.histories.get(conversation, []), {"role": "user", "content": text}]
        config = agents.RunConfig(tracing_disabled=True)
        if "--stream" in sys.argv:
            result: Any = agents.Runner.run_streamed(self.agent, asked, run_config=config, max_turns=30)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(self.agent, asked, run_config=config, max_turns=30)
        self.histories[conversation] = result.to_input_list()
        return str(result.final_output)


def build(model: Model, tools: Toolbox, guard: Mapping[str, Any] | None) -> Agent:
    """An agent with these tools."""
    own: list[Any] = [agents.function_tool(tool) for tool in (tools.search, tools.read_page)]
    if guard is None:
        return Agent(by_the_page("agents", "agent", model=Scripted(model), search=own[0]))
    return Agent(guard_agent(agents.Agent(name="Searcher", model=Scripted(model), tools=own), **guard))


if __name__ == "__main__":
    tell(build)
