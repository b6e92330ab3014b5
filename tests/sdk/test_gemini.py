"""Agents on google-genai, for AI Studio and Vertex, whole, streamed and in chats: stopped, steered, or left alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials
from pydantic import BaseModel

from callfuse.testing import Answer, Call, ScriptedVendor, Usage, looping_model
from tests.sdk.talks import MODEL, QUESTION, TOOLS, Said, agent
from tests.sdk.wiring import beside, wired
from tests.support.rules import StrictVendor

# google-genai's async client subclasses aiohttp's session, which aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MARK = "[callfuse]"
STAND_IN = "skip_thought_signature_validator"
Way = Literal["whole", "stream"]
Cloud = Literal["studio", "vertex"]

every_way = pytest.mark.parametrize("way", ["whole", "stream"])
every_cloud = pytest.mark.parametrize("cloud", ["studio", "vertex"])
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


def client_of(url: str, cloud: Cloud) -> genai.Client:
    """A client whose requests go to this URL."""
    options = types.HttpOptions(base_url=url)
    if cloud == "studio":
        return genai.Client(api_key="none", http_options=options)
    credentials: Any = Credentials
    return genai.Client(
        vertexai=True, project="p", location="us-central1", credentials=credentials("none"), http_options=options
    )


def config(*, thinks: bool = False, **more: Any) -> types.GenerateContentConfig:
    """The tools, to be run by the agent itself."""
    declared = [types.FunctionDeclaration(name=name) for name in TOOLS]
    level = types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True) if thinks else None
    return types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=level,
        **more,
    )


@asynccontextmanager
async def closing(client: genai.Client) -> AsyncIterator[genai.Client]:
    """A client whose connections, sync and async, are closed in the end."""
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


@dataclass(slots=True)
class GeminiTalk:
    """`google-genai`; `ends` keeps the last chunk of each answer."""

    client: genai.Client
    way: Way
    sync: bool
    ends: list[types.GenerateContentResponse]
    thinks: bool = False

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next content: the SDK's parts, in one content."""
        question = types.Content(role="user", parts=[types.Part(text=QUESTION["content"])])
        contents = [question, *messages[1:]]
        chunks = await (asyncio.to_thread(self._ask, contents) if self.sync else self._ask_async(contents))
        self.ends.append(chunks[-1])
        return said([part for chunk in chunks for part in parts_of(chunk)], chunks[-1])

    def _ask(self, contents: Any) -> list[types.GenerateContentResponse]:
        asked: Any = {"model": MODEL, "contents": contents, "config": config(thinks=self.thinks)}
        if self.way == "whole":
            return [self.client.models.generate_content(**asked)]
        return list(self.client.models.generate_content_stream(**asked))

    async def _ask_async(self, contents: Any) -> list[types.GenerateContentResponse]:
        asked: Any = {"model": MODEL, "contents": contents, "config": config(thinks=self.thinks)}
        if self.way == "whole":
            return [await self.client.aio.models.generate_content(**asked)]
        return [chunk async for chunk in await self.client.aio.models.generate_content_stream(**asked)]

    def results(self, said: Said, result: str) -> list[Any]:
        """One content with a function response each."""
        parts = [types.Part.from_function_response(name=name, response={"result": result}) for _, name in said.calls]
        for part, (call_id, _) in zip(parts, said.calls, strict=True):
            assert part.function_response is not None
            part.function_response.id = call_id
        return [types.Content(role="user", parts=parts)]


