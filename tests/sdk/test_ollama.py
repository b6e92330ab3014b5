"""Agents on Ollama's Python client, sync and async, whole and streamed: stopped, steered, warned, or left in peace.

The client drops the ids of calls, so all that callfuse knows them by is their order, their tool and their arguments.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ollama
import pytest

from callfuse.testing import Answer, Call, Usage, VendorRequest, looping_model
from tests.sdk.talks import MODEL, QUESTION, TOOLS, Said, agent
from tests.sdk.wiring import beside, wired
from tests.support.kits.ollama import merged
from tests.support.rules import StrictVendor

MARK = "[callfuse]"
Way = Literal["whole", "stream"]

every_way = pytest.mark.parametrize("way", ["whole", "stream"])
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@dataclass(slots=True)
class OllamaTalk:
    """`ollama`, chats; `ends` keeps the last part of each answer."""

    url: str
    way: Way
    sync: bool
    ends: list[ollama.ChatResponse]

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next message."""
        asked: dict[str, Any] = {"model": MODEL, "messages": list(messages), "tools": [_tool(name) for name in TOOLS]}
        if self.sync:
            parts = await asyncio.to_thread(self._ask, asked)
        else:
            async with ollama.AsyncClient(self.url) as client:
                if self.way == "whole":
                    parts = [await client.chat(**asked)]
                else:
                    parts = [part async for part in await client.chat(**asked, stream=True)]
        message, end = merged(parts), parts[-1]
        self.ends.append(end)
        assert [bool(part.done) for part in parts] == [False] * (len(parts) - 1) + [True]
        calls = tuple((str(at), call.function.name) for at, call in enumerate(message.tool_calls or []))
        return Said(message.content or "", message.thinking or "", calls, end.done_reason, message)

    def _ask(self, asked: dict[str, Any]) -> list[ollama.ChatResponse]:
        with ollama.Client(self.url) as client:
            return [client.chat(**asked)] if self.way == "whole" else list(client.chat(**asked, stream=True))

    def results(self, said: Said, result: str) -> list[Any]:
        """A tool message each, which names its tool."""
        return [{"role": "tool", "tool_name": name, "content": result} for _, name in said.calls]


def _tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def talk(url: str, way: Way, *, sync: bool) -> OllamaTalk:
    """A client in one way of asking."""
    return OllamaTalk(url, way, sync, [])


@every_way
@sync_and_async
async def test_pass(way: Way, sync: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(talk(url, way, sync=sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [["search_web"], ["read_page"], []]
    assert (run.end.text, run.end.finish) == ("They are camelids.", "stop")
    assert not any(MARK in request.raw.decode() for request in vendor.requests)
    assert [request.streams for request in vendor.requests] == [way == "stream"] * 3


@every_way
@sync_and_async
async def test_block(way: Way, sync: bool) -> None:
    """In block mode the loop is broken at its third call, which the agent never sees."""
    vendor = StrictVendor(looping_model(text="Again.", thinking="Hm.", stubborn=True))
    async with wired(vendor, "block") as url:
        run = await agent(talk(url, way, sync=sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 3
    assert run.end.text.startswith(f"Again.\n\n{MARK}")
    assert (run.end.thinking, run.end.finish) == ("Hm.", "stop")


def thoughtful(request: VendorRequest) -> Answer:
    """Searches the same thing until it is told, and tells its tokens."""
    usage = Usage(input_tokens=100 * request.number, output_tokens=request.number)
    if request.guidance:
        return Answer("Another way.", (Call("read_page", {"url": "https://example.org/"}),), "I see.", usage=usage)
    if any(call.name == "read_page" for call in request.calls):
        return Answer("Got it.", usage=usage)
    return Answer("Let me look.", (Call("search_web", {"query": "llamas"}),), "Hm.", usage=usage)


@every_way
@sync_and_async
@pytest.mark.parametrize(("usage", "inputs"), [("last", 400), ("sum", 700)])
async def test_steer(way: Way, sync: bool, usage: str, inputs: int) -> None:
    """In the third exchange the model reads the guidance and goes on: one message, one model, the counts of both."""
    vendor = StrictVendor(thoughtful)
    async with wired(vendor, "chance_then_block", usage=usage) as url:
        asking = talk(url, way, sync=sync)
        run = await agent(asking)
    assert [[tool for _, tool in said.calls] for said in run.answers] == [
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    steered, end = run.answers[2], asking.ends[2]
    assert steered.text == "Let me look.\n\nAnother way."
    assert steered.thinking == "Hm.\n\nI see."
    assert (end.model, end.done_reason) == (MODEL, "stop")
    assert (end.prompt_eval_count, end.eval_count) == (inputs, 3 + 4)
    assert run.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)
    (asked,) = [request for request in vendor.requests if request.guidance]
    said, result = asked.body["messages"][-2:]
    assert (said["content"], said["thinking"]) == ("Let me look.", "Hm.")
    assert (result["role"], result["tool_name"]) == ("tool", "search_web")
    assert result["tool_call_id"] == said["tool_calls"][0]["id"]


@every_way
@sync_and_async
async def test_steer_in_vain(way: Way, sync: bool) -> None:
    """A model that does not listen is blocked after its one chance."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(talk(url, way, sync=sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 4
    assert run.end.text.startswith(MARK)


@every_way
@sync_and_async
async def test_warn(way: Way, sync: bool) -> None:
    """A warning reaches the model with the third result, and the model takes it."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "warn") as url:
        run = await agent(talk(url, way, sync=sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 1, 1, 0]
    assert run.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]


@every_way
@sync_and_async
async def test_an_innocent_sibling(way: Way, sync: bool) -> None:
    """Of two parallel calls the looping one goes; the model reads why with the other's result, and only there."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(talk(url, way, sync=sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [
        ["read_page"],
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    assert run.end.text == "Enough."
    last = vendor.requests[-1]
    assert not any("id" in call for turn in last.body["messages"] for call in turn.get("tool_calls") or [])
    results = [turn["content"] for turn in last.body["messages"] if turn["role"] == "tool"]
    assert [MARK in result for result in results] == [False, False, False, True]


@sync_and_async
async def test_a_silent_model_is_waited_for(sync: bool) -> None:
    """Lines that keep the connection open while the model is asked again neither raise nor say anything."""

    async def slow(request: VendorRequest) -> Answer:
        if request.guidance:
            await asyncio.sleep(0.2)
        return thoughtful(request)

    vendor = StrictVendor(slow)
    async with wired(vendor, "chance_then_block", heartbeat_s=0.02) as url:
        run = await agent(talk(url, "stream", sync=sync))
    assert run.answers[2].text == "Let me look.\n\nAnother way."
    assert run.end.text == "Got it."


async def test_a_result_with_line_separators() -> None:
    """The client ends lines at U+2028 and U+0085 too: where a block quotes a result that has them, they are escaped."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with wired(vendor, "block", error_messages={"block": "It said {previous_result}"}) as url:
        run = await agent(talk(url, "stream", sync=True), result="one\u2028two\u0085three")
    assert "one\u2028two\u0085three" in run.end.text
    assert run.end.calls == ()
    assert QUESTION["content"] in vendor.requests[0].raw.decode()
