"""Agents of Pydantic AI; `--sync`: with tools that run in threads; `--stream`: with streamed answers."""

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from callfuse.integrations.pydantic_ai import LoopGuard
from tests.hosts.agents.scenes import Calls, Model, Toolbox, by_the_page, tell


class Agent:
    """An agent, and the histories of its conversations."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.histories: dict[str, list[Any]] = {}

    async def ask(self, text: str, conversation: str) -> str:
        """Run it on."""
        how = {"message_history": self.histories.get(conversation, []), "conversation_id": conversation}
        if "--stream" not in sys.argv:
            result = await self.agent.run(text, **how)
        else:
            async with self.agent.iter(text, **how) as run:
                async for node in run:
                    if self.agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as answer:
                            async for _ in answer:
                                pass
            result = run.result
        self.histories[conversation] = result.all_messages()
        return str(result.output)


def build(model: Model, tools: Toolbox, guard: Mapping[str, Any] | None) -> Agent:
    """An agent with these tools."""

    def asks(messages: list[Any]) -> Calls | str:
        parts = [part for one in messages for part in one.parts]
        start = max(at for at, one in enumerate(parts) if isinstance(one, UserPromptPart))
        answers = [one for one in messages if isinstance(one, ModelResponse)]
        turn = [one for one in answers if one.run_id == answers[-1].run_id] if answers else []
        at = len(turn) if not isinstance(parts[-1], UserPromptPart) else 0
        last = messages[-1].parts if isinstance(messages[-1], ModelRequest) else []
        results = [one.model_response_str() for one in last if isinstance(one, ToolReturnPart)]
        return model(str(parts[start].content), at, results)

    def whole(messages: list[Any], info: Any) -> Any:
        said = asks(messages)
        if isinstance(said, str):
            return ModelResponse([TextPart(said)])
        return ModelResponse([ToolCallPart(name, args, f"c{at}") for at, (name, args) in enumerate(said)])

    async def streamed(messages: list[Any], info: Any) -> AsyncIterator[Any]:
        said = whole(messages, info)
        for at, part in enumerate(said.parts):
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {at: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    def search(query: str) -> str:
        """Search the web."""
        return tools.search(query)

    async def async_search(query: str) -> str:
        """Search the web."""
        return tools.search(query)

    async_search.__name__ = "search"
    own = [search if "--sync" in sys.argv else async_search, tools.read_page]
    scripted = FunctionModel(whole, stream_function=streamed)
    if guard is None:
        return Agent(by_the_page("pydantic_ai", "agent", model=scripted, search=own[0]))
    return Agent(PydanticAgent(scripted, tools=own, capabilities=[LoopGuard(**guard)]))


if __name__ == "__main__":
    tell(build)
