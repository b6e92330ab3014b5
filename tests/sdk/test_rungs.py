"""Agents on the official SDKs through the rungs between a steer and a block: told to speak, or another model answers.

The vendor judges every request; beside that no model may be sent the reasoning of another one.
"""

from typing import Any

import pytest

from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest
from tests.sdk import test_gemini as gemini
from tests.sdk.responses import KEEPS, Keeps, ResponsesAgent, calls_of
from tests.sdk.talks import MODEL, TALKS, WAYS, AnthropicTalk, Talk, Way, agent
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor
from tests.support.rules.signed import read_signature

# google-genai's async client subclasses aiohttp's session, which aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MARK = "[callfuse]"
OTHER = "other-model"
SEARCH, PAGE = Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})
LADDER = ["steer", "force_text", "escalate", "block"]

every_sdk = pytest.mark.parametrize("sdk", [*TALKS, "anthropic, thinking"])
every_way = pytest.mark.parametrize("way", WAYS)
every_keep = pytest.mark.parametrize("keeps", KEEPS)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


def talk(sdk: str, url: str, way: Way, *, sync: bool) -> Talk:
    """A client of a dialect, which for Anthropic's may ask for thinking."""
    return AnthropicTalk(url, way, sync, thinks=True) if "," in sdk else TALKS[sdk](url, way, sync)


def is_shut(request: VendorRequest) -> bool:
    """Whether no tool may be called."""
    return request.body.get("tool_choice") in ("none", {"type": "none"})


def searching(request: VendorRequest) -> Answer:
    """Searches for ever, until it has a page; speaks where it may do nothing else. The other model reads the page."""
    if request.model == OTHER:
        return Answer("Let me read.", (PAGE,), thinking="Musing aloud.")
    if is_shut(request):
        return Answer("Nothing is going on.", thinking="Pondering.")
    if any(call.name == PAGE.name for call in request.calls):
        return Answer("They are camelids.", thinking="Pondering.")
    return Answer("Again.", (SEARCH,), thinking="Pondering.")


def foreign(vendor: ScriptedVendor) -> list[str]:
    """The reasoning that a model was sent of another one, by the text that each of them thinks, or by its signature."""
    theirs = {MODEL: "Musing", OTHER: "Pondering"}
    found = [f"{request.number}: text" for request in vendor.requests if theirs[request.model] in request.raw.decode()]
    for request in vendor.requests:
        for message in request.body["messages"]:
            blocks: Any = message["content"] if isinstance(message["content"], list) else ()
            for block in blocks:
                signed = read_signature(block.get("signature", ""))
                author = (
                    vendor.requests[int(signed.answer_id.rpartition("_")[2]) - 1].model if signed else request.model
                )
                found += [f"{request.number}: signature"] if author != request.model else []
    return found


@every_sdk
@every_way
@sync_and_async
async def test_another_model(sdk: str, way: Way, sync: bool) -> None:
    """The third call is another model's: the agent runs it, and its own model takes the history that came of it."""
    vendor = StrictVendor(searching)
    async with wired(vendor, ["escalate", "block"], escalate_model=OTHER) as url:
        run = await agent(talk(sdk, url, way, sync=sync))
    assert [[tool for _, tool in said.calls] for said in run.answers] == [["search_web"]] * 2 + [["read_page"], []]
    assert [request.model for request in vendor.requests] == [MODEL, MODEL, MODEL, OTHER, MODEL]
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert foreign(vendor) == []
    third = run.answers[2]
    assert third.text.startswith("Again.")
    assert third.text.endswith("Let me read.")
    assert "Musing" not in third.thinking
    assert run.end.text == "They are camelids."
    if sdk == "anthropic, thinking":
        assert "Pondering" in vendor.requests[4].raw.decode(), "its own model has its own thoughts back"


@every_sdk
@every_way
@sync_and_async
async def test_text_by_force(sdk: str, way: Way, sync: bool) -> None:
    """The model may call nothing for one answer: it speaks, and the agent is done."""
    vendor = StrictVendor(searching)
    async with wired(vendor, ["force_text", "block"]) as url:
        run = await agent(talk(sdk, url, way, sync=sync))
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert [is_shut(request) for request in vendor.requests] == [False, False, False, True]
    assert all(request.body["tools"] for request in vendor.requests)
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert run.end.text.endswith("Nothing is going on.")


