"""Define the agent of the demo, with its question and tool, and the scripted model.

Everything is invented, deterministic and local. The looping search never finds anything; the other search, which the
model tries after it has read callfuse's guidance, finds the answer. The agent is a small tool loop on the official
OpenAI SDK: it streams, runs the calls that it gets, and has no code for callfuse.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openai

from callfuse.demo.story import EntryKind
from callfuse.model import MARKER
from callfuse.testing import Answer, Call, VendorRequest, looping_model

MODEL = "scripted-model"
TOOL = "search_web"
MAX_CALLS = 12
"""The agent's own limit on calls, which ends the run without callfuse."""

QUESTION = "When does the ferry from Svalbrook leave on Sundays?"
SYSTEM = "You are a travel assistant. Use search_web to look things up, and answer from what it finds."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Searches the web and returns the best pages.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What to look for."}},
                "required": ["query"],
            },
        },
    }
]

LOOPING_QUERY = "Svalbrook ferry"
OTHER_QUERY = "Svalbrook harbour"
FOUND = "Sundays 10:15, 16:40"
NOT_FOUND = "no results"
CONCLUSION = "On Sundays the ferry leaves at 10:15 and at 16:40, as the harbour office says."

REQUEST_TIMEOUT_S = 30.0

Tell = Callable[[EntryKind, str, int], None]
"""Takes the kind of an entry, its text, and the number of calls so far."""


def search_web(query: str) -> str:
    """Return the tool's result. Only `OTHER_QUERY` finds anything."""
    return FOUND if query == OTHER_QUERY else NOT_FOUND


@dataclass(frozen=True, slots=True)
class Task:
    """The task of an agent. `run`: runs a call, by tool and arguments. `session`: the session id that it sends, if
    any."""

    question: str
    tools: list[dict[str, Any]]
    run: Callable[[str, dict[str, Any]], str]
    system: str = SYSTEM
    model: str = MODEL
    session: str = ""


TRAVEL = Task(QUESTION, TOOLS, lambda _, arguments: search_web(**arguments))
"""The task of the story."""


def scripted_model(*, stubborn: bool) -> Callable[[VendorRequest], Answer]:
    """Return the script of the vendor's model. A `stubborn` model ignores callfuse's guidance, and continues its
    loop."""
    return looping_model(
        TOOL,
        {"query": LOOPING_QUERY},
        text="Let me search for that.",
        after_guidance=Answer("That search will not find it. I try another one.", [Call(TOOL, {"query": OTHER_QUERY})]),
        conclusion=CONCLUSION,
        stubborn=stubborn,
    )


def run_agent(base_url: str, tell: Tell, task: Task = TRAVEL, pause_s: float = 0.0) -> tuple[EntryKind, int]:
    """Ask the question and run calls until an answer or the limit. Returns the kind of the end, and the number of
    calls. `pause_s`: seconds before each request."""
    messages: list[Any] = [
        {"role": "system", "content": task.system},
        {"role": "user", "content": task.question},
    ]
    done = 0
    with openai.OpenAI(
        base_url=base_url,
        api_key="the-demo-needs-none",
        max_retries=0,
        default_headers={"x-session-id": task.session} if task.session else None,
        timeout=REQUEST_TIMEOUT_S,
        # Everything is on this machine, so proxies from the environment are not used.
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as client:
        while done < MAX_CALLS:
            time.sleep(pause_s)
            message = _next_message(client, messages, task)
            if not message.tool_calls:
                said, mark, block = (message.content or "").partition(MARKER)
                end = EntryKind.BLOCK if mark else EntryKind.ANSWER
                tell(end, mark + block or said, done)
                return end, done
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = task.run(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
                done += 1
                tell(EntryKind.CALL, f"{_as_code(call.function)} -> {result}", done)
    tell(EntryKind.LIMIT, f"the agent's own limit of {MAX_CALLS} calls stops it, without an answer", done)
    return EntryKind.LIMIT, done


def _next_message(client: openai.OpenAI, messages: list[Any], task: Task) -> Any:
    tools: Any = task.tools
    with client.chat.completions.stream(model=task.model, messages=messages, tools=tools) as stream:
        return stream.get_final_completion().choices[0].message


def _as_code(function: Any) -> str:
    """Write a call as code: `search_web("llamas")`."""
    values = ", ".join(json.dumps(value) for value in json.loads(function.arguments).values())
    return f"{function.name}({values})"
