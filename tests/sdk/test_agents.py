"""Agents on the official SDKs, sync and async, whole and streamed: stopped, steered, warned, or left in peace."""

import pytest

from callfuse.testing import Answer, Call, looping_model
from tests.sdk.talks import TALKS, WAYS, AnthropicTalk, Way, agent
from tests.sdk.wiring import beside, wired
from tests.support.rules import StrictVendor

MARK = "[callfuse]"
ORDINARY_END = {"openai": "stop", "anthropic": "end_turn"}

every_sdk = pytest.mark.parametrize("sdk", list(TALKS))
every_way = pytest.mark.parametrize("way", WAYS)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@every_sdk
@every_way
@sync_and_async
async def test_pass(sdk: str, way: Way, sync: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [["search_web"], ["read_page"], []]
    assert (run.end.text, run.end.finish) == ("They are camelids.", ORDINARY_END[sdk])
    assert not any(MARK in request.raw.decode() for request in vendor.requests)


@every_sdk
@every_way
@sync_and_async
async def test_block(sdk: str, way: Way, sync: bool) -> None:
    """In block mode the loop is broken at its third call, which the agent never sees."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    async with wired(vendor, "block") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 3
    assert run.end.text.startswith("Again.")
    assert MARK in run.end.text
    assert run.end.finish == ORDINARY_END[sdk]


@every_sdk
@every_way
@sync_and_async
async def test_steer(sdk: str, way: Way, sync: bool) -> None:
    """With a chance, the model reads the guidance within the third exchange, changes course, and the run succeeds."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 1, 0]
    assert run.end.text == "Got it."
    assert len(vendor.requests) == 5
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)


@every_sdk
@every_way
@sync_and_async
async def test_steer_in_vain(sdk: str, way: Way, sync: bool) -> None:
    """A model that does not listen is blocked after its one chance."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 4
    assert MARK in run.end.text


@every_sdk
@every_way
@sync_and_async
async def test_warn(sdk: str, way: Way, sync: bool) -> None:
    """A warning reaches the model with the third result, and the model takes it."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with wired(vendor, "warn") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 1, 1, 0]
    assert run.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)


@every_sdk
@every_way
@sync_and_async
async def test_an_innocent_sibling(sdk: str, way: Way, sync: bool) -> None:
    """Of two parallel calls the looping one goes, the other is run, and the model reads why with its result."""
    vendor = StrictVendor(beside)
    async with wired(vendor, "chance_then_block") as url:
        run = await agent(TALKS[sdk](url, way, sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [
        ["read_page"],
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    assert run.end.text == "Enough."
    assert len(vendor.requests) == 5


@every_way
@sync_and_async
@pytest.mark.parametrize("mode", ["block", "chance_then_block", "warn"])
async def test_thinking(way: Way, sync: bool, mode: str) -> None:
    """With thinking on, every history that the Anthropic SDK sends back has its signatures and is accepted."""
    vendor = StrictVendor(looping_model(thinking="Let me think.", conclusion="Got it."))
    async with wired(vendor, mode) as url:
        run = await agent(AnthropicTalk(url, way, sync, thinks=True))
    assert not any(request.violations for request in vendor.requests)
    assert all(said.thinking.startswith("Let me think.") for said in run.answers[:2])
    assert run.end.calls == ()
    assert (run.end.text == "Got it.") is (mode != "block")
