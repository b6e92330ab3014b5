"""Agents on boto3's Converse: signed by SigV4 they are blocked, without a signature (or with a token) steered too."""

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from botocore import UNSIGNED  # type: ignore[import-untyped]  # see above
from botocore.config import Config  # type: ignore[import-untyped]  # see above

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from tests.support.serving import serve

MARK = "[callfuse]"
TOOLS = {"tools": [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in ("a", "b")]}


class Vendor:
    """Makes the same call for ever, unless the last result tells it not to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        self.asked.append(json.loads(raw))
        body = json.dumps(self.answer(self.asked[-1])).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The model's next message."""
        last = json.dumps(asked["messages"][-1])
        called = {"toolUseId": f"tooluse_{len(self.asked)}", "name": "b" if MARK in last else "a", "input": {"q": 1}}
        content: list[Any] = [{"text": "Done."}] if "tooluse_4" in last else [{"text": "Hm."}, {"toolUse": called}]
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use" if len(content) == 2 else "end_turn",
            "usage": usage,
            "metrics": {"latencyMs": 1},
        }


def run(url: str, *, signed: bool) -> Iterator[dict[str, Any]]:
    """An agent: each answer as boto3 has it."""
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, **({} if signed else {"signature_version": UNSIGNED})),
    )
    messages: list[Any] = [{"role": "user", "content": [{"text": "Go."}]}]
    for _ in range(6):
        answer = client.converse(modelId="anthropic.claude-test-v1:0", messages=messages, toolConfig=TOOLS)
        yield answer
        said = answer["output"]["message"]
        calls = [block["toolUse"]["toolUseId"] for block in said["content"] if "toolUse" in block]
        if not calls:
            break
        results = [{"toolResult": {"toolUseId": id_, "content": [{"text": "nothing"}]}} for id_ in calls]
        messages += [said, {"role": "user", "content": results}]
    client.close()


async def talk(mode: str, *, signed: bool) -> tuple[Vendor, list[dict[str, Any]]]:
    """A run through guard and proxy, over sockets."""
    vendor = Vendor()
    config = {"tool_call_loop": {"mode": mode}}
    async with (
        serve(vendor) as upstream,
        serve(CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), config)) as url,
    ):
        return vendor, await asyncio.to_thread(lambda: list(run(url, signed=signed)))


@pytest.mark.parametrize("mode", ["block", "chance_then_block"])
async def test_a_signed_loop_is_blocked(mode: str) -> None:
    """The request is never changed nor asked again; the third call does not reach the agent."""
    vendor, answers = await talk(mode, signed=True)
    assert len(vendor.asked) == len(answers) == 3
    assert [answer["stopReason"] for answer in answers] == ["tool_use", "tool_use", "end_turn"]
    assert answers[-1]["output"]["message"]["content"][1]["text"].startswith(MARK)


async def test_an_unsigned_loop_is_steered() -> None:
    """Where no signature covers the body the model is asked again: one answer, the words of both, their tokens."""
    vendor, answers = await talk("chance_then_block", signed=False)
    assert len(vendor.asked) == 5
    steered = answers[2]["output"]["message"]["content"]
    assert [block.get("text") or block["toolUse"]["name"] for block in steered] == ["Hm.", "Hm.", "b"]
    assert answers[2]["usage"]["outputTokens"] == 10
    assert answers[-1]["output"]["message"]["content"] == [{"text": "Done."}]
