"""The scripted vendor as Gemini: what it answers, whole and streamed, read by the official SDK."""

import json
from typing import Any

import pytest
from google import genai
from google.genai import types

from callfuse.testing import Answer, Call, Fault, ScriptedVendor, Usage, served
from tests.support.rules import StrictVendor

pytestmark = pytest.mark.slow

ANSWER = Answer("It is so.", [Call("f", {"x": 1}), Call("g", "{}")], "Hm.", usage=Usage(11, 7, 3))
TOOLS: Any = [{"function_declarations": [{"name": "f"}, {"name": "g"}]}]


def client_of(url: str) -> genai.Client:
    """A client of the vendor at this URL."""
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))


def ask(vendor: ScriptedVendor, *, stream: bool, **config: Any) -> list[types.GenerateContentResponse]:
    """The chunks of one answer."""
    with served(vendor) as url, client_of(url) as client:
        asked: Any = {"model": "gemini-x", "contents": "go", "config": {"tools": TOOLS, **config}}
        if stream:
            return list(client.models.generate_content_stream(**asked))
        return [client.models.generate_content(**asked)]


def parts_of(chunks: list[types.GenerateContentResponse], candidate: int = 0) -> list[types.Part]:
    """The parts of one candidate."""
    found = [one for chunk in chunks for one in chunk.candidates or [] if (one.index or 0) == candidate]
    return [part for one in found for part in (one.content.parts if one.content else None) or []]


streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@streamed_and_whole
def test_an_answer(stream: bool) -> None:
    """Thoughts, text and calls in their order, one finish, the usage and the answer's id."""
    vendor = StrictVendor([ANSWER])
    chunks = ask(vendor, stream=stream)
    parts = parts_of(chunks)
    assert "".join(part.text or "" for part in parts if part.thought) == "Hm."
    assert "".join(part.text or "" for part in parts if not part.thought) == "It is so."
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.name, call.args, call.id) for call in calls] == [
        ("f", {"x": 1}, "scripted_1_0_0"),
        ("g", {}, "scripted_1_0_1"),
    ]
    assert not any(part.thought_signature for part in parts)
    last = chunks[-1]
    assert (last.candidates or [])[0].finish_reason is types.FinishReason.STOP
    assert last.response_id == "resp-scripted-1"
    assert last.model_version == "gemini-x"
    usage = last.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.cached_content_token_count) == (11, 7, 3)
    assert vendor.requests[0].streams is stream
    assert vendor.requests[0].model == "gemini-x"


@streamed_and_whole
def test_a_model_that_signs(stream: bool) -> None:
    """With a thinking level the first call, and only that, carries a signature."""
    parts = parts_of(ask(StrictVendor([ANSWER]), stream=stream, thinking_config={"thinking_level": "LOW"}))
    assert [bool(part.thought_signature) for part in parts if part.function_call] == [True, False]


@streamed_and_whole
def test_candidates(stream: bool) -> None:
    """As many as were asked for, each by itself."""
    vendor = StrictVendor([(Answer("one"), Answer("two"))])
    chunks = ask(vendor, stream=stream, candidate_count=2)
    assert ["".join(part.text or "" for part in parts_of(chunks, at)) for at in range(2)] == ["one", "two"]


@streamed_and_whole
@pytest.mark.parametrize("fault", [Fault.http(503, "Overloaded"), Fault.error_event(ANSWER, after_frames=1)])
def test_faults(stream: bool, fault: Fault) -> None:
    """Errors in Google's envelope, before an answer and inside one, are raised by the SDK."""
    with pytest.raises(genai.errors.APIError) as raised:
        ask(StrictVendor([fault] * 5), stream=stream, http_options={"retry_options": {"attempts": 1}})
    assert raised.value.code in (500, 503)


def test_a_broken_history_is_refused() -> None:
    """With the place of the first broken rule."""
    call = types.Part(function_call=types.FunctionCall(name="f", args={}))
    contents: Any = [
        types.Content(role="user", parts=[types.Part(text="go")]),
        types.Content(role="model", parts=[call]),
    ]
    with (
        served(StrictVendor([Answer("never")])) as url,
        client_of(url) as client,
        pytest.raises(genai.errors.ClientError) as raised,
    ):
        client.models.generate_content(model="gemini-x", contents=contents)
    assert raised.value.code == 400
    assert "contents[1]" in json.dumps(raised.value.details)
