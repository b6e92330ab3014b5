"""Agents on the official OpenAI SDK and the Responses API: stopped, steered, warned, or left in peace.

Each in every way of asking, and of keeping the conversation: by the client, by ids that the vendor knows,
or by the vendor.
"""

from typing import Any

import pytest
from openai import AsyncOpenAI

from callfuse.testing import Answer, Call, Usage, VendorRequest, looping_model
from tests.sdk.responses import KEEPS, Keeps, ResponsesAgent, calls_of
from tests.sdk.talks import WAYS, Way
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor

MARK = "[callfuse]"

every_way = pytest.mark.parametrize("way", WAYS)
every_keep = pytest.mark.parametrize("keeps", KEEPS)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@every_way
@every_keep
@sync_and_async
async def test_pass(way: Way, keeps: Keeps, sync: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with wired(vendor, "chance_then_block") as url:
        run = await ResponsesAgent(url, way, sync, keeps).run()
    assert [calls_of(response) for response in run] == [["search_web"], ["read_page"], []]
    assert (run[-1].output_text, run[-1].status) == ("They are camelids.", "completed")
    assert not any(MARK in request.raw.decode() for request in vendor.requests)


@every_way
@every_keep
async def test_block_and_go_on(way: Way, keeps: Keeps) -> None:
    """In block mode the loop is broken at its third call; after a new user message the call may run once more."""
    vendor = StrictVendor(looping_model(text="Again.", thinking="Hm?", stubborn=True))
    async with wired(vendor, "block") as url:
        agent = ResponsesAgent(url, way, keeps=keeps)
        run = await agent.run()
        assert [len(calls_of(response)) for response in run] == [1, 1, 0]
        assert len(vendor.requests) == 3
        assert run[-1].output_text.startswith("Again.")
        assert MARK in run[-1].output_text
        assert run[-1].output[-1].id.startswith("msg_callfuse_")
        again = await agent.run("And now?")
    assert [len(calls_of(response)) for response in again] == [1, 0]
    assert not any(request.violations for request in vendor.requests)


@every_way
@every_keep
@pytest.mark.parametrize("thinking", ["", "Let me think."], ids=["", "thinking"])
async def test_steer(way: Way, keeps: Keeps, thinking: str) -> None:
    """With a chance, the model reads the guidance within the third exchange, changes course, and the run succeeds."""
    vendor = StrictVendor(looping_model(conclusion="Got it.", thinking=thinking))
    async with wired(vendor, "chance_then_block") as url:
        agent = ResponsesAgent(url, way, keeps=keeps)
        run = await agent.run()
        assert [len(calls_of(response)) for response in run] == [1, 1, 1, 0]
        assert run[-1].output_text == "Got it."
        assert len(vendor.requests) == 5
        assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
        await agent.run("Thank you.", most=1)
    assert not any(request.violations for request in vendor.requests)


@every_way
@every_keep
async def test_steer_in_vain(way: Way, keeps: Keeps) -> None:
    """A model that does not listen is blocked after its one chance, and the conversation can go on."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with wired(vendor, "chance_then_block") as url:
        agent = ResponsesAgent(url, way, keeps=keeps)
        run = await agent.run()
        assert [len(calls_of(response)) for response in run] == [1, 1, 0]
        assert len(vendor.requests) == 4
        assert MARK in run[-1].output_text
        await agent.run("Once more?", most=1)
    assert not any(request.violations for request in vendor.requests)


@every_way
@every_keep
async def test_warn(way: Way, keeps: Keeps) -> None:
    """A warning reaches the model with the third result, and the model takes it."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "warn") as url:
        run = await ResponsesAgent(url, way, keeps=keeps).run()
    assert [len(calls_of(response)) for response in run] == [1, 1, 1, 1, 0]
    assert run[-1].output_text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)


def beside(request: VendorRequest) -> Answer:
    """Reads a page, then searches the same thing for ever, at last with a page beside it."""
    page, search = Call("read_page", {"url": "https://example.org/"}), Call("search_web", {"query": "llamas"})
    if request.guidance:
        return Answer("Enough.")
    script = [Answer(calls=(page,)), Answer(calls=(search,)), Answer(calls=(search,))]
    return [*script, Answer(calls=(search, page), thinking="Both.")][request.number - 1]


@every_way
@every_keep
async def test_an_innocent_sibling(way: Way, keeps: Keeps) -> None:
    """Of two parallel calls the looping one goes, the other is run, and the model reads why with its result."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        run = await ResponsesAgent(url, way, keeps=keeps).run()
    assert [calls_of(response) for response in run] == [
        ["read_page"],
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    assert run[-1].output_text == "Enough."
    assert len(vendor.requests) == 5
    assert not any(request.violations for request in vendor.requests)


@every_way
async def test_the_final_response_of_a_steer(way: Way) -> None:
    """By the SDK: one id, the items of both answers in order, output tokens summed, input tokens the last answer's."""
    again = Answer("Again.", (Call("search_web", {"query": "x"}),), usage=Usage(100, 10, 40))
    other = Answer("Else.", (Call("read_page", {"url": "y"}),), thinking="Hm.", usage=Usage(150, 20, 90))
    vendor = StrictVendor([again, again, again, other, Answer("Done.")])
    async with wired(vendor, "chance_then_block") as url:
        run = await ResponsesAgent(url, way).run()
    steered = run[2]
    assert steered.id == "resp_scripted_3"
    assert [item.type for item in steered.output] == ["message", "reasoning", "message", "function_call"]
    assert steered.output_text == "Again.Else."
    assert steered.usage.output_tokens == 30
    assert steered.usage.input_tokens == 150
    assert steered.usage.total_tokens == 180
    assert steered.usage.input_tokens_details.cached_tokens == 90


async def test_a_stream_in_the_background() -> None:
    """It is guarded as any: the SDK gets a response that has completed without the call."""
    vendor = StrictVendor(looping_model(stubborn=True))
    call = {"type": "function_call", "name": "search_web", "arguments": '{"query":"current status"}'}
    said: Any = [{"role": "user", "content": "Go."}]
    for at in range(2):
        said += [call | {"call_id": f"c{at}"}, {"type": "function_call_output", "call_id": f"c{at}", "output": "none"}]
    tools: Any = [{"type": "function", "name": "search_web", "parameters": {}, "strict": None}]
    async with wired(vendor, "block") as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        stream = await client.responses.create(model="m", input=said, tools=tools, background=True, stream=True)
        seen = [event async for event in stream]
    assert vendor.requests[0].body["background"] is True
    assert seen[-1].type == "response.completed"
    assert MARK in seen[-1].response.output_text
    assert calls_of(seen[-1].response) == []