def parts_of(chunk: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of a chunk; each chunk has some, for else the SDK's chats drop the answer."""
    assert chunk.candidates
    content = chunk.candidates[0].content
    assert content is not None
    assert content.parts
    return content.parts


def said(parts: list[types.Part], end: types.GenerateContentResponse) -> Said:
    """An answer as an agent reads it."""
    assert end.candidates
    finish = end.candidates[0].finish_reason
    calls = [part.function_call for part in parts if part.function_call is not None]
    return Said(
        "".join(part.text or "" for part in parts if not part.thought),
        "".join(part.text or "" for part in parts if part.thought),
        tuple((call.id or "", call.name or "") for call in calls),
        finish.value if finish else None,
        types.Content(role="model", parts=parts),
    )


@asynccontextmanager
async def talking(
    vendor: ScriptedVendor,
    mode: str | list[str],
    cloud: Cloud,
    way: Way,
    *,
    sync: bool,
    thinks: bool = False,
    **settings: Any,
) -> AsyncIterator[GeminiTalk]:
    """A client in one way of asking, over sockets."""
    async with wired(vendor, mode, **settings) as url, closing(client_of(url, cloud)) as client:
        yield GeminiTalk(client, way, sync, [], thinks)


@every_cloud
@every_way
@sync_and_async
async def test_pass(cloud: Cloud, way: Way, sync: bool) -> None:
    """A healthy run passes: two different calls, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with talking(vendor, "chance_then_block", cloud, way, sync=sync) as talk:
        run = await agent(talk)
    assert [[tool for _, tool in one.calls] for one in run.answers] == [["search_web"], ["read_page"], []]
    assert (run.end.text, run.end.finish) == ("They are camelids.", "STOP")
    assert not any(MARK in request.raw.decode() for request in vendor.requests)
    assert {request.model for request in vendor.requests} == {MODEL}


@every_cloud
@every_way
@sync_and_async
async def test_block(cloud: Cloud, way: Way, sync: bool) -> None:
    """In block mode the loop is broken at its third call, which the agent never sees."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    async with talking(vendor, "block", cloud, way, sync=sync) as talk:
        run = await agent(talk)
    assert [len(one.calls) for one in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 3
    assert run.end.text.startswith(f"Again.\n\n{MARK}")
    assert run.end.finish == "STOP"


@every_cloud
@every_way
@sync_and_async
async def test_steer(cloud: Cloud, way: Way, sync: bool) -> None:
    """With a chance, the model reads the guidance within the third exchange, changes course, and the run succeeds."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with talking(vendor, "chance_then_block", cloud, way, sync=sync) as talk:
        run = await agent(talk)
    assert [len(one.calls) for one in run.answers] == [1, 1, 1, 0]
    assert run.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)


@every_way
@sync_and_async
async def test_steer_in_vain(way: Way, sync: bool) -> None:
    """A model that does not listen is blocked after its one chance."""
    vendor = StrictVendor(looping_model(stubborn=True))
    async with talking(vendor, "chance_then_block", "studio", way, sync=sync) as talk:
        run = await agent(talk)
    assert [len(one.calls) for one in run.answers] == [1, 1, 0]
    assert len(vendor.requests) == 4
    assert MARK in run.end.text


@every_way
@sync_and_async
async def test_warn(way: Way, sync: bool) -> None:
    """A warning reaches the model with the third result, under a key of its own, and the model takes it."""
    vendor = StrictVendor(looping_model(conclusion="Got it."))
    async with talking(vendor, "warn", "studio", way, sync=sync) as talk:
        run = await agent(talk)
    assert [len(one.calls) for one in run.answers] == [1, 1, 1, 1, 0]
    assert run.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    response = vendor.requests[3].body["contents"][-1]["parts"][0]["functionResponse"]["response"]
    assert list(response) == ["result", "callfuse"]


@every_way
@sync_and_async
@pytest.mark.parametrize("thinks", [False, True], ids=["unsigned", "signed"])
async def test_an_innocent_sibling(way: Way, sync: bool, thinks: bool) -> None:
    """Of two parallel calls the looping first one goes; the survivor has the stand-in for the signature it carried."""
    vendor = StrictVendor(beside)
    async with talking(vendor, "chance_then_block", "studio", way, sync=sync, thinks=thinks) as talk:
        run = await agent(talk)
    assert [[tool for _, tool in one.calls] for one in run.answers] == [
        ["read_page"],
        ["search_web"],
        ["search_web"],
        ["read_page"],
        [],
    ]
    assert run.end.text == "Enough."
    assert len(vendor.requests) == 5
    assert not any(request.violations for request in vendor.requests)
    assert (STAND_IN in vendor.requests[-1].raw.decode()) is thinks


@every_way
@sync_and_async
@pytest.mark.parametrize("mode", ["block", "chance_then_block", "warn"])
async def test_thinking(way: Way, sync: bool, mode: str) -> None:
    """Where thoughts are signed, every history that the SDK sends back has its signatures and is accepted."""
    vendor = StrictVendor(looping_model(thinking="Let me think.", conclusion="Got it."))
    async with talking(vendor, mode, "studio", way, sync=sync, thinks=True) as talk:
        run = await agent(talk)
    assert not any(request.violations for request in vendor.requests)
    assert all(one.thinking.startswith("Let me think.") for one in run.answers[:2])
    assert run.end.calls == ()
    assert (run.end.text == "Got it.") is (mode != "block")


@every_way
@pytest.mark.parametrize(("usage", "wanted"), [("last", (20, 17)), ("sum", (30, 17))])
async def test_usage_of_a_steered_answer(way: Way, usage: str, wanted: tuple[int, int]) -> None:
    """Output tokens are summed, input tokens the last answer's unless all are to be summed; the total fits."""
    again, other = Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})
    first, second = Usage(input_tokens=10, output_tokens=8), Usage(input_tokens=20, output_tokens=9)
    loop = Answer("Hm.", (again,), usage=first)
    vendor = StrictVendor([loop, loop, loop, Answer("Then so.", (other,), usage=second), Answer("Done.")])
    async with talking(vendor, "chance_then_block", "studio", way, sync=True, usage=usage) as talk:
        run = await agent(talk)
    assert run.answers[2].text == "Hm.\n\nThen so."
    counts = talk.ends[2].usage_metadata
    assert counts is not None
    assert (counts.prompt_token_count, counts.candidates_token_count) == wanted
    assert counts.total_token_count == sum(wanted)
    assert talk.ends[2].response_id == "resp-scripted-3"


