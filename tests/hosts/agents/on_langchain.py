"""Agents of LangChain's `create_agent`; `--graph`: of a graph with a `ToolNode`; `--sync`: in threads."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from callfuse.integrations.langchain import LoopGuard
from tests.hosts.agents.scenes import Model, Toolbox, by_the_page, tell

IS_SYNC = "--sync" in sys.argv


class Scripted(BaseChatModel):
    """A chat model that asks a script."""

    script: Any

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **rest: Any) -> Any:
        start = max(at for at, one in enumerate(messages) if isinstance(one, HumanMessage))
        turn = messages[start:]
        answers = [at for at, one in enumerate(turn) if isinstance(one, AIMessage)]
        results = [one.text for one in turn[answers[-1] :] if isinstance(one, ToolMessage)] if answers else []
        said = self.script(turn[0].text, len(answers), results)
        if isinstance(said, str):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])
        calls = [{"name": name, "args": args, "id": f"c{at}"} for at, (name, args) in enumerate(said)]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])

    def bind_tools(self, tools: Sequence[Any], **rest: Any) -> Any:
        """The script knows them."""
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"


class Agent:
    """A compiled graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    async def ask(self, text: str, conversation: str) -> str:
        """Invoke the graph."""
        config: Any = {"configurable": {"thread_id": conversation}, "recursion_limit": 60}
        state = {"messages": [HumanMessage(text)]}
        result = self.graph.invoke(state, config) if IS_SYNC else await self.graph.ainvoke(state, config)
        messages = result["messages"]
        calls = {call["id"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
        assert calls == {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
        return str(messages[-1].text)


def build(model: Model, tools: Toolbox, guard: Mapping[str, Any] | None) -> Agent:
    """An agent with these tools."""

    def read_page(url: str) -> str:
        """Read a page."""
        tools.used.append(url)
        return "Llamas are camelids."

    own = [
        StructuredTool.from_function(tools.search),
        StructuredTool.from_function(read_page) if IS_SYNC else StructuredTool.from_function(coroutine=tools.read_page),
    ]
    chat = Scripted(script=model)
    if "--graph" not in sys.argv:
        if guard is None:
            return Agent(by_the_page("langchain.agents", "agent", model=chat, search=own[0]))
        return Agent(create_agent(chat, tools=own, middleware=[LoopGuard(**guard)], checkpointer=InMemorySaver()))
    if guard is None:
        node = by_the_page("langgraph.prebuilt", "node", search=own[0])
    else:
        one = LoopGuard(**guard)
        node = ToolNode(own, wrap_tool_call=one.wrap_tool_call, awrap_tool_call=one.awrap_tool_call,
                        handle_tool_errors=False)  # fmt: skip
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return Agent(graph.compile(checkpointer=InMemorySaver()))


if __name__ == "__main__":
    tell(build)