@every_sdk
@every_way
@sync_and_async
async def test_nobody_listens(sdk: str, way: Way, sync: bool) -> None:
    """Each rung once, in one answer to the agent, and then the block; a user who goes on is answered."""
    vendor = StrictVendor(lambda request: Answer(f"Try {request.number}.", (SEARCH,), thinking="Hm."))
    async with wired(vendor, LADDER, escalate_model=OTHER) as url:
        client = talk(sdk, url, way, sync=sync)
        run = await agent(client)
        question = {"role": "user", "content": "What is going on?"}
        said = await client.say([question, run.end.turn, {"role": "user", "content": "Go on."}])
    assert [len(said.calls) for said in run.answers] == [1, 1, 0]
    assert [request.model for request in vendor.requests[:6]] == [MODEL] * 5 + [OTHER]
    assert [is_shut(request) for request in vendor.requests[:6]] == [False] * 4 + [True, False]
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert [f"Try {number}." in run.end.text for number in range(3, 7)] == [True] * 4
    assert MARK in run.end.text
    assert len(said.calls) == 1


@gemini.every_cloud
@gemini.every_way
@sync_and_async
async def test_another_gemini(
    cloud: gemini.Cloud, way: gemini.Way, sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name stands in the path; its calls come with the stand-in for the signature that the first model wants."""
    monkeypatch.setattr(gemini, "MODEL", "gemini-own")
    vendor = StrictVendor(searching)
    settings = {"escalate_model": OTHER}
    async with gemini.talking(vendor, ["escalate", "block"], cloud, way, sync=sync, thinks=True, **settings) as client:
        run = await agent(client)
    assert [[tool for _, tool in said.calls] for said in run.answers] == [["search_web"]] * 2 + [["read_page"], []]
    assert [request.model for request in vendor.requests] == ["gemini-own"] * 3 + [OTHER, "gemini-own"]
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert "Musing" not in run.answers[2].thinking
    assert gemini.STAND_IN in vendor.requests[3].raw.decode(), "the other model is sent no signature of the first"
    assert gemini.STAND_IN in vendor.requests[4].raw.decode()


@every_way
@every_keep
async def test_another_model_on_responses(way: Way, keeps: Keeps) -> None:
    """However the conversation is kept, by the client or the vendor, it goes on with the first model."""
    vendor = StrictVendor(searching)
    async with wired(vendor, ["escalate", "block"], escalate_model=OTHER) as url:
        talked = ResponsesAgent(url, way, keeps=keeps)
        run = await talked.run()
        again = await talked.run("And now?")
    assert [calls_of(response) for response in run] == [["search_web"], ["search_web"], ["read_page"], []]
    assert [request.model for request in vendor.requests[:5]] == [MODEL, MODEL, MODEL, OTHER, MODEL]
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert {response.model for response in (*run, *again)} == {MODEL}
    reasoning = [item.summary[0].text for item in run[2].output if item.type == "reasoning"]
    assert reasoning == ["Pondering."]
    sent = [request.raw.decode() for request in vendor.requests]
    assert "Pondering" not in sent[3]
    assert not any("Musing" in body for body in sent)


@every_way
@every_keep
async def test_nobody_listens_on_responses(way: Way, keeps: Keeps) -> None:
    """Each rung once, then the block; every answer that the vendor has stored is answered, and the talk goes on."""
    vendor = StrictVendor(lambda request: Answer(f"Try {request.number}.", (SEARCH,), thinking="Hm."))
    async with wired(vendor, LADDER, escalate_model=OTHER) as url:
        talked = ResponsesAgent(url, way, keeps=keeps)
        run = await talked.run()
        again = await talked.run("And now?", most=1)
    assert [len(calls_of(response)) for response in (*run, *again)] == [1, 1, 0, 1]
    assert [request.model for request in vendor.requests] == [MODEL] * 5 + [OTHER, MODEL]
    assert [request.body.get("tool_choice") for request in vendor.requests] == [None] * 4 + ["none", None, None]
    assert [violation for request in vendor.requests for violation in request.violations] == []
    assert MARK in run[-1].output_text
