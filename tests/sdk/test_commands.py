"""In-chat commands of people who talk through the official SDKs: answered, obeyed, and kept from the vendor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import pytest
from google.genai import types

from callfuse.testing import Answer, Call, ScriptedVendor, VendorRequest
from tests.sdk.responses import KEEPS, Keeps, ResponsesAgent, calls_of
from tests.sdk.talks import QUESTION, TALKS, WAYS, Said, Talk, Way
from tests.sdk.test_cohere import CohereTalk
from tests.sdk.test_gemini import GeminiTalk, client_of, closing
from tests.sdk.test_ollama import OllamaTalk
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor

# google-genai's async client subclasses aiohttp's session, which aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MARK = "[callfuse]"
LOOSE = "!/set(tool-loop-mode=observe)"
TIGHT = "!/unset(tool-loop-mode)"
SAID = "[callfuse] tool-loop-mode = observe for this session."
UNSAID = "[callfuse] tool-loop-mode has its previous value again."

every_way = pytest.mark.parametrize("way", WAYS)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


def spinning(request: VendorRequest) -> Answer:
    """Makes the same call five times, then speaks; and so on."""
    return Answer("Enough.") if request.number % 6 == 0 else Answer("Hm.", (Call("search_web", {"query": "llamas"}),))


def kept_from(vendor: ScriptedVendor) -> bool:
    """Whether no request had a command or an answer to one, and the vendor took them all."""
    texts = [request.raw.decode() for request in vendor.requests]
    return not any("!/" in text or f"{MARK} tool-loop" in text for text in texts) and not any(
        request.violations for request in vendor.requests
    )


@asynccontextmanager
async def talking(sdk: str, url: str, way: Way, *, sync: bool) -> AsyncIterator[Talk]:
    """An SDK, asked in one way."""
    if sdk == "gemini":
        async with closing(client_of(url, "studio")) as client:
            yield GeminiTalk(client, "whole" if way == "whole" else "stream", sync, [])
    elif sdk == "ollama":
        yield OllamaTalk(url, "whole" if way == "whole" else "stream", sync, [])
    elif sdk == "cohere":
        yield CohereTalk(url, "whole" if way == "whole" else "stream", sync, [])
    else:
        yield TALKS[sdk](url, way, sync)


def user(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": text}


async def chat(talk: Talk, messages: list[Any], text: str) -> list[Said]:
    """What is said after a message of the user's, until the model answers in words."""
    parts = [types.Part(text=text)]
    question = types.Content(role="user", parts=parts) if isinstance(talk, GeminiTalk) else user(text)
    messages.append(question)
    said = [await talk.say(messages)]
    while said[-1].calls:
        messages += [said[-1].turn, *talk.results(said[-1], "Nothing new.")]
        said.append(await talk.say(messages))
    messages.append(said[-1].turn)
    return said


@pytest.mark.parametrize(
    ("sdk", "way"), [*product(TALKS, WAYS), *product(("gemini", "ollama", "cohere"), ("whole", "helper"))]
)
@sync_and_async
async def test_a_session_is_let_loose_and_bound_again(sdk: str, way: Way, sync: bool) -> None:
    """By messages that only callfuse sees, though the client sends all of them again with each request."""
    vendor = StrictVendor(spinning)
    messages: list[Any] = [QUESTION] if sdk == "gemini" else []  # its talk begins with a question of its own
    async with wired(vendor, "block") as url, talking(sdk, url, way, sync=sync) as talk:
        assert [said.text for said in await chat(talk, messages, LOOSE)] == [SAID]
        assert vendor.requests == []
        free = await chat(talk, messages, "What is going on?")
        assert [len(said.calls) for said in free] == [1, 1, 1, 1, 1, 0]
        assert [said.text for said in await chat(talk, messages, TIGHT)] == [UNSAID]
        bound = await chat(talk, messages, "!/status\nOnce more, please.")
        assert [len(said.calls) for said in bound] == [1, 1, 0]
        assert MARK in bound[-1].text
        (status,) = await chat(talk, messages, "!/status")
        assert "tool-loop-mode = block (server)" in status.text
        await chat(talk, messages, "Thank you.")
    assert kept_from(vendor)


@every_way
@pytest.mark.parametrize("keeps", KEEPS)
async def test_responses(way: Way, keeps: Keeps) -> None:
    """The same, whoever keeps the conversation: a chain goes on from the vendor's own answers."""
    vendor = StrictVendor(spinning)
    async with wired(vendor, "block") as url:
        agent = ResponsesAgent(url, way, keeps=keeps)

        async def said(text: str) -> str:
            (response,) = await agent.run(text)
            answer: str = response.output_text
            return answer

        assert await said(LOOSE) == SAID
        assert await said("!/help !/status") != ""
        assert vendor.requests == []
        free = await agent.run()
        assert [len(calls_of(response)) for response in free] == [1, 1, 1, 1, 1, 0]
        assert "tool-loop-mode = observe (session)" in await said("!/status")
        assert await said(TIGHT) == UNSAID
        bound = await agent.run("!/status\nOnce more, please.")
        assert [len(calls_of(response)) for response in bound] == [1, 1, 0]
        assert MARK in bound[-1].output_text
        assert "tool-loop-mode = block (server)" in await said("!/status")
        await agent.run("Thank you.", most=1)
    assert kept_from(vendor)


@pytest.mark.parametrize("way", ["whole", "helper"])
@pytest.mark.parametrize("keeps", KEEPS)
async def test_responses_without_detection(way: Way, keeps: Keeps) -> None:
    """Off stays off, however often the model has answered in words, until it is on again."""
    vendor = StrictVendor(spinning)
    async with wired(vendor, "block") as url:
        agent = ResponsesAgent(url, way, keeps=keeps)
        for text in ("!/set(tool-loop-detection=false)\nGo.", "Go on.", "Once more."):
            assert len(await agent.run(text)) == 6
        await agent.run("!/unset(tool-loop-detection)")
        assert len(await agent.run("And again.")) == 3
    assert kept_from(vendor)
