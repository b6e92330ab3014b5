"""Guard agents of Google's Agent Development Kit with a plugin: `Runner(..., plugins=[LoopGuard()])`."""

from typing import Any

from callfuse.config import Source
from callfuse.inprocess.detector import OnLoop
from callfuse.inprocess.runs import AgentRun, AgentRuns, OnBlock, name_of, substitute
from callfuse.inprocess.values import append_text
from callfuse.model import ToolCall

try:
    from google.adk.flows.llm_flows.functions import generate_client_function_call_id
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Part
except ImportError as error:
    raise ImportError(
        f"callfuse.integrations.google_adk needs google-adk ({error}): pip install 'google-adk>=2.13'"
    ) from error

__all__ = ["LoopGuard"]


class LoopGuard(BasePlugin):
    """Prevents looping tool calls of all agents of a runner.

    A looping call does not run: its response is its previous one, with a text that begins with `[callfuse]` under the
    key `callfuse`. Warnings are under the same key, in the response of their call. If a block leaves no call of an
    answer to run, the agent ends with the block's text in place of the calls (`on_block="end"`, the default), or the
    text is the call's response (`continue`), or `ToolLoopError` is raised (`raise`).

    `config`, `on_loop` and `enabled` are those of `LoopDetector`. Each agent has its own detector in each session, and
    each invocation is a new turn. `name` is the plugin's, for a runner with several plugins.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        on_block: OnBlock = "end",
        enabled: bool = True,
        name: str = "callfuse",
    ) -> None:
        super().__init__(name=name)
        self._runs = AgentRuns(config, on_loop=on_loop, on_block=on_block, enabled=enabled)

    def _run(self, context: Any) -> AgentRun:
        session = context.session
        name = name_of(session.app_name, session.user_id, session.id, context.agent_name)
        return self._runs.get(name, context.invocation_id)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> Any:
        """Judge the calls of a whole answer. If they end the agent, a text replaces them."""
        parts = (llm_response.content.parts if llm_response.content else None) or []
        calls = [part.function_call for part in parts if part.function_call]
        if llm_response.partial or not calls:
            return None
        for call in calls:  # the flow would do this a moment later
            call.id = call.id or generate_client_function_call_id()
        run = self._run(callback_context)
        run.begin([ToolCall(call.id, call.name, call.args or {}) for call in calls])
        if run.ended is None:
            return None
        kept = [part for part in parts if not part.function_call]
        content = llm_response.content.model_copy(update={"parts": [*kept, Part(text=run.ended.message)]})
        return llm_response.model_copy(update={"content": content})

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
        """Return the replacement for a call that does not run; None for a call that runs."""
        found = self._run(tool_context).withheld(tool_context.function_call_id)
        return None if found is None else _response(substitute(found))

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        """Record a response. Returns it with callfuse's text, or None without a text."""
        text = self._run(tool_context).finish(tool_context.function_call_id, result)
        return _response(append_text(result, text)) if text else None

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Any) -> None:
        """Record that a call failed. The error ends the run unless another plugin handles it."""
        if isinstance(error, Exception):
            self._run(tool_context).finish(tool_context.function_call_id, error)


def _response(result: Any) -> Any:
    """Convert any value to a response, as the framework does."""
    return result if isinstance(result, dict) else {"result": result}
