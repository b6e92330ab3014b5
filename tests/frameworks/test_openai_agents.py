"""Agents of the OpenAI Agents SDK, on both of its model classes: stopped, steered, thinned, or left in peace."""

from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from callfuse.testing import looping_model
from tests.frameworks.tools import CURRENT, ELSE, HEALTHY, MARK, PAGE, QUESTION, Toolbox, beside
from tests.sdk.talks import MODEL
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor

# Any, so that types are the same with the framework and without it.
agents: Any = pytest.importorskip("agents", reason="the OpenAI Agents SDK (openai-agents) is not installed")

MODELS = {"responses": "OpenAIResponsesModel", "chat": "OpenAIChatCompletionsModel"}

every_model = pytest.mark.parametrize("model", list(MODELS))
streamed_and_whole = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@dataclass(slots=True)
class Running:
    """An agent at this URL; `tools.used` and `shown` grow with each run."""

    url: str
    model: str
    streamed: bool
    tools: Toolbox = field(default_factory=Toolbox)
    shown: str = ""
    """The text deltas of streamed runs."""

    async def run(self, asked: Any = QUESTION, **how: Any) -> Any:
        """The framework's result."""
        config = agents.RunConfig(tracing_disabled=True)  # traces go to the real vendor
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0) as client:
            agent = agents.Agent(
                name="Searcher",
                model=getattr(agents, MODELS[self.model])(MODEL, client),
                tools=[agents.function_tool(tool) for tool in (self.tools.search_web, self.tools.read_page)],
            )
            if not self.streamed:
                return await agents.Runner.run(agent, asked, run_config=config, **how)
            result = agents.Runner.run_streamed(agent, asked, run_config=config, **how)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    self.shown += event.data.delta
            return result


@every_model
@streamed_and_whole
async def test_pass(model: str, streamed: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    vendor = StrictVendor(HEALTHY)
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.final_output == "They are camelids."
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
    assert result.final_output == "Got it."
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
    assert MARK in result.final_output
    assert result.final_output.startswith("Again.") is (model == "chat")  # in Responses it is a message of its own
    assert running.tools.used == [CURRENT, CURRENT]
    assert len(vendor.requests) == 3
    if streamed:
        assert running.shown.startswith("Again.Again.Again.")
        assert running.shown.endswith(result.final_output)


@every_model
@streamed_and_whole
async def test_an_innocent_sibling(model: str, streamed: bool) -> None:
    """Of two parallel calls the looping one is not run, the other is."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, model, streamed)
        result = await running.run()
    assert result.final_output == "Enough."
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
        second = await running.run([*first.to_input_list(), {"role": "user", "content": "And now?"}])
    assert second.final_output
    assert not any(request.violations for request in vendor.requests)


@streamed_and_whole
async def test_steer_with_the_vendors_memory(streamed: bool) -> None:
    """A run that sends only what is new, by `previous_response_id`, is steered all the same."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "chance_then_block") as url:
        running = Running(url, "responses", streamed)
        result = await running.run(auto_previous_response_id=True)
    assert result.final_output == "Got it."
    assert running.tools.used == [CURRENT, CURRENT, ELSE]
    assert not any(request.violations for request in vendor.requests)


@streamed_and_whole
async def test_block_with_the_vendors_memory(streamed: bool) -> None:
    """A run that sends only what is new is broken, and the next one begins where the vendor's memory ends."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with wired(vendor, "block") as url:
        running = Running(url, "responses", streamed)
        first = await running.run(auto_previous_response_id=True)
        assert MARK in first.final_output
        assert running.tools.used == [CURRENT, CURRENT]
        await running.run("And now?", previous_response_id=first.last_response_id)
    assert not any(request.violations for request in vendor.requests)
