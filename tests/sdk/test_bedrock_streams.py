"""boto3's `converse_stream` through guard and proxy: binary event streams pass, are counted, and can be warned of."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
from botocore import UNSIGNED  # type: ignore[import-untyped]  # see above
from botocore.config import Config  # type: ignore[import-untyped]  # see above

from callfuse import CallFuseMiddleware
from callfuse.proxy.app import ReverseProxy
from callfuse.proxy.settings import ServeSettings
from tests.captures.bedrock import EVENT_STREAM, event_stream
from tests.support.serving import serve

MARK = "[callfuse]"
ROUNDS = 4
TOOLS = {"tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": {"type": "object"}}}}]}
ANSWER: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "search"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"q":1}'}}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"messageStop": {"stopReason": "tool_use"}},
]


class Vendor:
    """Makes the same call for ever, an event a chunk."""

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
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", EVENT_STREAM)]})
        for event in ANSWER:
            await send({"type": "http.response.body", "body": event_stream([event]), "more_body": True})
        await send({"type": "http.response.body"})


def run(url: str) -> list[list[dict[str, Any]]]:
    """An agent: the events of each answer as boto3 has them."""
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        config=Config(retries={"total_max_attempts": 1}, signature_version=UNSIGNED),
    )
    messages: list[Any] = [{"role": "user", "content": [{"text": "Go."}]}]
    answers = []
    for _ in range(ROUNDS):
        answer = client.converse_stream(modelId="anthropic.claude-test-v1:0", messages=messages, toolConfig=TOOLS)
        answers.append(list(answer["stream"]))
        call = {"toolUseId": "t1", "name": "search", "input": {"q": 1}}
        messages.append({"role": "assistant", "content": [{"toolUse": call}]})
        result = {"toolResult": {"toolUseId": "t1", "content": [{"text": "nothing"}]}}
        messages.append({"role": "user", "content": [result]})
    client.close()
    return answers


async def talk(mode: str) -> tuple[Vendor, CallFuseMiddleware]:
    """A run over sockets, in which every answer must be whole."""
    vendor = Vendor()
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {"tool_call_loop": {"mode": mode}})
        async with serve(guarded) as url:
            assert await asyncio.to_thread(run, url) == [ANSWER] * ROUNDS
    return vendor, guarded


async def test_a_loop_passes_and_is_counted() -> None:
    """Where the third and the fourth call could have been withheld, callfuse says that it does not guard them."""
    vendor, guarded = await talk("block")
    assert guarded.counts.of("not_guarded", "content-type") == 2
    assert not any(MARK in raw.decode() for raw in vendor.asked)


async def test_a_loop_is_warned_of() -> None:
    """The results in the history are read all the same: the third one carries the warning."""
    vendor, _ = await talk("warn")
    told = [json.loads(raw)["messages"][-1]["content"][0] for raw in vendor.asked]
    assert [MARK in json.dumps(one) for one in told] == [False, False, False, True]
