"""Hand-written Responses: items of every kind, streams of them in each vendor's habits, requests that hold them.

In: items. Out: bytes, and what a client has at the end.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.support.asgi import Headers, Request
from tests.support.scripted import Reply, whole
from tests.support.wire import events

PATH = "/v1/responses"
Item = dict[str, Any]


def function(call_id: str = "call_1", *, name: str = "search", arguments: str = '{"q":"x"}', **more: Any) -> Item:
    """A function call."""
    head = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", "call_id": call_id}
    return head | {"name": name, "arguments": arguments} | more


def message(text: str = "Let me see.", **more: Any) -> Item:
    """A message of the model's."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]} | more


def reasoning(id_: str = "rs_1", **more: Any) -> Item:
    """A reasoning item."""
    return {"id": id_, "type": "reasoning", "summary": []} | more


def built_in(kind: str, call_id: str = "call_1", **more: Any) -> Item:
    """A call of a built-in tool that the client executes."""
    own: dict[str, Item] = {
        "custom_tool_call": {"name": "sql", "input": "SELECT 1"},
        "shell_call": {"action": {"commands": ["ls"], "timeout_ms": None}},
        "local_shell_call": {"action": {"type": "exec", "command": ["ls"], "env": {}}},
        "apply_patch_call": {"operation": {"type": "delete_file", "path": "x"}},
        "tool_search_call": {"execution": "client", "arguments": {"goal": "weather"}},
        "computer_call": {"action": {"type": "screenshot"}, "pending_safety_checks": []},
    }
    return {"id": f"it_{call_id}", "type": kind, "status": "completed", "call_id": call_id} | own[kind] | more


def result(item: Item, text: str = "nothing") -> Item:
    """What a client reports for a call."""
    kind = item["type"]
    head = {"type": f"{kind}_output", "call_id": item["call_id"]}
    match kind:
        case "shell_call":
            outcome = {"type": "exit", "exit_code": 0}
            return head | {"output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
        case "apply_patch_call":
            return head | {"status": "completed", "output": text}
        case "tool_search_call":
            return head | {"type": "tool_search_output", "execution": "client", "tools": []}
        case "computer_call":
            return head | {"output": {"type": "computer_screenshot", "image_url": f"data:{text}"}}
        case _:
            return head | {"output": text}


@dataclass(frozen=True, slots=True)
class Habits:
    """How a vendor streams."""

    numbered: bool = True
    named: bool = True
    data_first: bool = False
    """The data line before the event line."""
    final_output: bool = True
    """Whether the terminal event holds the output."""
    done: bool = False
    """`[DONE]` at the end."""
    end: str = "completed"
    bare: bool = False
    """No `added` events: items are only heard of when they are done."""


def response(tag: str, status: str, output: list[Item]) -> dict[str, Any]:
    """A response object."""
    return {
        "id": f"resp_{tag}",
        "object": "response",
        "created_at": 1,
        "model": "gpt-test",
        "status": status,
        "output": output,
        "parallel_tool_calls": True,
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7} if output else None,
    }


def stream(*items: Item, tag: str = "one", habits: Habits | None = None) -> bytes:
    """The items as a stream."""
    how = habits or Habits()
    said: list[dict[str, Any]] = [{"type": "response.created", "response": response(tag, "in_progress", [])}]
    for index, item in enumerate(items):
        if not how.bare:
            begun = item | {key: type(item[key])() for key in ("arguments", "input", "content") if key in item}
            said.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        for part in item["content"] if item["type"] == "message" and not how.bare else ():
            at = {"item_id": item["id"], "output_index": index, "content_index": 0}
            said.append({"type": "response.content_part.added", "part": part | {"text": ""}} | at)
            said.append({"type": "response.output_text.delta", "delta": part["text"], "logprobs": []} | at)
        said.append({"type": "response.output_item.done", "output_index": index, "item": item})
    ended = response(tag, how.end, list(items) if how.final_output else [])
    said.append({"type": f"response.{how.end}", "response": ended})
    frames = [_frame(event, number, how) for number, event in enumerate(said)]
    return b"".join(frames) + (b"data: [DONE]\n\n" if how.done else b"")


def _frame(event: dict[str, Any], number: int, how: Habits) -> bytes:
    payload = event | ({"sequence_number": number} if how.numbered else {})
    lines = [f"data: {json.dumps(payload)}\n"]
    if how.named:
        lines.insert(1 if how.data_first else 0, f"event: {event['type']}\n")
    return ("".join(lines) + "\n").encode()


def reply(*items: Item, tag: str = "one", habits: Habits | None = None) -> Reply:
    """The stream as the app's answer."""
    return Reply((stream(*items, tag=tag, habits=habits),))


def whole_reply(*items: Item, tag: str = "one", status: str = "completed") -> Reply:
    """The same as one body."""
    return whole(json.dumps(response(tag, status, list(items))).encode())


def request(*items: Item | str, headers: Headers | None = None, **more: Any) -> Request:
    """A request of these items; a string is the user's word."""
    spoken = [{"role": "user", "content": item} if isinstance(item, str) else item for item in items]
    tools: list[Item] = [{"type": "function", "name": "search", "parameters": {}, "strict": None}]
    body = {"model": "gpt-test", "input": spoken, "tools": tools, "stream": True, "store": False} | more
    encoded = json.dumps(body).encode()
    return Request(PATH, encoded, headers) if headers else Request(PATH, encoded)


def spinning(item: Item, times: int = 2) -> list[Item | str]:
    """A conversation in which this call came so many times, each with the same result."""
    rounds: list[Item | str] = ["Go."]
    for at in range(times):
        call = item | {"call_id": f"call_s{at}", "id": f"it_s{at}"}
        rounds += [call, result(call)]
    return rounds


def output(body: bytes) -> list[Item]:
    """The items that a client has from a stream, which its terminal event must confirm."""
    said = [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]
    done = {event["output_index"]: event["item"] for event in said if event["type"] == "response.output_item.done"}
    assert list(done) == list(range(len(done)))
    items = [done[index] for index in sorted(done)]
    assert said[-1]["response"]["output"] == items
    return items


def texts(items: list[Item]) -> list[str]:
    """What the messages among the items say."""
    return [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
