"""The scripted vendor as the official OpenAI SDK sees it, over sockets."""

from json import JSONDecodeError
from typing import Any

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI, BadRequestError, OpenAI

from callfuse.testing import Answer, Call, Fault, Usage, served
from callfuse.testing.script import Reply, Script
from tests.support.rules import StrictVendor

pytestmark = pytest.mark.slow

USER: Any = {"role": "user", "content": "find llamas"}
TOOLS: Any = [{"type": "function", "function": {"name": "search_web", "parameters": {"type": "object"}}}]
CALLS = (Call("search_web", {"query": "llamas, where?"}), Call("search_web", {"query": "größe 🦙"}, id="call_own"))
FULL = Answer("Let me look.", CALLS, thinking="They ask for llamas.", usage=Usage(70, 30, cached_tokens=20))
MESSAGE = {
    "role": "assistant",
    "content": "Let me look.",
    "reasoning_content": "They ask for llamas.",
    "tool_calls": [
        {
            "id": "call_scripted_1_0_0",
            "type": "function",
            "function": {"name": "search_web", "arguments": '{"query":"llamas, where?"}'},
        },
        {
            "id": "call_own",
            "type": "function",
            "function": {"name": "search_web", "arguments": '{"query":"größe 🦙"}'},
        },
    ],
}


def message_of(choice: Any) -> dict[str, Any]:
    """What a client keeps of a choice, without what the accumulator adds."""
    kept: dict[str, Any] = choice.message.model_dump(exclude_none=True)
    kept.pop("annotations", None)
    for call in kept.get("tool_calls", []):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return kept


def client_of(url: str) -> OpenAI:
    """A client that does not retry."""
    return OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)


def read(client: OpenAI, *, streams: bool) -> None:
    """Read an answer to its end."""
    answer: Any = client.chat.completions.create(model="m", messages=[USER], stream=streams)
    list(answer)


def test_whole() -> None:
    """A whole answer has text, thinking, parallel calls, finish reason and usage."""
    with served(StrictVendor([FULL])) as url, client_of(url) as client:
        completion = client.chat.completions.create(model="gpt-x", messages=[USER], tools=TOOLS)
    assert message_of(completion.choices[0]) == MESSAGE
    assert (completion.id, completion.model) == ("chatcmpl-scripted-1", "gpt-x")
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (70, 30)
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 20


def test_streamed() -> None:
    """Raw chunks carry one id; the finish comes once; the usage is in the last chunk, as it was asked for."""
    with served(StrictVendor([FULL])) as url, client_of(url) as client:
        chunks = list(
            client.chat.completions.create(
                model="m", messages=[USER], tools=TOOLS, stream=True, stream_options={"include_usage": True}
            )
        )
    assert {chunk.id for chunk in chunks} == {"chatcmpl-scripted-1"}
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["tool_calls"]
    assert chunks[-1].choices == []
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [100]
    assert chunks[0].choices[0].delta.role == "assistant"
    calls = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    assert len(calls) > 4, "arguments come in pieces"
    assert [call.id for call in calls if call.id] == ["call_scripted_1_0_0", "call_own"]


