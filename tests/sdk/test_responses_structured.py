"""Structured output over the Responses API: a block is a refusal, and the SDK's parsing helpers raise nothing."""

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
    items: list[Any] = [{"role": "user", "content": "Report."}]
    for at in range(2):
        arguments = '{"query": "current status"}'
        items += [
            {"type": "function_call", "call_id": f"call_{at}", "name": "SearchWeb", "arguments": arguments},
            {"type": "function_call_output", "call_id": f"call_{at}", "output": "Nothing new."},
        ]
    return items


@pytest.mark.parametrize("helper", ["parse", "stream"])
async def test_a_block_is_a_refusal(helper: str) -> None:
    """`parse` and `stream` with a text format give a message with a refusal."""
    vendor = StrictVendor(looping_model("SearchWeb", {"query": "current status"}, stubborn=True))
    async with wired(vendor, "block") as url:
        response = await asyncio.to_thread(_ask, url, helper)
    (message,) = response.output
    (part,) = message.content
    assert part.type == "refusal"
    assert part.refusal.startswith("[callfuse]")
    assert response.output_parsed is None


def _ask(url: str, helper: str) -> Any:
    asked: dict[str, Any] = {
        "model": "scripted-model",
        "input": history(),
        "text_format": Report,
        "tools": [openai.pydantic_function_tool(SearchWeb)["function"] | {"type": "function"}],
    }
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if helper == "parse":
            return client.responses.parse(**asked)
        with client.responses.stream(**asked) as reading:
            return reading.get_final_response()
