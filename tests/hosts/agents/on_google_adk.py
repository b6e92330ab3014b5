"""Agents of Google's Agent Development Kit; `--stream`: with streamed answers."""

import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from callfuse.integrations.google_adk import LoopGuard
from tests.hosts.agents.scenes import Model, Toolbox, by_the_page, tell


class Scripted(BaseLlm):
    """A model that asks a script."""

    script: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
        """One answer; its calls have no ids, as those of Gemini."""
        contents = llm_request.contents
        start = max(at for at, one in enumerate(contents) if one.role == "user" and one.parts[0].text)
        answers = [at for at, one in enumerate(contents) if at > start and one.role == "model"]
        last = contents[-1].parts if answers else []
        results = [_text(part.function_response.response) for part in last if part.function_response]
        said = self.script(contents[start].parts[0].text, len(answers), results)
        if isinstance(said, str):
            if stream:
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]), partial=True)
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))
            return
        parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in said]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _text(response: dict[str, Any]) -> str:
    return "\n\n".join(str(value) for value in response.values())


class Agent:
    """A runner."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    async def ask(self, text: str, conversation: str) -> str:
        """Run it on."""
        service = self.runner.session_service
        session = {"app_name": self.runner.app_name, "user_id": "u", "session_id": conversation}
        if await service.get_session(**session) is None:
            await service.create_session(**session)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = RunConfig(streaming_mode=StreamingMode.SSE if "--stream" in sys.argv else StreamingMode.NONE)
        said = ""
        how = {"user_id": "u", "session_id": conversation, "new_message": message, "run_config": config}
        try:
            async for event in self.runner.run_async(**how):
                if event.is_final_response() and event.content and event.content.parts:
                    said = event.content.parts[0].text
        except RuntimeError as error:  # as the framework has it for what a plugin raises
            raise error.__cause__ or error from error
        return said


def build(model: Model, tools: Toolbox, guard: Mapping[str, Any] | None) -> Agent:
    """An agent with these tools."""
    scripted = Scripted(model="scripted", script=model)
    if guard is None:
        return Agent(by_the_page("google.adk.agents", "runner", model=scripted, search=tools.search))
    agent = LlmAgent(name="searcher", model=scripted, tools=[tools.search, tools.read_page])
    return Agent(InMemoryRunner(agent=agent, app_name="app", plugins=[LoopGuard(**guard)]))


if __name__ == "__main__":
    tell(build)
