"""Agents that speak to LiteLLM by the official SDKs, one for each of its three formats.

In: a base URL, a key, whether to stream, a task. Out: how many calls were executed, and what the last answer says. Each
stops at the first answer without a call.
"""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai

MOST_ROUNDS = 8
RESULT = "no results"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}
FUNCTION: dict[str, Any] = {"name": "search", "description": "Searches.", "parameters": SCHEMA}
TIMEOUT_S = 60
Agent = Callable[..., tuple[int, str]]


def chat(url: str, key: str, task: str, *, streamed: bool, **headers: str) -> tuple[int, str]:
    """An agent at `/v1/chat/completions`."""
    client = _openai(url, key, headers)
    said: list[Any] = [{"role": "user", "content": task}]
    options: Any = {"model": "gpt-4o", "messages": said, "tools": [{"type": "function", "function": FUNCTION}]}
    for executed in range(MOST_ROUNDS):
        if streamed:
            with client.chat.completions.stream(**options) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**options).choices[0].message
        if not message.tool_calls:
            return executed, message.content or ""
        said.append(json.loads(message.to_json(exclude_none=True, exclude_unset=True)))
        said[-1].pop("parsed", None)
        for call in said[-1]["tool_calls"]:
            call["function"].pop("parsed_arguments", None)
            said.append({"role": "tool", "tool_call_id": call["id"], "content": RESULT})
    return MOST_ROUNDS, ""


def messages(url: str, key: str, task: str, *, streamed: bool, **headers: str) -> tuple[int, str]:
    """An agent at `/v1/messages`."""
    client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=TIMEOUT_S, default_headers=headers)
    said: list[Any] = [{"role": "user", "content": task}]
    tool = {"name": "search", "description": "Searches.", "input_schema": SCHEMA}
    options: Any = {"model": "claude", "max_tokens": 500, "messages": said, "tools": [tool]}
    for executed in range(MOST_ROUNDS):
        if streamed:
            with client.messages.stream(**options) as stream:
                blocks = json.loads(stream.get_final_message().to_json(exclude_none=True))["content"]
        else:
            blocks = json.loads(client.messages.create(**options).to_json(exclude_none=True))["content"]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return executed, "".join(block["text"] for block in blocks if block["type"] == "text")
        kept = ("type", "text", "id", "name", "input")
        said.append({"role": "assistant", "content": [{k: v for k, v in one.items() if k in kept} for one in blocks]})
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": RESULT} for call in calls]
        said.append({"role": "user", "content": results})
    return MOST_ROUNDS, ""


def responses(url: str, key: str, task: str, *, streamed: bool, **headers: str) -> tuple[int, str]:
    """An agent at `/v1/responses`, which sends its whole history."""
    client = _openai(url, key, headers)
    said: list[Any] = [{"role": "user", "content": task}]
    options: Any = {"model": "gpt-4o", "input": said, "tools": [{"type": "function", **FUNCTION}], "store": False}
    for executed in range(MOST_ROUNDS):
        if streamed:
            with client.responses.stream(**options) as stream:
                answer: Any = stream.get_final_response()
        else:
            answer = client.responses.create(**options)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return executed, answer.output_text
        for call in calls:
            given = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
            said.append({"type": "function_call", **given})
            said.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
    return MOST_ROUNDS, ""


AGENTS: tuple[Agent, ...] = (chat, messages, responses)


def _openai(url: str, key: str, headers: dict[str, str]) -> openai.OpenAI:
    base_url = f"{url}/v1"
    return openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=TIMEOUT_S, default_headers=headers)
