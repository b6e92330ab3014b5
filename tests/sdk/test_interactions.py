"""google-genai's `interactions` through guard and proxy, over sockets: with the client's own history, and in chains."""

import asyncio
import json
from typing import Any

import pytest
from google import genai
from google.genai import types

from callfuse import CallFuseMiddleware
from callfuse.config.serve import ServeSettings
from callfuse.proxy.app import ReverseProxy
from callfuse.testing import Answer, Call, ScriptedVendor, looping_model
from tests.support.kits.interactions import merged
from tests.support.rules import StrictVendor
from tests.support.serving import serve

MARK = "[callfuse]"
TOOLS: list[Any] = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("search", "read")]
ROUNDS = 6
LOW = {"tool_call_loop": {"max_repeats": 2}}
LOOP, READ = Call("search", {"q": 1}), Call("read", {"a": 1})


class Agent:
    """Runs each call, and goes on until there is none; then says `Go on.` for as long as there is `more` to say.

    `answers`: the steps of each answer, with its status.
    """

    def __init__(self, url: str, *, stream: bool, chained: bool, more: int) -> None:
        self._client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
        self._stream = stream
        self._chained = chained
        self._more = more
        self.answers: list[tuple[list[dict[str, Any]], str]] = []

    def run(self) -> "Agent":
        """Talk for at most `ROUNDS` rounds."""
        with self._client:
            self._talk()
        return self

    def _talk(self) -> None:
        history: list[Any] = []
        new: Any = [{"type": "user_input", "content": [{"type": "text", "text": "Go."}]}]
        before: dict[str, Any] = {}
        for _ in range(ROUNDS):
            asked = {"input": new, **before} if self._chained else {"input": [*history, *new], "store": False}
            id_, steps, status = self._ask(asked)
            self.answers.append((steps, status))
            history += [*new, *steps]
            before = {"previous_interaction_id": id_}
            new = [
                {"type": "function_result", "call_id": step["id"], "name": step["name"], "result": "nothing"}
                for step in steps
                if step["type"] == "function_call"
            ]
            if not new and not self._more:
                break
            if not new:
                self._more -= 1
                new = [{"type": "user_input", "content": [{"type": "text", "text": "Go on."}]}]

    def _ask(self, asked: dict[str, Any]) -> tuple[str, list[dict[str, Any]], str]:
        made: Any = self._client.interactions.create(model="gemini-3", tools=TOOLS, stream=self._stream, **asked)
        if not self._stream:
            told = made.model_dump(mode="json", exclude_none=True)
            return told["id"], told["steps"], told["status"]
        seen = [one.model_dump(mode="json", exclude_none=True) for one in made]
        steps, status = merged(seen)
        return seen[0]["interaction"]["id"], steps, status or ""

    @property
    def said(self) -> str:
        """What the last answer has, as text."""
        return json.dumps(self.answers[-1][0])


async def talk(vendor: ScriptedVendor, mode: str, *, stream: bool, chained: bool, more: int = 0) -> Agent:
    """A run over sockets; the vendor finds no fault with any request."""
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), {"tool_call_loop": {"mode": mode}})
        async with serve(guarded) as url:
            agent = await asyncio.to_thread(Agent(url, stream=stream, chained=chained, more=more).run)
    assert [one.violations for one in vendor.requests] == [()] * len(vendor.requests)
    assert all(one.dialect == "gemini-interactions" for one in vendor.requests)
    assert guarded.counts.of("not_guarded") == guarded.counts.of("fail_open") == 0
    return agent


each_way = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
each_kind = pytest.mark.parametrize("chained", [True, False], ids=["chain", "own history"])


@each_way
@each_kind
async def test_a_loop_is_blocked(stream: bool, chained: bool) -> None:
    """The third call never comes; the next message of the user's is one that the vendor takes."""
    script = [Answer(calls=[LOOP], thinking="Hm.")] * 3 + [Answer("Hello.")]
    agent = await talk(StrictVendor(script), "block", stream=stream, chained=chained, more=1)
    assert [status for _, status in agent.answers] == ["requires_action", "requires_action", "completed", "completed"]
    assert MARK in json.dumps(agent.answers[2][0])
    assert "Hello." in agent.said


@each_way
@each_kind
async def test_a_loop_is_steered(stream: bool, chained: bool) -> None:
    """One answer of two, under the first one's id; what goes on from it goes on from the second."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, text="Hm.", after_guidance=Answer(calls=[READ])))
    agent = await talk(vendor, "chance_then_block", stream=stream, chained=chained)
    assert [step["type"] for step in agent.answers[2][0]] == ["model_output", "function_call"]
    assert agent.answers[2][0][1]["name"] == "read"
    assert vendor.requests[3].guidance.startswith(MARK)
    assert agent.answers[3][1] == "completed"
    if chained:
        assert vendor.requests[4].body["previous_interaction_id"] == "v1_scripted_4"


@each_way
@each_kind
async def test_a_sibling_survives(stream: bool, chained: bool) -> None:
    """The withheld call gets its result in the next request of a chain, where the vendor has it stored."""
    vendor = StrictVendor(
        [Answer(calls=[READ]), *[Answer(calls=[LOOP])] * 2, Answer(calls=[LOOP, READ]), Answer("Ok.")]
    )
    agent = await talk(vendor, "block", stream=stream, chained=chained)
    (step,) = agent.answers[3][0]
    assert (step["name"], agent.answers[3][1]) == ("read", "requires_action")
    assert "Ok." in agent.said
    if chained:
        assert len(vendor.requests[4].body["input"]) == 2


@each_way
@each_kind
async def test_a_loop_is_warned_of(stream: bool, chained: bool) -> None:
    """The results from the third on carry the warning."""
    vendor = StrictVendor(looping_model("search", {"q": 1}, stubborn=True))
    await talk(vendor, "warn", stream=stream, chained=chained)
    assert [MARK in json.dumps(one.body["input"][-1]) for one in vendor.requests] == [False] * 3 + [True] * 3


async def test_too_many_in_one_answer() -> None:
    """Of an answer to a plain text, which begins a chain: the body is as long as it says. Of a new call all go that are
    below the hard limit."""

    def run(url: str) -> list[Any]:
        with genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url)) as client:
            found: list[Any] = [client.interactions.create(model="gemini-3", tools=TOOLS, input="Go.")]
        return found

    vendor = StrictVendor([Answer(calls=[LOOP] * 4), Answer("Ok.")])
    async with serve(vendor) as upstream:
        guarded = CallFuseMiddleware(ReverseProxy(ServeSettings(upstream=upstream)), LOW)
        async with serve(guarded) as url:
            (answer,) = await asyncio.to_thread(run, url)
    assert [step.type for step in answer.steps] == ["function_call"] * 3
