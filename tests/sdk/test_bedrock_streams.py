"""boto3's `converse_stream` through guard and proxy, over sockets: loops are blocked, steered, thinned, warned of."""

import asyncio
import json
from contextlib import closing
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest
from botocore import UNSIGNED  # type: ignore[import-untyped]  # see above
from botocore.config import Config  # type: ignore[import-untyped]  # see above
from botocore.exceptions import EventStreamError  # type: ignore[import-untyped]  # see above

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.testing import Answer, Call, Fault, ScriptedVendor, VendorRequest, looping_model
from tests.support.kits.bedrock import merged
from tests.support.rules import StrictVendor
from tests.support.serving import serve

MARK = "[callfuse]"
ROUNDS = 5
SPECS = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in ("search", "read")]
THOUGHT = "The same again?"
LOOP = Call("search", {"q": 1})


class Agent:
    """Runs each call of an answer, and goes on until there is none. `answers`: the messages, with their reasons."""

    def __init__(self, url: str, *, signed: bool) -> None:
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"} if signed else {}
        unsigned = {} if signed else {"signature_version": UNSIGNED}
        self.client = boto3.client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            config=Config(retries={"total_max_attempts": 1}, **unsigned),
            **keys,
        )
        self.answers: list[tuple[dict[str, Any], str | None]] = []
        self.usage: list[dict[str, int]] = []

    def run(self) -> "Agent":
        """Talk for at most `ROUNDS` rounds."""
        with closing(self.client):
            self._talk()
        return self

    def _talk(self) -> None:
        messages: list[Any] = [{"role": "user", "content": [{"text": "Go."}]}]
        for _ in range(ROUNDS):
            answer = self.client.converse_stream(modelId="m.claude", messages=messages, toolConfig={"tools": SPECS})
            with closing(answer["stream"]) as stream:
                seen = list(stream)
            self.usage += [one["metadata"]["usage"] for one in seen if "metadata" in one]
            message, reason = merged(seen)
            self.answers.append((message, reason))
            used = [block["toolUse"] for block in message["content"] if "toolUse" in block]
            results = [
                {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": "nothing"}]}} for use in used
            ]
            if not results:
                break
            messages += [message, {"role": "user", "content": results}]

    @property
    def said(self) -> str:
        """All texts of the last answer."""
        return "".join(block.get("text", "") for block in self.answers[-1][0]["content"])


async def talk(vendor: ScriptedVendor, mode: str, *, signed: bool = False) -> tuple[Agent, CallFuseMiddleware]:
    """A run over sockets; the vendor finds no fault with any request."""
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {"tool_call_loop": {"mode": mode}})
        async with serve(guarded) as url:
            agent = await asyncio.to_thread(Agent(url, signed=signed).run)
    assert [one.violations for one in vendor.requests] == [()] * len(vendor.requests)
    assert all(one.streams and one.model == "m.claude" for one in vendor.requests)
    return agent, guarded


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
async def test_a_loop_is_blocked(signed: bool) -> None:
    """The third call never comes, whether the request is signed or not; its body is the client's."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, stubborn=True, thinking=THOUGHT))
    agent, guarded = await talk(vendor, "block", signed=signed)
    assert [reason for _, reason in agent.answers] == ["tool_use", "tool_use", "end_turn"]
    assert MARK in agent.said
    assert guarded.counts.of("not_guarded") == guarded.counts.of("fail_open") == 0
    assert len(vendor.requests) == 3
    assert ("authorization" in vendor.requests[0].headers) is signed


async def test_a_loop_is_steered() -> None:
    """One answer of two: the first one's reasoning, the second one's call, the output tokens of both."""
    other = Answer(calls=[Call("read", {"a": 2})])
    vendor = StrictVendor(looping_model("search", {"q": 1}, thinking=THOUGHT, text="Hm.", after_guidance=other))
    agent, _ = await talk(vendor, "chance_then_block")
    kinds = [[kind for block in message["content"] for kind in block] for message, _ in agent.answers]
    assert kinds[2] == ["reasoningContent", "text", "toolUse"]
    assert agent.answers[2][0]["content"][2]["toolUse"]["name"] == "read"
    assert agent.answers[2][1] == "tool_use"
    assert vendor.requests[3].guidance.startswith(MARK)
    assert agent.usage[2]["outputTokens"] > agent.usage[1]["outputTokens"]
    assert len(agent.answers) == 4
    assert agent.answers[3][1] == "end_turn"


async def test_a_signed_loop_is_not_asked_again() -> None:
    """The signature covers the body: no warning is put in, no model asked a second time, and the loop is blocked."""
    vendor = StrictVendor(looping_model("search", {"q": 1}))
    agent, _ = await talk(vendor, "chance_then_block", signed=True)
    assert MARK in agent.said
    assert len(vendor.requests) == len(agent.answers) == 3
    assert not any(one.guidance for one in vendor.requests)


async def test_a_sibling_survives() -> None:
    """Of two parallel calls the looping one goes, the other is the only block, numbered from 0."""
    read = Call("read", {"a": 1})
    vendor = StrictVendor(
        [Answer(calls=[read]), *[Answer(calls=[LOOP])] * 2, Answer(calls=[LOOP, read]), Answer("Ok.")]
    )
    agent, _ = await talk(vendor, "block")
    (block,) = agent.answers[3][0]["content"]
    assert block["toolUse"]["name"] == "read"
    assert agent.answers[3][1] == "tool_use"
    assert agent.said == "Ok."


async def test_a_loop_is_warned_of() -> None:
    """The results from the third on carry the warning; the streams are the vendor's."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, stubborn=True))
    agent, _ = await talk(vendor, "warn")
    assert [MARK in json.dumps(one.body["messages"][-1]) for one in vendor.requests] == [False] * 3 + [True] * 2
    assert [reason for _, reason in agent.answers] == ["tool_use"] * ROUNDS


async def test_an_exception_in_the_stream() -> None:
    """It reaches boto3 as it would without callfuse, also while a call is held."""

    def script(request: VendorRequest) -> Answer | Fault:
        answer = Answer(calls=[LOOP])
        return answer if request.number < 3 else Fault.error_event(answer, after_frames=3)

    with pytest.raises(EventStreamError, match="modelStreamErrorException"):
        await talk(StrictVendor(script), "block")