@sync_and_async
@pytest.mark.parametrize("mode", ["block", "chance_then_block"])
async def test_a_streaming_chat_keeps_its_history(mode: str, sync: bool) -> None:
    """The SDK's own chat, which drops an answer of which one chunk has no parts, goes on from what it was given."""
    vendor = StrictVendor(looping_model(text="Hm.", conclusion="Got it.", stubborn=mode == "block"))
    async with wired(vendor, mode) as url, closing(client_of(url, "studio")) as client:
        if sync:
            history = await asyncio.to_thread(_chat, client)
        else:
            history = await _chat_async(client)
    assert not any(request.violations for request in vendor.requests)
    words = [part.text or "" for content in history if content.role == "model" for part in content.parts or []]
    assert (MARK in "".join(words)) is (mode == "block")
    calls = [part.function_call for content in history for part in content.parts or [] if part.function_call]
    assert len(calls) == (2 if mode == "block" else 3)
    assert len(vendor.requests) == (3 if mode == "block" else 5)


def _answers(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    calls = [call for chunk in chunks for call in chunk.function_calls or []]
    return [types.Part.from_function_response(name=call.name or "", response={"result": "Nothing."}) for call in calls]


def _chat(client: genai.Client) -> list[types.Content]:
    chat = client.chats.create(model=MODEL, config=config())
    message: Any = QUESTION["content"]
    while message:
        message = _answers(list(chat.send_message_stream(message)))
    return chat.get_history(curated=True)


async def _chat_async(client: genai.Client) -> list[types.Content]:
    chat = client.aio.chats.create(model=MODEL, config=config())
    message: Any = QUESTION["content"]
    while message:
        message = _answers([chunk async for chunk in await chat.send_message_stream(message)])
    return chat.get_history(curated=True)


@every_way
async def test_automatic_function_calling_is_stopped(way: Way) -> None:
    """The SDK's own loop over Python functions ends at the third call, long before its own limit of ten."""
    ran: list[str] = []

    def search_web(query: str) -> str:
        """Search the web."""
        ran.append(query)
        return "Nothing new."

    vendor = StrictVendor(looping_model(stubborn=True))

    def ask(url: str) -> str:
        asked: Any = {"model": MODEL, "contents": "What is going on?", "config": {"tools": [search_web]}}
        with client_of(url, "studio") as client:
            if way == "whole":
                return client.models.generate_content(**asked).text or ""
            return "".join(chunk.text or "" for chunk in client.models.generate_content_stream(**asked))

    async with wired(vendor, "block") as url:
        text = await asyncio.to_thread(ask, url)
    assert ran == ["current status"] * 2
    assert text.startswith(MARK)


class Report(BaseModel):
    """What the agent wants in the end."""

    title: str


@every_way
async def test_a_block_under_a_schema_is_text(way: Way) -> None:
    """There is no slot for a refusal: the text does not fit the schema, and the SDK gives it without raising."""
    vendor = StrictVendor(looping_model(stubborn=True))
    form: Any = {"response_mime_type": "application/json", "response_schema": Report}

    def ask(models: Any) -> tuple[str, Any]:
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="Report.")])]
        for _ in range(3):
            asked: Any = {"model": MODEL, "contents": contents, "config": config(**form)}
            if way == "whole":
                chunks = [models.generate_content(**asked)]
            else:
                chunks = list(models.generate_content_stream(**asked))
            parts = [part for chunk in chunks for part in parts_of(chunk)]
            contents += [types.Content(role="model", parts=parts), types.Content(role="user", parts=_answers(chunks))]
        return "".join(part.text or "" for part in parts), chunks[0].parsed

    async with wired(vendor, "block") as url, closing(client_of(url, "studio")) as client:
        text, parsed = await asyncio.to_thread(ask, client.models)
    assert text.startswith(MARK)
    assert parsed is None


@sync_and_async
async def test_a_hold_with_keep_alives(sync: bool) -> None:
    """Blank lines while a call is held, and while the model is asked again, disturb neither client."""
    vendor = StrictVendor(looping_model(text="Hm.", conclusion="Got it."), chunk_delay_s=0.08)
    async with talking(vendor, "chance_then_block", "studio", "stream", sync=sync, heartbeat_s=0.01) as talk:
        run = await agent(talk)
    assert run.end.text == "Got it."
    assert [len(one.calls) for one in run.answers] == [1, 1, 1, 0]
