"""A test of an agent without a model: `pytest examples/test_agent.py`.

The scripted vendor plays the model and keeps what it is asked, so the test also shows that the agent sends its results
back.
"""
# ruff: noqa: S101 - a test asserts

import json
from typing import Any

from openai import OpenAI

from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call, ScriptedVendor, looping_model, served

TOOLS: Any = [{"type": "function", "function": {"name": "search_web", "parameters": {"type": "object"}}}]


def run_agent(base_url: str, question: str, max_steps: int = 10) -> str:
    """The agent under test: it runs the calls it is given until it is given text."""
    messages: list[Any] = [{"role": "user", "content": question}]
    with OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
        for _ in range(max_steps):
            answer = client.chat.completions.create(model="any", messages=messages, tools=TOOLS).choices[0].message
            if not answer.tool_calls:
                return answer.content or ""
            messages.append(answer.model_dump(exclude_none=True))
            messages.extend({"role": "tool", "tool_call_id": c.id, "content": "none"} for c in answer.tool_calls)
    return "(gave up)"


def test_uses_the_tool() -> None:
    """The agent asks, runs the call, sends its result, and gives the answer."""
    vendor = ScriptedVendor([Answer(calls=[Call("search_web", {"query": "llamas"})]), Answer("They are camelids.")])
    with served(vendor) as url:
        assert run_agent(url, "What are llamas?") == "They are camelids."
    assert vendor.requests[1].results == ("none",)
    assert json.loads(vendor.requests[1].calls[0].text) == {"query": "llamas"}


def test_gets_out_of_a_loop() -> None:
    """A model in a loop would keep the agent busy for ever; with callfuse in between it changes course."""
    vendor = ScriptedVendor(looping_model(conclusion="I do not know."))
    with served(vendor) as url:
        assert run_agent(url, "What are llamas?") == "(gave up)"
    with served(CallFuseMiddleware(vendor)) as url:
        assert run_agent(url, "What are llamas?") == "I do not know."
