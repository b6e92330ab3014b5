"""A small agent on the official OpenAI SDK: it streams, runs the calls it is given, and knows nothing of callfuse.

A base URL enters, entries are told as they happen, and what ended the run leaves.
"""

import json
from collections.abc import Callable
from typing import Any

import openai

from callfuse.demo import scene
from callfuse.demo.story import Kind
from callfuse.model import MARKER

REQUEST_TIMEOUT_S = 30.0

Tell = Callable[[Kind, str, int], None]
"""Is told a kind, a text, and how many calls have been run."""


def run_agent(base_url: str, tell: Tell) -> tuple[Kind, int]:
    """Ask the question, and go on until an answer or the limit: what ended it, and how many calls were run."""
    messages: list[Any] = [
        {"role": "system", "content": scene.SYSTEM},
        {"role": "user", "content": scene.QUESTION},
    ]
    done = 0
    with openai.OpenAI(
        base_url=base_url,
        api_key="the-demo-needs-none",
        max_retries=0,
        timeout=REQUEST_TIMEOUT_S,
        # Everything is on this machine: no proxy of the environment is asked.
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as client:
        while done < scene.MAX_CALLS:
            message = _next_message(client, messages)
            if not message.tool_calls:
                said, mark, block = (message.content or "").partition(MARKER)
                end = Kind.BLOCK if mark else Kind.ANSWER
                tell(end, mark + block or said, done)
                return end, done
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = scene.search_web(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
                done += 1
                tell(Kind.CALL, f"{_written(call.function)} -> {result}", done)
    tell(Kind.LIMIT, f"the agent's own limit of {scene.MAX_CALLS} calls stops it, without an answer", done)
    return Kind.LIMIT, done


def _next_message(client: openai.OpenAI, messages: list[Any]) -> Any:
    tools: Any = scene.TOOLS
    with client.chat.completions.stream(model=scene.MODEL, messages=messages, tools=tools) as stream:
        return stream.get_final_completion().choices[0].message


def _written(function: Any) -> str:
    """A call as one would write it: `search_web("llamas")`."""
    values = ", ".join(json.dumps(value) for value in json.loads(function.arguments).values())
    return f"{function.name}({values})"
