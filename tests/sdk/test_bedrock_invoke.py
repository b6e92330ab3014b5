"""Anthropic's SDK for Bedrock, and boto3, on `invoke-with-response-stream`, through guard and proxy, over sockets."""

import asyncio
import json
from contextlib import closing
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from botocore.config import Config  # type: ignore[import-untyped]  # see above

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.testing import Answer, Call, ScriptedVendor, looping_model
from tests.support.rules import StrictVendor
from tests.support.serving import serve

MARK = "[callfuse]"
MODEL = "eu.anthropic.claude-test"
TOOLS: list[Any] = [{"name": name, "input_schema": {"type": "object"}} for name in ("search", "read")]
BACK = {"type": "tool_result", "content": "nothing"}


def run(url: str, *, signed: bool) -> list[Any]:
    """An agent on the SDK's stream helper: each message as it puts it together."""
    keys: dict[str, Any] = {"aws_access_key": "k", "aws_secret_key": "s"} if signed else {"api_key": "bearer"}
    found: list[Any] = []
    turns: list[Any] = [{"role": "user", "content": "Go."}]
    with anthropic.AnthropicBedrock(aws_region="us-east-1", base_url=url, max_retries=0, **keys) as client:
        for _ in range(5):
            with client.messages.stream(model=MODEL, max_tokens=2000, messages=turns, tools=TOOLS) as stream:
                found.append(stream.get_final_message())
            used = [block for block in found[-1].content if block.type == "tool_use"]
            if not used:
                break
            back = [BACK | {"tool_use_id": use.id} for use in used]
            turns += [{"role": "assistant", "content": found[-1].content}, {"role": "user", "content": back}]
    return found


async def talk(vendor: ScriptedVendor, mode: str, *, signed: bool) -> list[Any]:
    """A run over sockets; the vendor finds no fault with any request."""
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {"tool_call_loop": {"mode": mode}})
        async with serve(guarded) as url:
            found = await asyncio.to_thread(run, url, signed=signed)
    assert guarded.counts.of("not_guarded") == guarded.counts.of("fail_open") == 0
    assert [one.violations for one in vendor.requests] == [()] * len(vendor.requests)
    assert all(one.dialect == "bedrock-invoke" and one.model == MODEL for one in vendor.requests)
    return found


@pytest.mark.parametrize("signed", [False, True], ids=["bearer", "signed"])
async def test_a_loop_is_blocked(signed: bool) -> None:
    """The third call never comes."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, stubborn=True))
    found = await talk(vendor, "block", signed=signed)
    assert [one.stop_reason for one in found] == ["tool_use", "tool_use", "end_turn"]
    assert found[-1].content[-1].text.startswith(MARK)


async def test_a_loop_is_steered() -> None:
    """The second answer goes on in the same stream, in blocks counted on."""
    other = Answer(calls=[Call("read", {"a": 2})])
    vendor = StrictVendor(looping_model("search", {"q": 1}, text="Hm.", after_guidance=other))
    found = await talk(vendor, "chance_then_block", signed=False)
    assert [block.type for block in found[2].content] == ["text", "tool_use"]
    assert found[2].content[1].name == "read"
    assert vendor.requests[3].guidance.startswith(MARK)
    assert found[3].stop_reason == "end_turn"


async def test_a_signed_loop_is_not_asked_again() -> None:
    """It is blocked at once."""
    vendor = StrictVendor(looping_model("search", {"q": 1}))
    found = await talk(vendor, "chance_then_block", signed=True)
    assert len(vendor.requests) == len(found) == 3
    assert found[-1].content[-1].text.startswith(MARK)


async def test_boto3_reads_it() -> None:
    """Every chunk has Anthropic's JSON."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, stubborn=True))
    call = {"type": "tool_use", "id": "a", "name": "search", "input": {"q": 1}}
    back = [{"role": "user", "content": [BACK | {"tool_use_id": "a"}]}]
    turns = [{"role": "user", "content": "Go."}, *[{"role": "assistant", "content": [call]}, *back] * 2]
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "messages": turns, "tools": TOOLS}

    def invoke(url: str) -> list[dict[str, Any]]:
        config = Config(retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        with closing(boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)) as client:
            answer = client.invoke_model_with_response_stream(modelId=MODEL, body=json.dumps(body))
            return [json.loads(one["chunk"]["bytes"]) for one in answer["body"]]

    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {"tool_call_loop": {}})
        async with serve(guarded) as url:
            seen = await asyncio.to_thread(invoke, url)
    assert [one["type"] for one in seen][-2:] == ["message_delta", "message_stop"]
    assert MARK in json.dumps(seen)
    assert not any(one.get("content_block", {}).get("type") == "tool_use" for one in seen)
