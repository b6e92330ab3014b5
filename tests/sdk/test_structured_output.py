"""Structured output: a block must not break the SDKs' parsing helpers, so it is a refusal where the dialect has one."""

import asyncio
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from callfuse.testing import looping_model
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor


class Report(BaseModel):
    """What the agent wants in the end."""

    title: str


class SearchWeb(BaseModel):
    """Search the web."""

    query: str


def history() -> list[Any]:
    """A conversation that has searched the same thing twice."""
    arguments = '{"query": "current status"}'
    rounds: list[Any] = [{"role": "user", "content": "Report."}]
    for at in range(2):
        call = {"id": f"call_{at}", "type": "function", "function": {"name": "SearchWeb", "arguments": arguments}}
        rounds += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{at}", "content": "Nothing new."},
        ]
    return rounds


@pytest.mark.parametrize("helper", ["parse", "stream"])
async def test_a_block_is_a_refusal(helper: str) -> None:
    """`parse` and `stream` with a response format give a message with a refusal, and raise nothing."""
    vendor = StrictVendor(looping_model("SearchWeb", {"query": "current status"}, stubborn=True))
    async with wired(vendor, "block") as url:
        message = await asyncio.to_thread(_ask, url, helper)
    assert message.refusal.startswith("[callfuse]")
    assert not message.content
    assert not message.tool_calls
    assert message.parsed is None


def _ask(url: str, helper: str) -> Any:
    asked: dict[str, Any] = {
        "model": "scripted-model",
        "messages": history(),
        "response_format": Report,
        "tools": [openai.pydantic_function_tool(SearchWeb)],
    }
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if helper == "parse":
            return client.chat.completions.parse(**asked).choices[0].message
        with client.chat.completions.stream(**asked) as reading:
            return reading.until_done().get_final_completion().choices[0].message
