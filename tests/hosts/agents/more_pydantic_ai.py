"""What only Pydantic AI has: retries, validation, output types, results with more than a value."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, Tool, ToolReturn
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from callfuse import ToolLoopError
from callfuse.integrations.pydantic_ai import LoopGuard
from tests.hosts.agents.scenes import Model, Toolbox, in_rounds, search, stubborn


class Shape(BaseModel):
    """An output that is no text."""

    number: int


def run(script: Model, tool: Any, guard: Any, **more: Any) -> list[str]:
    """What the model reads, and the agent's last words."""
    read: list[str] = []

    def model(messages: list[Any], info: Any) -> Any:
        read.append("; ".join(str(part.content) for part in messages[-1].parts))
        said = script("", len(read) - 1, read[-1:])
        if isinstance(said, str):
            return ModelResponse([TextPart(said)])
        return ModelResponse([ToolCallPart(name, args) for name, args in said])

    agent = Agent(FunctionModel(model), tools=[Tool(tool, max_retries=20)], capabilities=[guard], **more)
    output = str(agent.run_sync("Go.").output)
    return [*read[1:], output]


def main() -> dict[str, Any]:
    """What comes of each."""
    told: dict[str, Any] = {}
    tools, used = Toolbox(), list[str]()
    try:
        run(stubborn, tools.search, LoopGuard(), output_type=Shape)
    except ToolLoopError as error:
        told["output type"] = error.detection.count

    def retries(query: str) -> str:
        used.append(query)
        raise ModelRetry("no such table")

    several: Any = in_rounds(*([("retries", {"query": str(at)})] for at in range(5)))
    told["retries"] = ["[callfuse]" in text for text in run(several, retries, LoopGuard())]
    wrong: Any = in_rounds(*[[("search", {"wrong": 1})]] * 4)
    told["validation"] = ["[callfuse]" in text for text in run(wrong, tools.search, LoopGuard(on_block="continue"))]

    def more(query: str) -> Any:
        return ToolReturn("nothing", content="And this.")

    warns = LoopGuard({"tool_call_loop": {"mode": "warn"}})
    told["more"] = ["[callfuse]" in text for text in run(in_rounds(*[[("more", {"query": "a"})]] * 3), more, warns)]
    guard, twice = LoopGuard(), Toolbox()
    for _ in range(4):
        run(in_rounds([search("a")], [search("a")]), twice.search, guard)
    told["runs"] = len(twice.used)
    return told


if __name__ == "__main__":
    print(json.dumps(main()))
