"""Tools that do not run in a loop: `python examples/guarded_tools.py`.

The model is scripted: it repeats a search that finds nothing until a result tells it so, then asks for a tool that does
not exist, and then answers. The second run is of a model that never listens, and is ended by a block.
"""

import asyncio
from collections.abc import Callable

from callfuse import GuardedTools, LoopDetector, ToolCall, ToolLoopError, ToolResult, with_loop_hint

Model = Callable[[list[ToolResult]], list[ToolCall]]

DESCRIPTIONS = {"search": with_loop_hint("Searches the archive.")}
"""What the model would be told of the tools."""

MESSAGES = {"guidance": "You already called {tool_name} and got: {previous_result} Use this, or look elsewhere."}


async def search(query: str) -> dict[str, list[str]]:
    """A tool that finds nothing."""
    return {"results": []}


def listening(results: list[ToolResult]) -> list[ToolCall]:
    """A model that reads its results."""
    last = results[-1] if results else None
    if last is None or (last.name == "search" and last.detection is None):
        return [ToolCall(f"call-{len(results)}", "search", '{"query": "llamas"}')]
    return [ToolCall("call-last", "serach", '{"query": "alpacas"}')] if last.name == "search" else []


def stubborn(results: list[ToolResult]) -> list[ToolCall]:
    """A model that does not."""
    return [ToolCall(f"call-{len(results)}", "search", '{"query": "llamas"}')]


async def agent(model: Model) -> None:
    """Run the calls of the model until it has none."""
    detector = LoopDetector({"tool_call_loop": {"error_messages": MESSAGES}})
    tools = GuardedTools({"search": search}, detector, raise_on_block=True)
    results: list[ToolResult] = []
    try:
        while calls := model(results):
            for result in await tools.arun(calls):
                print(f"  TOOL[{result.name}]: {result.text}")
                results.append(result)
        print("  the model answers")
    except ToolLoopError as error:
        print(f"  ended: {error.detection.description}")


async def main() -> None:
    """Both runs."""
    print("a model that listens")
    await agent(listening)
    print("a model that does not")
    await agent(stubborn)


if __name__ == "__main__":
    asyncio.run(main())
