"""What only LangChain has: commands, other middleware, people in the loop, unknown tools, runs without a thread."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from callfuse.integrations.langchain import LoopGuard
from callfuse.model import MARKER
from tests.hosts.agents.on_langchain import Scripted
from tests.hosts.agents.scenes import Model, Toolbox, in_rounds, search, stubborn

GO: Any = {"messages": [("user", "Go.")]}


def agent(script: Model, tool: Any, *middleware: Any, **more: Any) -> Any:
    """An agent with a tool `search`."""
    own = StructuredTool.from_function(tool, name="search", description="Search the web.")
    return create_agent(Scripted(script=script), tools=[own], middleware=list(middleware), **more)


def main() -> dict[str, Any]:
    """What comes of each."""
    told: dict[str, Any] = {}
    tools = Toolbox()

    def command(query: str, runtime: ToolRuntime) -> Any:
        said = ToolMessage(tools.search(query), tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [said]})

    ended = agent(stubborn, command, LoopGuard({"tool_call_loop": {"mode": "warn"}})).invoke(GO)
    told["command"] = ["[callfuse]" in one.text for one in ended["messages"] if isinstance(one, ToolMessage)]
    failed = Toolbox()

    def fails_first(query: str) -> str:
        failed.used.append(query)
        if len(failed.used) % 2:
            raise ValueError("try again")
        return "nothing"

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    ended = agent(stubborn, fails_first, LoopGuard(), retry).invoke(GO)
    told["tried again"] = [len(failed.used), ended["messages"][-1].text[:10]]
    ended = agent(in_rounds(*[[("nope", {"at": at})] for at in range(6)]), tools.search, LoopGuard()).invoke(GO)
    told["unknown"] = [len(ended["messages"]), ended["messages"][-1].text[:10]]
    guard, approved = LoopGuard(), Toolbox()
    asks = HumanInTheLoopMiddleware(interrupt_on={"search": True})
    one = agent(stubborn, approved.search, guard, asks, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    ended = one.invoke(GO, config)
    while "__interrupt__" in ended:
        ended = one.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    told["people"] = [approved.used, ended["messages"][-1].text[:10]]
    twice = Toolbox()
    one = agent(in_rounds([search("a")], [search("a")]), twice.search, LoopGuard())
    for _ in range(4):
        one.invoke(GO)
    told["runs"] = len(twice.used)
    told["sub-agents at once"] = sub_agents()
    told["equal system messages"] = users()
    told["graphs"] = [graph(on_block) for on_block in ("end", "continue")]
    return told


def graph(on_block: Any) -> list[Any]:
    """Two turns of a graph with a `ToolNode` and the edge behind it: in each how often the model was asked, how often
    the tool has run, and the beginning of the last message; or what is raised."""
    tools, guard = Toolbox(), LoopGuard(on_block=on_block)
    own = StructuredTool.from_function(tools.search, name="search", description="Search the web.")
    node = ToolNode([own], wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call)
    chat, asked = Scripted(script=stubborn), list[int]()

    def model(state: Any) -> Any:
        asked.append(1)
        return {"messages": [chat.invoke(state["messages"])]}

    made = StateGraph(MessagesState)
    made.add_node("model", model)
    made.add_node("tools", node)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    made.add_conditional_edges("tools", guard.unless_blocked("model"), ["model", END])
    compiled, told = made.compile(checkpointer=InMemorySaver()), list[Any]()
    for _ in range(2):
        asked.clear()
        tools.used.clear()
        try:
            messages = compiled.invoke(GO, {"configurable": {"thread_id": "1"}, "recursion_limit": 14})["messages"]
            told += [len(asked), len(tools.used), messages[-1].type, MARKER in messages[-1].text]
        except GraphRecursionError as error:
            told.append(type(error).__name__)
    return told


def sub_agents() -> list[int]:
    """The calls of two agents that run as tools at the same time, in the thread of the agent that has them; twice."""
    tools = Toolbox()
    inner = agent(stubborn, tools.search, LoopGuard())

    def search_thoroughly(query: str) -> str:
        return str(inner.invoke({"messages": [("user", query)]})["messages"][-1].text)

    asks = in_rounds([search("a"), search("b")])
    one = agent(asks, search_thoroughly, LoopGuard(), checkpointer=InMemorySaver())
    used = []
    for thread in ("1", "2"):
        before = len(tools.used)
        one.invoke(GO, {"configurable": {"thread_id": thread}})
        used.append(len(tools.used) - before)
    return used


def users() -> list[int]:
    """The calls for five users whose conversations begin with the same system message, and have no thread."""
    tools = Toolbox()
    one = agent(stubborn, tools.search, LoopGuard())
    used = []
    for at in range(5):
        before = len(tools.used)
        one.invoke({"messages": [SystemMessage("Be good.", id="system"), HumanMessage("Go.", id=f"user {at}")]})
        used.append(len(tools.used) - before)
    return used


if __name__ == "__main__":
    print(json.dumps(main()))
