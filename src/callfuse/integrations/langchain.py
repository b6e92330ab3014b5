"""Guard agents of LangChain, `create_agent(..., middleware=[LoopGuard()])`, and LangGraph's `ToolNode`:
`ToolNode(tools, wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call)`, whose graph ends by
`graph.add_conditional_edges("tools", guard.unless_blocked("model"))`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from callfuse.config import Source
from callfuse.inprocess.detector import OnLoop
from callfuse.inprocess.runs import AgentRun, AgentRuns, OnBlock, name_of, substitute
from callfuse.inprocess.values import append_text, as_text
from callfuse.model import ToolCall

try:
    from langchain.agents.middleware import AgentMiddleware, hook_config
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.constants import END
    from langgraph.types import Command
except ImportError as error:
    raise ImportError(
        f"callfuse.integrations.langchain needs LangChain 1 ({error}): pip install 'langchain>=1.0'"
    ) from error

__all__ = ["LoopGuard"]


class LoopGuard(AgentMiddleware):
    """Prevents looping tool calls of an agent, or of a `ToolNode`.

    A looping call does not run: its `ToolMessage` has its previous result and a text that begins with `[callfuse]`.
    Warnings follow the content of their call's message. If a block leaves no call of an answer to run, the agent ends
    with the block's text as the last `AIMessage` (`on_block="end"`, the default), or the text is the call's result
    (`continue`), or `ToolLoopError` is raised (`raise`). A `ToolNode` cannot end its graph: there the text is the
    result of the call, and `end` needs the edge that `unless_blocked` makes; `raise` needs a node that does not handle
    the error.

    `config`, `on_loop` and `enabled` are those of `LoopDetector`. Each thread has its own detector, and so does each
    subgraph run in it. Without a `thread_id`, the ids of the messages before the model's first answer identify the
    conversation. Without those ids, it is not guarded. A new message of a person is a new turn.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        on_block: OnBlock = "end",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self._runs = AgentRuns(config, on_loop=on_loop, on_block=on_block, enabled=enabled)

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        """Judge the calls of the model's answer, and end the agent if they are blocked."""
        run, calls = self._judge(state, get_config())
        if run is None or run.ended is None:
            return None
        found = [(call, run.withheld(call["id"])) for call in calls]
        results = [_message(call, as_text(substitute(one))) for call, one in found if one is not None]
        return {"jump_to": "end", "messages": [*results, AIMessage(run.ended.message)]}

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        """Judge the calls as `after_model` does, for agents that run in an event loop."""
        return self.after_model(state, runtime)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Run a call, or return its replacement."""
        run, _ = self._judge(request.state, request.runtime.config)
        if run is None:
            return handler(request)
        found = run.withheld(request.tool_call["id"])
        if found is not None:
            return _message(request.tool_call, as_text(substitute(found)))
        return _finish(run, request.tool_call["id"], handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Run a call as `wrap_tool_call` does, for agents that run in an event loop."""
        run, _ = self._judge(request.state, request.runtime.config)
        if run is None:
            return await handler(request)
        found = run.withheld(request.tool_call["id"])
        if found is not None:
            return _message(request.tool_call, as_text(substitute(found)))
        return _finish(run, request.tool_call["id"], await handler(request))

    def unless_blocked(self, node: str) -> Callable[[Any, RunnableConfig], str]:
        """Return the path function of a conditional edge after a `ToolNode`: to `node`, usually the model's, or to the
        end of the graph if a block left no call of the model's answer to run, so that the model is not asked again.

            graph.add_conditional_edges("tools", guard.unless_blocked("model"), ["model", END])

        The last message is then a `ToolMessage` with the text of the block. If `on_block` is `continue`, it always
        leads to the node.
        """

        def path(state: Any, config: RunnableConfig) -> str:
            name = _conversation(_messages(state), config.get("configurable") or {})
            return END if name and self._runs.get(name).ended is not None else node

        return path

    def _judge(self, state: Any, config: Mapping[str, Any]) -> tuple[AgentRun | None, list[Any]]:
        """Return the run of this conversation, and the judged calls of its newest answer; None without a run."""
        messages = _messages(state)
        name = _conversation(messages, config.get("configurable") or {})
        at = _last(messages, AIMessage)
        if at is None or not name:
            return None, []
        answered = {message.tool_call_id for message in messages[at:] if isinstance(message, ToolMessage)}
        calls = [call for call in messages[at].tool_calls if call["id"] not in answered]
        if not calls:
            return None, []
        asked = _last(messages, HumanMessage)
        run = self._runs.get(name, None if asked is None else messages[asked].id or asked)
        run.begin([ToolCall(call["id"] or "", call["name"], call["args"]) for call in calls], (at, messages[at].id))
        return run, calls


def _conversation(messages: list[Any], configurable: Mapping[str, Any]) -> str:
    """Return the name of a conversation; empty if it has none. The namespace distinguishes subgraph runs, such as two
    concurrent sub-agents; its last part belongs to the node."""
    within = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    more = (within,) if within else ()
    if thread := configurable.get("thread_id"):
        return name_of(str(thread), *more)
    first = next((at for at, message in enumerate(messages) if isinstance(message, AIMessage)), len(messages))
    ids = [message.id for message in messages[:first]]  # a system message may have the same id in all conversations
    return name_of("", *map(str, ids), *more) if ids and all(ids) else ""


def _last(messages: list[Any], kind: type) -> int | None:
    """Return the index of the last message of this kind."""
    return next((at for at in reversed(range(len(messages))) if isinstance(messages[at], kind)), None)


def _messages(state: Any) -> list[Any]:
    """Return the messages of a graph's state: a list, or a mapping or object with `messages`."""
    if isinstance(state, list):
        return state
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return found or []


def _message(call: Mapping[str, Any], content: str) -> Any:
    return ToolMessage(content, name=call["name"], tool_call_id=call["id"])


def _finish(run: AgentRun, call_id: str, result: Any) -> Any:
    """Attach callfuse's text, if there is one, to a tool's result, or to the message of a command."""
    if isinstance(result, list):
        return [_finish(run, call_id, one) for one in result]
    if isinstance(result, Command):
        if not isinstance(result.update, Mapping) or "messages" not in result.update:
            return result
        messages = [_finish(run, call_id, one) for one in result.update["messages"]]
        return replace(result, update={**result.update, "messages": messages})
    if not isinstance(result, ToolMessage) or result.tool_call_id != call_id:
        return result
    text = run.finish(call_id, result.content, is_error=True if result.status == "error" else None)
    return result.model_copy(update={"content": append_text(result.content, text)}) if text else result
