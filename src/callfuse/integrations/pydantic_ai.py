"""Guard agents of Pydantic AI with a capability: `Agent(model, capabilities=[LoopGuard()])`."""

from dataclasses import replace
from typing import Any

from callfuse.config import Source
from callfuse.inprocess.detector import OnLoop
from callfuse.inprocess.runs import AgentRun, AgentRuns, OnBlock, substitute
from callfuse.inprocess.tools import ToolLoopError
from callfuse.inprocess.values import append_text
from callfuse.model import ToolCall

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ModelRetry, ToolRetryError
    from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturn
except ImportError as error:
    raise ImportError(
        f"callfuse.integrations.pydantic_ai needs pydantic-ai with capabilities ({error}): "
        "pip install 'pydantic-ai-slim>=2.68'"
    ) from error

__all__ = ["LoopGuard"]


class LoopGuard(AbstractCapability[Any]):
    """Prevents looping calls of an agent's function tools.

    A looping call does not run: the model reads its previous result and a text that begins with `[callfuse]`. Warnings
    follow the result of their call. If a block leaves no call of an answer to run, the run ends with the block's text
    as output (`on_block="end"`, the default; if the output must not be text, `ToolLoopError` is raised), or the text is
    the call's result (`continue`), or `ToolLoopError` is raised (`raise`).

    `config`, `on_loop` and `enabled` are those of `LoopDetector`. Each conversation (`conversation_id`) has its own
    detector, and each run with a prompt is a new turn. Output tools and external tools are not judged.
    """

    def __init__(
        self,
        config: Source | None = None,
        *,
        on_loop: OnLoop | None = None,
        on_block: OnBlock = "end",
        enabled: bool = True,
    ) -> None:
        self._runs = AgentRuns(config, on_loop=on_loop, on_block=on_block, enabled=enabled)

    async def for_run(self, ctx: Any) -> "_RunGuard":
        """Return the capability of one run of the agent."""
        name = ctx.conversation_id or ctx.run_id or "-"
        return _RunGuard(self._runs.get(name, None if ctx.prompt is None else ctx.run_id))


class _RunGuard(AbstractCapability[Any]):
    """The hooks of one run."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Judge the calls of an answer. If they end the run, a text replaces them."""
        parameters = request_context.model_request_parameters
        calls, kept = _calls(response, parameters)
        if not calls:
            return response
        self._run.begin([ToolCall(one.tool_call_id, one.tool_name, one.args or {}) for one in calls])
        if self._run.ended is None or any(isinstance(part, ToolCallPart) for part in kept):
            return response
        if not parameters.allow_text_output:
            raise ToolLoopError(self._run.ended)
        return replace(response, parts=[*kept, TextPart(self._run.ended.message)], finish_reason="stop")

    async def wrap_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """Skip the validation of a call that does not run, so that its replacement can be returned."""
        return {} if self._run.withheld(call.tool_call_id) else await handler(args)

    async def on_tool_validate_error(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Any) -> Any:
        """Record that the model's arguments were wrong."""
        if text := self._run.finish(call.tool_call_id, error):
            raise ModelRetry(f"{error}\n\n{text}") from error
        raise error

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """Run a call, or return its replacement."""
        if (found := self._run.withheld(call.tool_call_id)) is not None:
            return substitute(found)
        try:
            result = await handler(args)
        except ToolRetryError as error:
            said = error.tool_retry.content
            if text := self._run.finish(call.tool_call_id, said, is_error=True):
                raise ModelRetry(f"{said}\n\n{text}") from error
            raise
        value = result.return_value if isinstance(result, ToolReturn) else result
        if not (text := self._run.finish(call.tool_call_id, value)):
            return result
        if isinstance(result, ToolReturn):
            return replace(result, return_value=append_text(value, text))
        return append_text(value, text)


def _calls(response: Any, parameters: Any) -> tuple[list[Any], list[Any]]:
    """Return the calls of an answer that the agent runs, and its other parts."""
    others = {tool.name for tool in parameters.output_tools}
    others |= {tool.name for tool in parameters.function_tools if tool.kind == "external"}
    calls = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name not in others]
    return calls, [part for part in response.parts if part not in calls]