def test_streamed_without_usage() -> None:
    """Without `include_usage` no chunk has a usage, and each has a choice."""
    with served(StrictVendor([Answer("Hi.")])) as url, client_of(url) as client:
        chunks = list(client.chat.completions.create(model="m", messages=[USER], stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hi."


def test_accumulated() -> None:
    """The SDK's accumulator makes of the stream what the whole answer says."""
    with (
        served(StrictVendor([FULL])) as url,
        client_of(url) as client,
        client.chat.completions.stream(model="m", messages=[USER], tools=TOOLS) as stream,
    ):
        completion = stream.get_final_completion()
    assert message_of(completion.choices[0]) == MESSAGE
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_async() -> None:
    """The asynchronous client gets the same, whole and accumulated."""
    with served(StrictVendor([FULL, Answer("Llamas are camelids.")])) as url:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client:
            async with client.chat.completions.stream(model="m", messages=[USER], tools=TOOLS) as stream:
                streamed = await stream.get_final_completion()
            whole = await client.chat.completions.create(model="m", messages=[USER])
    assert message_of(streamed.choices[0]) == MESSAGE
    assert whole.choices[0].message.content == "Llamas are camelids."
    assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("reply", [Answer("a"), (Answer("a"), Answer("a", CALLS[:1]))], ids=["one for all", "each"])
def test_choices(reply: Reply) -> None:
    """`n` choices come whole and streamed, with calls of their own ids."""
    expected = [[], []] if isinstance(reply, Answer) else [[], ["call_scripted_1_1_0"]]
    with served(StrictVendor([reply, reply])) as url, client_of(url) as client:
        with client.chat.completions.stream(model="m", messages=[USER], tools=TOOLS, n=2) as stream:
            streamed = stream.get_final_completion()
        whole = client.chat.completions.create(model="m", messages=[USER], tools=TOOLS, n=2)
    assert [choice.message.content for choice in streamed.choices] == ["a", "a"]
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert [[call.id for call in c.message.tool_calls or ()] for c in streamed.choices] == expected


def test_conversation() -> None:
    """An agent can go on with what it was given, and what it got back reaches the script."""
    with served(vendor := StrictVendor([FULL, Answer("None.")])) as url, client_of(url) as client:
        first = client.chat.completions.create(model="m", messages=[USER], tools=TOOLS).choices[0].message
        history: Any = [USER, first.model_dump(exclude_none=True)]
        history += [{"role": "tool", "tool_call_id": c.id, "content": "none found"} for c in first.tool_calls or ()]
        second = client.chat.completions.create(model="m", messages=history, tools=TOOLS)
    assert second.choices[0].message.content == "None."
    request = vendor.requests[1]
    assert [(call.name, call.id) for call in request.calls] == [
        ("search_web", "call_scripted_1_0_0"),
        ("search_web", "call_own"),
    ]
    assert all(call.same_as(made) for call, made in zip(request.calls, CALLS, strict=True))
    assert request.results == ("none found", "none found")


def test_refuses_as_the_vendor_does() -> None:
    """A broken history is answered 400 in OpenAI's envelope, without asking the script."""
    orphan: Any = {"role": "tool", "tool_call_id": "call_1", "content": ""}
    with (
        served(vendor := StrictVendor([])) as url,
        client_of(url) as client,
        pytest.raises(BadRequestError) as refused,
    ):
        client.chat.completions.create(model="m", messages=[USER, orphan])
    assert refused.value.type == "invalid_request_error"
    assert "messages[1]: 'call_1' is no call" in str(refused.value)
    assert vendor.requests[0].violations[0] in str(refused.value)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_http_fault(status: int, streams: bool) -> None:
    """An HTTP fault has its status and message, also where a stream was asked for."""
    with (
        served(StrictVendor([Fault.http(status, "out of llamas")])) as url,
        client_of(url) as client,
        pytest.raises(APIStatusError, match="out of llamas") as failed,
    ):
        client.chat.completions.create(model="m", messages=[USER], stream=streams)
    assert failed.value.status_code == status


@pytest.mark.parametrize("script", [[FULL], lambda request: FULL], ids=["a sequence", "a function"])
def test_same_bytes(script: Script) -> None:
    """Two vendors of one script give the same answers, ids and times included."""
    answers = []
    for _ in range(2):
        with served(StrictVendor(script)) as url, client_of(url) as client:
            raw = client.chat.completions.with_raw_response.create(model="m", messages=[USER], stream=True)
            answers.append(raw.http_response.read())
    assert answers[0] == answers[1]


FAULTS = {
    "cut": Fault.cut(Answer("Hello there, you"), after_frames=2),
    "an error": Fault.error_event(Answer("Hello there, you"), after_frames=2),
}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_fault(fault: Fault, streams: bool) -> None:
    """A broken answer is an error of the SDK's."""
    with served(StrictVendor([fault])) as url, client_of(url) as client, pytest.raises(APIError):
        read(client, streams=streams)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_malformed(streams: bool) -> None:
    """Broken JSON is no answer, whole or in the middle of a stream."""
    fault = Fault.malformed(Answer("Hello there, you"), after_frames=2)
    with (
        served(StrictVendor([fault])) as url,
        client_of(url) as client,
        pytest.raises(JSONDecodeError),
    ):
        read(client, streams=streams)
