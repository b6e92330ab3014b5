"""Reading Cohere's answers a second way: events put together to a message, and the rules of a valid stream.

In: bodies, or the SDK's events as objects. Out: messages, views, faults.
"""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.model import SeenCall, View, canonical
from tests.support.wire import events


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def merged(parts: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The message that the events come to, and its finish reason; there is no accumulator in the SDK."""
    blocks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    plan, finish = "", None
    for part in parts:
        message = (part.get("delta") or {}).get("message") or {}
        match part["type"]:
            case "content-start":
                assert part["index"] == len(blocks)
                blocks.append(dict(message["content"]))
            case "content-delta":
                for key, value in message["content"].items():
                    blocks[part["index"]][key] = blocks[part["index"]].get(key, "") + value
            case "tool-plan-delta":
                plan += message["tool_plan"]
            case "tool-call-start":
                assert part["index"] == len(calls)
                call = message["tool_calls"]
                calls.append({**call, "function": dict(call["function"])})
            case "tool-call-delta":
                calls[part["index"]]["function"]["arguments"] += message["tool_calls"]["function"]["arguments"]
            case "message-end":
                finish = part["delta"]["finish_reason"]
    whole = {"role": "assistant", "tool_plan": plan, "content": blocks, "tool_calls": calls}
    return {key: value for key, value in whole.items() if value}, finish


def read_message(message: dict[str, Any], finish: str | None) -> View:
    """What a client has of it."""
    content = message.get("content") or []
    blocks = [{"text": content}] if isinstance(content, str) else content
    calls = tuple(
        SeenCall(call["id"], call["function"]["name"], canonical(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    return View(
        (message.get("tool_plan") or "") + "".join(block.get("text") or "" for block in blocks),
        "".join(block.get("thinking") or "" for block in blocks),
        calls,
        finish,
    )


def check(body: bytes) -> list[str]:
    """What is wrong with a stream."""
    listed = events(body)
    if not listed or listed[-1].data != "[DONE]":
        return ["no [DONE] at the end"]
    parts = payloads(body)
    kinds = [part["type"] for part in parts]
    found = [f"{event.name} is {part['type']}" for event, part in zip(listed, parts, strict=False)
             if event.name != part["type"]]  # fmt: skip
    if kinds.count("message-start") != 1 or kinds[0] != "message-start":
        found.append("the message does not start once, at first")
    if kinds.count("message-end") != 1 or kinds[-1] != "message-end":
        found.append("the message does not end once, at last")
    for kind in ("content", "tool-call"):
        found += _spans([part for part in parts if part["type"].startswith(f"{kind}-")], kind)
    called = "tool-call-start" in kinds
    if parts[-1]["delta"].get("finish_reason") != ("TOOL_CALL" if called else "COMPLETE"):
        found.append(f"finish reason {parts[-1]['delta'].get('finish_reason')}")
    return found


def _spans(parts: list[dict[str, Any]], kind: str) -> list[str]:
    """Each block or call starts, grows and ends, one after the other, counted from 0."""
    found = []
    indexes = [part["index"] for part in parts if part["type"] == f"{kind}-start"]
    if indexes != list(range(len(indexes))):
        found.append(f"{kind}s are counted {indexes}")
    for index in indexes:
        own = [part["type"] for part in parts if part["index"] == index]
        if own[0] != f"{kind}-start" or own[-1] != f"{kind}-end" or own.count(f"{kind}-end") != 1:
            found.append(f"{kind} {index}: {own}")
    return found
