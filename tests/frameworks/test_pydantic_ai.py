"""Agents of Pydantic AI, on OpenAI and Anthropic: stopped, steered, thinned, or left in peace."""

from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest

from callfuse.testing import looping_model
from tests.frameworks.tools import CURRENT, ELSE, HEALTHY, MARK, PAGE, QUESTION, Toolbox, beside
from tests.sdk.talks import MODEL
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor

# Any, so that types are the same with the framework and without it.
REASON = "Pydantic AI (pydantic-ai-slim[openai,anthropic]) is not installed"
pydantic_ai: Any = pytest.importorskip("pydantic_ai", reason=REASON)
on_anthropic: Any = pytest.importorskip("pydantic_ai.models.anthropic", reason=REASON, exc_type=ImportError)
on_openai: Any = pytest.importorskip("pydantic_ai.models.openai", reason=REASON, exc_type=ImportError)
to_anthropic: Any = pytest.importorskip("pydantic_ai.providers.anthropic", reason=REASON, exc_type=ImportError)
to_openai: Any = pytest.importorskip("pydantic_ai.providers.openai", reason=REASON, exc_type=ImportError)

MODELS = {"chat": on_openai.OpenAIChatModel, "responses": on_openai.OpenAIResponsesModel}

every_model = pytest.mark.parametrize("model", [*MODELS, "anthropic"])
streamed_and_whole = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@dataclass(slots=True)
class Running:
    """An agent at this URL; `tools.used` and `shown` grow with each run."""

    url: str
    model: str
    streamed: bool
    tools: Toolbox = field(default_factory=Toolbox)
    shown: str = ""
    """The text of streamed runs, as it came."""

    async def run(self, asked: str = QUESTION, **how: Any) -> Any:
        """The framework's result."""
        if self.model == "anthropic":
            async with anthropic.AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0) as claude:
                provider = to_anthropic.AnthropicProvider(anthropic_client=claude)
                return await self._run(on_anthropic.AnthropicModel(MODEL, provider=provider), asked, how)
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0) as client:
            provider = to_openai.OpenAIProvider(openai_client=client)
            return await self._run(MODELS[self.model](MODEL, provider=provider), asked, how)

    async def _run(self, model: Any, asked: str, how: dict[str, Any]) -> Any:
        agent = pydantic_ai.Agent(model, tools=[self.tools.search_web, self.tools.read_page])
        if not self.streamed:
            return await agent.run(asked, **how)
        async with agent.iter(asked, **how) as run:
            async for node in run:
                if agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as answer:
                        async for piece in answer.stream_text(delta=True, debounce_by=None):
                            self.shown += piece
            return run.result


@every_model
@streamed_and_whole
async def test_pass(model: str, streamed: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    vendor = StrictVendor(HEALTHY)
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.output == "They are camelids."
    assert running.tools.used == [("search_web", "llamas"), PAGE]
    assert not any(MARK in request.raw.decode() for request in vendor.requests)


@every_model
@streamed_and_whole
async def test_steer(model: str, streamed: bool) -> None:
    """With a chance the agent runs on to its answer: its third equal call is not run, the changed one is."""
    vendor = StrictVendor(looping_model(text="Again.", conclusion="Got it."))
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.output == "Got it."
    assert running.tools.used == [CURRENT, CURRENT, ELSE]
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert all(request.streams is streamed for request in vendor.requests[:3])
    assert not any(request.violations for request in vendor.requests)
    assert MARK not in running.shown


@every_model
@streamed_and_whole
async def test_block(model: str, streamed: bool) -> None:
    """In block mode the run ends at the third equal call with callfuse's text, which the user sees streamed."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    async with wired(vendor, "block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.output.startswith("Again.")
    assert MARK in result.output
    assert running.tools.used == [CURRENT, CURRENT]
    assert len(vendor.requests) == 3
    if streamed:
        assert running.shown == "Again.Again." + result.output


@every_model
@streamed_and_whole
async def test_an_innocent_sibling(model: str, streamed: bool) -> None:
    """Of two parallel calls the looping one is not run, the other is."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.output == "Enough."
    assert running.tools.used == [PAGE, CURRENT, CURRENT, PAGE]
    assert not any(request.violations for request in vendor.requests)


@every_model
@streamed_and_whole
@pytest.mark.parametrize("mode", ["block", "chance_then_block", "warn"])
async def test_the_conversation_goes_on(model: str, streamed: bool, mode: str) -> None:
    """The history that the framework made of an ended run is one that the vendor accepts with the next question."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, mode) as url:
        running = Running(url, model, streamed)
        first = await running.run()
        second = await running.run("And now?", message_history=first.all_messages())
    assert second.output
    assert not any(request.violations for request in vendor.requests)


@streamed_and_whole
@pytest.mark.parametrize("mode", ["block", "chance_then_block", "warn"])
async def test_thinking(streamed: bool, mode: str) -> None:
    """With thinking on, every history that the framework sends to Anthropic has its signatures and is accepted."""
    vendor = StrictVendor(looping_model(thinking="Let me think.", conclusion="Got it."))
    async with wired(vendor, mode) as url:
        running = Running(url, "anthropic", streamed)
        thinks = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
        result = await running.run(model_settings=thinks)
    assert not any(request.violations for request in vendor.requests)
    assert (result.output == "Got it.") is (mode != "block")
