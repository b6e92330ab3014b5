"""Official SDKs read an answer that is ended in the middle of a call, a text or its reasoning: it ends properly.

The vendor is left, so that what it would still have written is not paid for.
"""

from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from callfuse.testing import Answer, Call, ScriptedVendor
from tests.sdk import test_gemini as gemini
from tests.sdk.talks import MODEL
from tests.sdk.wiring import wired

# google-genai's async client subclasses aiohttp's session, which aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MARK = "[callfuse]"
LAPS = 20_000
ENDLESS = Answer("Let me write.", (Call("write_file", {"text": "The sauce must be stirred. " * LAPS}),))
QUESTION = "Write a recipe."


def vendor() -> ScriptedVendor:
    """A model that writes the same into a call, for half a million characters."""
    return ScriptedVendor([ENDLESS], piece_chars=500)


async def test_openai_chat() -> None:
    """Its chunks end with the finish reason of the length limit, the reason why before it."""
    async with wired(vendor(), "block") as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{"type": "function", "function": {"name": "write_file"}}],
            stream=True,
        )
        chunks: list[ChatCompletionChunk] = [chunk async for chunk in stream]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[-1].finish_reason == "length"
    assert MARK in "".join(one.delta.content or "" for one in choices)
    pieces = [call.function.arguments or "" for one in choices for call in one.delta.tool_calls or () if call.function]
    assert 4_096 <= len("".join(pieces)) < 8_192


async def test_openai_responses() -> None:
    """The response is incomplete, and so is its last call."""
    async with wired(vendor(), "block") as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.responses.create(
            model=MODEL,
            input=QUESTION,
            tools=[{"type": "function", "name": "write_file", "parameters": {}, "strict": False}],
            store=False,
            stream=True,
        )
        *_, last = [event async for event in stream]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert [getattr(item, "status", None) for item in last.response.output if item.type == "function_call"] == [
        "incomplete"
    ]
    assert MARK in last.response.output_text


async def test_anthropic() -> None:
    """The SDK's own accumulator takes it for an answer that has come to its limit."""
    async with (
        wired(vendor(), "block") as url,
        anthropic.AsyncAnthropic(base_url=url, api_key="none") as client,
        client.messages.stream(
            model=MODEL,
            max_tokens=100_000,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{"name": "write_file", "input_schema": {"type": "object"}}],
        ) as stream,
    ):
        message = await stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert [block.type for block in message.content] == ["text", "tool_use"]


async def test_gemini() -> None:
    """A call comes in one chunk, so that nothing of it has left: the reason why stands in its place."""
    async with wired(vendor(), "block") as url, gemini.closing(gemini.client_of(url, "studio")) as client:
        stream = await client.aio.models.generate_content_stream(model=MODEL, contents=QUESTION, config=gemini.config())
        chunks = [chunk async for chunk in stream]
    assert [call for chunk in chunks for call in chunk.function_calls or ()] == []
    assert MARK in "".join(chunk.text or "" for chunk in chunks)
    [reason] = [one.finish_reason for chunk in chunks for one in chunk.candidates or () if one.finish_reason]
    assert reason.name == "STOP"


async def test_a_text_is_only_told(caplog: pytest.LogCaptureFixture) -> None:
    """The SDK has all of it, and the operator a warning."""
    text = "The sauce must be stirred. " * LAPS
    model = ScriptedVendor([Answer(text)], piece_chars=500)
    async with wired(model, "block") as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{"type": "function", "function": {"name": "write_file"}}],
            stream=True,
        )
        pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    assert "".join(pieces) == text
    assert ["tool=(text)" in line for line in caplog.messages if "kind=runaway" in line] == [True]


REPEATED = "The sauce must be stirred. " * LAPS
GOES_ON = "Then serve it."


def caps(rung: str) -> dict[str, Any]:
    """What the model says may be acted on up to this rung."""
    return {"runaway": {"text": rung, "reasoning": rung}}


@pytest.mark.parametrize("rung", ["block", "steer"])
async def test_a_text_of_a_chat_is_cut_off(rung: str) -> None:
    """The client has what had come, and a sentence or what the model says next; the usage is that of both answers."""
    model = ScriptedVendor([Answer(REPEATED), Answer(GOES_ON)], piece_chars=500)
    async with (
        wired(model, "block", detectors=caps(rung)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{"type": "function", "function": {"name": "write_file"}}],
            stream=True,
        )
        choices = [choice async for chunk in stream for choice in chunk.choices]
    text = "".join(one.delta.content or "" for one in choices)
    assert choices[-1].finish_reason == "stop"
    assert len(text) < len(REPEATED) / 1.5
    assert (MARK in text) is (rung == "block")
    assert text.endswith(GOES_ON) is (rung == "steer")
    assert len(model.requests) == (1 if rung == "block" else 2)


@pytest.mark.parametrize("rung", ["block", "steer"])
async def test_a_text_of_a_response_is_cut_off(rung: str) -> None:
    """The terminal event has the same text as the stream, and the next request takes it as its input."""
    model = ScriptedVendor([Answer(REPEATED), Answer(GOES_ON), Answer("Yes.")], piece_chars=500)
    async with (
        wired(model, "block", detectors=caps(rung)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        tools: Any = [{"type": "function", "name": "write_file", "parameters": {}, "strict": False}]
        async with client.responses.stream(model=MODEL, input=QUESTION, tools=tools, store=False) as stream:
            pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            response = await stream.get_final_response()
        assert response.status == "completed"
        assert response.output_text == "".join(pieces)
        said: Any = [{"role": "user", "content": QUESTION}, *[one.to_dict() for one in response.output]]
        again = await client.responses.create(model=MODEL, input=said, tools=tools, store=False)
    assert (MARK in response.output_text) is (rung == "block")
    assert response.output_text.endswith(GOES_ON) is (rung == "steer")
    assert again.status == "completed"


@pytest.mark.parametrize("rung", ["block", "steer"])
@pytest.mark.parametrize("part", ["text", "thinking"])
async def test_a_block_of_a_message_is_cut_off(rung: str, part: str) -> None:
    """Its block ends where it is, thinking with a signature of callfuse's, and is left out of the next request."""
    first = Answer(REPEATED) if part == "text" else Answer(thinking=REPEATED)
    model = ScriptedVendor([first, Answer(GOES_ON), Answer("Yes.")], piece_chars=500)
    async with (
        wired(model, "block", detectors=caps(rung)) as url,
        anthropic.AsyncAnthropic(base_url=url, api_key="none") as client,
    ):
        tools: Any = [{"name": "write_file", "input_schema": {"type": "object"}}]
        asked: Any = [{"role": "user", "content": QUESTION}]
        async with client.messages.stream(model=MODEL, max_tokens=100_000, messages=asked, tools=tools) as stream:
            message = await stream.get_final_message()
        asked += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "Sure?"}]
        await client.messages.create(model=MODEL, max_tokens=100, messages=asked, tools=tools)
    assert message.stop_reason == "end_turn"
    begun, last = message.content
    assert last.type == "text"
    assert begun.type == part
    assert last.text.startswith(MARK) if rung == "block" else last.text == GOES_ON
    sent = model.requests[-1].body["messages"][1]["content"]
    assert [one["type"] for one in sent] == (["text", "text"] if part == "text" else ["text"])
