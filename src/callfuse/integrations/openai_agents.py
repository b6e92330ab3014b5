"""Guard agents of the OpenAI Agents SDK: `agent = guard_agent(agent)`."""

from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from callfuse.config import Source
from callfuse.inprocess.detector import OnLoop
from callfuse.inprocess.runs import AgentRun, AgentRuns, OnBlock, substitute
from callfuse.inprocess.tools import ToolLoopError
from callfuse.inprocess.values import append_text, as_text
from callfuse.model import ToolCall

try:
    from agents import (
        AgentHooks,
        FunctionTool,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolOutputGuardrail,
        ToolsToFinalOutputResult,
    )
    from agents.lifecycle import AgentHooksBase
except ImportError as error:
    raise ImportError(
        f"callfuse.integrations.openai_agents needs openai-agents ({error}): pip install 'openai-agents>=0.24'"
    ) from error

__all__ = ["guard_agent"]


def guard_agent(
    agent: Any,
    config: Source | None = None,
    *,
    on_loop: OnLoop | None = None,
    on_block: OnBlock = "end",
    enabled: bool = True,
) -> Any:
    """Return a copy of an agent that prevents looping calls of function tools.

    A looping call does not run: its output is its previous one and a text that begins with `[callfuse]`. Warnings
    follow the output of their call, if it is text or JSON. If a block leaves no call of an answer to run, the run ends
    with the block's text as final output (`on_block="end"`, the default; if the output must not be text, or the agent
    stops on its first tool, `ToolLoopError` is raised), or the text is the call's output (`continue`), or
    `ToolLoopError` is raised (`raise`).

    `config`, `on_loop` and `enabled` are those of `LoopDetector`. Each run has its own detector. Agents that this one
    hands off to must be guarded separately. Tools of MCP servers and hosted tools are not guarded.
    """
    return _GuardedRuns(agent, AgentRuns(config, on_loop=on_loop, on_block=on_block, enabled=enabled)).guarded()


class _GuardedRuns:
    """The runs of one agent, with the hooks and the guardrails of its tools."""

    def __init__(self, agent: Any, runs: AgentRuns) -> None:
        self._agent = agent
        self._runs = runs
        self._of_context: WeakKeyDictionary[Any, AgentRun] = WeakKeyDictionary()
        self._of_call: WeakValueDictionary[tuple[int, str], AgentRun] = WeakValueDictionary()
        self._names = {tool.name for tool in agent.tools if isinstance(tool, FunctionTool)}

    def guarded(self) -> Any:
        """Return the copy of the agent."""
        own, hooks = self._agent.hooks or AgentHooks(), AgentHooks()
        for name in vars(AgentHooksBase):
            if name.startswith("on_"):
                setattr(hooks, name, getattr(own, name))
        self._then = own.on_llm_end
        hooks.on_llm_end = self._see_answer
        tools = [self._guard(tool) if isinstance(tool, FunctionTool) else tool for tool in self._agent.tools]
        behavior = self._agent.tool_use_behavior
        if behavior != "stop_on_first_tool":
            behavior = self._end_or_go_on
        return self._agent.clone(tools=tools, hooks=hooks, tool_use_behavior=behavior)

    def _guard(self, tool: Any) -> Any:
        before, after = tool.tool_input_guardrails or [], tool.tool_output_guardrails or []
        return replace(
            tool,
            tool_input_guardrails=[*before, ToolInputGuardrail(self._before, name="callfuse")],
            tool_output_guardrails=[*after, ToolOutputGuardrail(self._after, name="callfuse")],
        )

    async def _see_answer(self, context: Any, agent: Any, response: Any) -> None:
        """Judge the function calls of an answer."""
        await self._then(context, agent, response)
        calls = [item for item in response.output if item.type == "function_call" and item.name in self._names]
        run = self._of_context.setdefault(context, self._runs.new("-"))
        run.begin([ToolCall(one.call_id, one.name, one.arguments, one.namespace or "") for one in calls])
        for call in calls:
            self._of_call[id(context.usage), call.call_id] = run
        if run.ended is not None and not self._may_end_with_text():
            raise ToolLoopError(run.ended)

    def _may_end_with_text(self) -> bool:
        return self._agent.output_type in (None, str) and self._agent.tool_use_behavior != "stop_on_first_tool"

    def _run(self, data: Any) -> AgentRun | None:
        # The context of a call differs from that of its run, but has the same usage. So do agents that run as a tool.
        return self._of_call.get((id(data.context.usage), data.context.tool_call_id))

    def _before(self, data: Any) -> Any:
        """Act as the input guardrail of each tool."""
        run = self._run(data)
        found = run.withheld(data.context.tool_call_id) if run is not None else None
        if found is None:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(as_text(substitute(found)), found.finding_id)

    def _after(self, data: Any) -> Any:
        """Act as the output guardrail of each tool."""
        run = self._run(data)
        text = run.finish(data.context.tool_call_id, data.output) if run is not None else ""
        if not text or not isinstance(data.output, str | int | float | dict | list | None):
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(as_text(append_text(data.output, text)))

    async def _end_or_go_on(self, context: Any, results: Any) -> Any:
        """End the run with the results of these calls if it is blocked; else do what the agent itself would do."""
        run, behavior = self._of_context.get(context), self._agent.tool_use_behavior
        if run is not None and run.ended is not None:
            return ToolsToFinalOutputResult(is_final_output=True, final_output=run.ended.message)
        if callable(behavior):
            decided = behavior(context, results)
            return await decided if isawaitable(decided) else decided
        names = behavior["stop_at_tool_names"] if isinstance(behavior, Mapping) else ()
        last = next((one for one in results if one.tool.name in names), None)
        return ToolsToFinalOutputResult(is_final_output=last is not None, final_output=last.output if last else None)
