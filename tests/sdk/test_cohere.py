"""Agents on Cohere's Python client, sync and async, whole and streamed: stopped, steered, warned, or left in peace."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import cohere
import pytest

from callfuse.testing import Answer, Call, Usage, VendorRequest, looping_model
from tests.sdk.talks import MODEL, TOOLS, Said, agent
from tests.sdk.wiring import beside, wired
from tests.support.kits.cohere import merged, read_message
from tests.support.rules import StrictVendor

MARK = "[callfuse]"
Way = Literal["whole", "stream"]

every_way = pytest.mark.parametrize("way", ["whole", "stream"])
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@dataclass(slots=True)
class CohereTalk:
    """`cohere`, chats; `usages` keeps what each answer has cost."""

    url: str
    way: Way
    sync: bool
    usages: list[dict[str, Any]] = field(default_factory=list)

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next message."""
        asked: dict[str, Any] = {"model": MODEL, "messages": list(messages), "tools": [_tool(name) for name in TOOLS]}
        if self.sync:
            return await asyncio.to_thread(self._ask, asked)
        async with cohere.AsyncClientV2("none", base_url=self.url) as client:
            if self.way == "whole":
                return self._said_whole(await client.chat(**asked))
            return self._said([event async for event in client.chat_stream(**asked)])

    def _ask(self, asked: dict[str, Any]) -> Said:
        with cohere.ClientV2("none", base_url=self.url) as client:
            if self.way == "whole":
                return self._said_whole(client.chat(**asked))
            return self._said(list(client.chat_stream(**asked)))

    def _said_whole(self, answer: Any) -> Said:
        self.usages.append(answer.usage.model_dump(exclude_none=True))
        return _read(answer.message.model_dump(exclude_none=True), answer.finish_reason)

    def _said(self, events: Sequence[Any]) -> Said:
        parts = [event.model_dump(exclude_none=True) for event in events]
        assert [parts[0]["type"], parts[-1]["type"]] == ["message-start", "message-end"]
        self.usages.append(parts[-1]["delta"]["usage"])
        return _read(*merged(parts))

    def results(self, said: Said, result: str) -> list[Any]:
        """A tool message each."""
        return [{"role": "tool", "tool_call_id": call_id, "content": result} for call_id, _ in said.calls]


def _read(message: dict[str, Any], finish: str | None) -> Said:
    view = read_message(message, finish)
    return Said(view.text, view.thinking, tuple((call.id, call.name) for call in view.calls), finish, message)


def _tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def thoughtful(request: VendorRequest) -> Answer:
    """Searches the same thing until it is told, and tells its tokens."""
    usage = Usage(input_tokens=100 * request.number, output_tokens=request.number)
    if request.guidance:
        return Answer("Another way.", (Call("read_page", {"url": "https://example.org/"}),), usage=usage)
    if any(call.name == "read_page" for call in request.calls):
        return Answer("Got it.", usage=usage)
    return Answer("I will look.", (Call("search_web", {"query": "llamas"}),), "Hm.", usage=usage)


@every_way
@sync_and_async
async def test_pass(way: Way, sync: bool) -> None:
    """A healthy run passes."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(CohereTalk(url, way, sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [["search_web"], ["read_page"], []]
    assert (run.end.text, run.end.finish) == ("They are camelids.", "COMPLETE")


@every_way
@sync_and_async
async def test_block(way: Way, sync: bool) -> None:
    """In block mode the loop is broken at its third call, which the agent never sees."""
    vendor = StrictVendor(looping_model(text="I will look.", stubborn=True))
    async with wired(vendor, "block") as url:
        run = await agent(CohereTalk(url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 3
    assert run.end.turn["tool_plan"] == "I will look."
    (block,) = run.end.turn["content"]
    assert block["text"].startswith(MARK)
    assert run.end.finish == "COMPLETE"


@every_way
@sync_and_async
@pytest.mark.parametrize(("usage", "inputs"), [("last", 400), ("sum", 700)])
async def test_steer(way: Way, sync: bool, usage: str, inputs: int) -> None:
    """In the third exchange the model reads the guidance and goes on: one message, one plan, the counts of both."""
    vendor = StrictVendor(thoughtful)
    async with wired(vendor, "chance_then_block", usage=usage) as url:
        talk = CohereTalk(url, way, sync)
        run = await agent(talk)
    assert [[tool for _, tool in said.calls] for said in run.answers] == [
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    assert run.answers[2].turn["tool_plan"] == "I will look.\n\nAnother way."
    assert run.answers[2].finish == "TOOL_CALL"
    assert talk.usages[2]["tokens"] == talk.usages[2]["billed_units"] == {"input_tokens": inputs, "output_tokens": 7}
    assert run.end.text == "Got it."
    assert not any(request.violations for request in vendor.requests)
    (asked,) = [request for request in vendor.requests if request.guidance]
    said = asked.body["messages"][-2]
    assert (said["tool_plan"], said["content"]) == ("I will look.", [{"type": "thinking", "thinking": "Hm."}])


@every_way
@sync_and_async
async def test_warn(way: Way, sync: bool) -> None:
    """A warning reaches the model with the third result, and the model takes it."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "warn") as url:
        run = await agent(CohereTalk(url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 1, 1, 0]
    assert run.end.text == "Got it."


@every_way
@sync_and_async
async def test_an_innocent_sibling(way: Way, sync: bool) -> None:
    """Of two parallel calls the looping one goes, the other is run, and the model reads why with its result."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(CohereTalk(url, way, sync))
    assert [tool for _, tool in run.answers[3].calls] == ["read_page"]
    assert run.end.text == "Enough."
    assert len(vendor.requests) == 5
