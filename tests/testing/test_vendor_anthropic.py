"""The scripted vendor as the official Anthropic SDK sees it, over sockets."""

from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, BadRequestError
from anthropic.types import Message

from callfuse.testing import Answer, Call, Fault, Usage, served
from callfuse.testing.turn import signature_for
from tests.support.rules import StrictVendor, violations

pytestmark = pytest.mark.slow

USER: Any = {"role": "user", "content": "find llamas"}
TOOLS: Any = [{"name": "search_web", "input_schema": {"type": "object"}}]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
ASKED: Any = {"model": "claude-x", "max_tokens": 4096, "messages": [USER], "tools": TOOLS, "thinking": THINKING}
CALLS = (Call("search_web", {"query": "llamas, where?"}), Call("search_web", {"query": "größe 🦙"}, id="toolu_own"))
FULL = Answer("Let me look.", CALLS, thinking="They ask for llamas.", usage=Usage(70, 30, cached_tokens=20))


def content_of(message: Message) -> list[dict[str, Any]]:
    """What a client keeps of a message."""
    return [block.model_dump(exclude_none=True) for block in message.content]


def expected_content(number: int) -> list[dict[str, Any]]:
    """The content of `FULL` as the answer to the vendor's request of that number."""
    thinking = "They ask for llamas."
    return [
        {"type": "thinking", "thinking": thinking, "signature": signature_for(f"msg_scripted_{number}", thinking)},
        {"type": "text", "text": "Let me look."},
        {
            "type": "tool_use",
            "id": f"toolu_scripted_{number}_0_0",
            "name": "search_web",
            "input": {"query": "llamas, where?"},
        },
        {"type": "tool_use", "id": "toolu_own", "name": "search_web", "input": {"query": "größe 🦙"}},
    ]


def client_of(url: str) -> Anthropic:
    """A client that does not retry."""
    return Anthropic(base_url=url, api_key="key", max_retries=0)


def test_whole() -> None:
    """A whole answer has thinking with its signature, text, parallel calls, stop reason and usage."""
    with served(StrictVendor([FULL])) as url, client_of(url) as client:
        message = client.messages.create(**ASKED)
    assert content_of(message) == expected_content(1)
    assert (message.id, message.model, message.stop_reason) == ("msg_scripted_1", "claude-x", "tool_use")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (50, 20, 30)


def test_streamed() -> None:
    """Raw events come in the vendor's order, with a ping among them, and blocks counted from 0."""
    with served(StrictVendor([FULL])) as url, client_of(url) as client:
        raw = client.messages.with_streaming_response.create(**ASKED, stream=True)
        with raw as response:
            names = [line.removeprefix("event: ") for line in response.iter_lines() if line.startswith("event: ")]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop") == 4


def test_accumulated() -> None:
    """The SDK's accumulator makes of the stream what the whole answer says."""
    with (
        served(StrictVendor([FULL])) as url,
        client_of(url) as client,
        client.messages.stream(**ASKED) as stream,
    ):
        indexes = [event.index for event in stream if event.type == "content_block_start"]
        message = stream.get_final_message()
    assert indexes == [0, 1, 2, 3]
    assert content_of(message) == expected_content(1)
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 30)


async def test_async() -> None:
    """The asynchronous client gets the same, accumulated and whole."""
    with served(StrictVendor([FULL, Answer("Llamas are camelids.")])) as url:
        async with AsyncAnthropic(base_url=url, api_key="key", max_retries=0) as client:
            async with client.messages.stream(**ASKED) as stream:
                streamed = await stream.get_final_message()
            whole = await client.messages.create(model="m", max_tokens=9, messages=[USER])
    assert content_of(streamed) == expected_content(1)
    assert content_of(whole) == [{"type": "text", "text": "Llamas are camelids."}]
    assert whole.stop_reason == "end_turn"


def test_conversation() -> None:
    """An agent can go on with what it was given, thinking included, and its results reach the script."""
    with served(vendor := StrictVendor([FULL, Answer("None.")])) as url, client_of(url) as client:
        with client.messages.stream(**ASKED) as stream:
            first = stream.get_final_message()
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "none found"}]}
            for block in first.content
            if block.type == "tool_use"
        ]
        history = [USER, first.to_param(), {"role": "user", "content": results}]
        second = client.messages.create(**ASKED | {"messages": history})
    assert content_of(second)[0]["text"] == "None."
    request = vendor.requests[1]
    assert [call.id for call in request.calls] == ["toolu_scripted_1_0_0", "toolu_own"]
    assert all(call.same_as(made) for call, made in zip(request.calls, CALLS, strict=True))
    assert request.results == ("none found", "none found")


def test_refuses_a_changed_thought() -> None:
    """A client that changes the vendor's thinking is refused, in Anthropic's envelope."""
    with served(vendor := StrictVendor([FULL])) as url, client_of(url) as client:
        content = content_of(client.messages.create(**ASKED))
        content[0]["thinking"] += " And alpacas."
        results = [{"type": "tool_result", "tool_use_id": block["id"]} for block in content[2:]]
        history = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
        with pytest.raises(BadRequestError, match="send blocks back as they came") as refused:
            client.messages.create(**ASKED | {"messages": history})
    assert refused.value.type == "invalid_request_error"
    assert list(vendor.requests[1].violations) == violations("anthropic", vendor.requests[1].body)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("status", "type"), [(429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error")])
def test_http_fault(status: int, type: str, streams: bool) -> None:  # noqa: A002 - as the SDK names it
    """An HTTP fault has its status, its type and its message, also where a stream was asked for."""
    with (
        served(StrictVendor([Fault.http(status, "out of llamas")])) as url,
        client_of(url) as client,
        pytest.raises(APIStatusError, match="out of llamas") as failed,
    ):
        client.messages.create(**ASKED, stream=streams)
    assert (failed.value.status_code, failed.value.type) == (status, type)


def read(client: Anthropic, seen: list[str]) -> None:
    """Read a stream to its end, keeping the names of its events."""
    seen.extend(event.type for event in client.messages.create(**ASKED, stream=True))


def test_error_event() -> None:
    """An error inside a stream is raised behind what came before it."""
    fault = Fault.error_event(Answer("Hello there, you"), after_frames=4, message="Overloaded")
    seen: list[str] = []
    with (
        served(StrictVendor([fault])) as url,
        client_of(url) as client,
        pytest.raises(APIStatusError, match="Overloaded"),
    ):
        read(client, seen)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]


def test_cut() -> None:
    """A cut stream breaks off where it was told to, and never ends properly."""
    fault = Fault.cut(Answer("Hello there, you"), after_frames=4)
    seen: list[str] = []
    with (
        served(StrictVendor([fault])) as url,
        client_of(url) as client,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        read(client, seen)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
