"""In-chat commands through boto3: `converse` and `converse_stream`, unsigned; signed requests keep theirs."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from botocore import UNSIGNED  # type: ignore[import-untyped]  # see above
from botocore.config import Config  # type: ignore[import-untyped]  # see above

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.support.kits.bedrock import EVENT_STREAM, event_stream
from tests.support.serving import serve

SAID = "[callfuse] tool-loop-ttl = 9 for this session."
MODEL = "anthropic.claude-test-v1:0"
EVENTS: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Ok."}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"messageStop": {"stopReason": "end_turn"}},
]

streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


class Vendor:
    """Says `Ok.`."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        self.asked.append(raw)
        stream = scope["path"].endswith("-stream")
        said = {"message": {"role": "assistant", "content": [{"text": "Ok."}]}}
        whole = json.dumps({"output": said, "stopReason": "end_turn", "usage": {}, "metrics": {}}).encode()
        kind = EVENT_STREAM if stream else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": event_stream(EVENTS) if stream else whole})


def talk(url: str, texts: list[str], *, stream: bool, signed: bool) -> list[str]:
    """A conversation: what is answered to each of these texts."""
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"} if signed else {}
    unsigned = {} if signed else {"signature_version": UNSIGNED}
    config = Config(retries={"total_max_attempts": 1}, **unsigned)
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=url, config=config, **keys)
    messages: list[Any] = []
    answers = []
    for text in texts:
        messages.append({"role": "user", "content": [{"text": text}]})
        if stream:
            events = list(client.converse_stream(modelId=MODEL, messages=messages)["stream"])
            assert [next(iter(event)) for event in events][:4] == [next(iter(event)) for event in EVENTS]
            said = "".join(event["contentBlockDelta"]["delta"]["text"] for event in events[1:-1] if _is_text(event))
            messages.append({"role": "assistant", "content": [{"text": said}]})
        else:
            messages.append(client.converse(modelId=MODEL, messages=messages)["output"]["message"])
        answers.append(messages[-1]["content"][0]["text"])
    client.close()
    return answers


def _is_text(event: dict[str, Any]) -> bool:
    return "contentBlockDelta" in event


async def run(texts: list[str], *, stream: bool, signed: bool) -> tuple[list[str], list[Any]]:
    """The answers, and the messages of the vendor's requests."""
    vendor = Vendor()
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {})
        async with serve(guarded) as url:
            answers = await asyncio.to_thread(talk, url, texts, stream=stream, signed=signed)
    return answers, [json.loads(raw)["messages"] for raw in vendor.asked]


@streamed_and_whole
async def test_a_command(stream: bool) -> None:
    """It is answered as the client asks, and neither it nor its answer reaches the vendor."""
    answers, asked = await run(["!/set(tool-loop-ttl=9)", "Hello.", "!/status"], stream=stream, signed=False)
    assert answers[:2] == [SAID, "Ok."]
    assert "tool-loop-ttl = 9 (session)" in answers[2]
    assert asked == [[{"role": "user", "content": [{"text": "Hello."}]}]]


@streamed_and_whole
async def test_a_signed_command(stream: bool) -> None:
    """It goes on as it came."""
    answers, asked = await run(["!/set(tool-loop-ttl=9)"], stream=stream, signed=True)
    assert answers == ["Ok."]
    assert asked == [[{"role": "user", "content": [{"text": "!/set(tool-loop-ttl=9)"}]}]]
