"""Official SDKs read an answer that is ended in the middle of a call: it ends properly, as at the length limit.

The vendor is left, so that what it would still have written is not paid for.
"""

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
