"""Answers in which the vendor runs a tool of its own, for the dialects that have such tools.

In: an answer of the neutral model, and the place of a text in it. Out: the same answer with a call of the vendor's tool
in place of that text, and the tool's result in place of the next one, or that text (the tool still waits).
"""

import json
from typing import Any

from tests.support.kits import KITS, DialectKit
from tests.support.kits.bedrock import BedrockKit, event
from tests.support.kits.gemini import GeminiArrayKit
from tests.support.model import Answer, Frame

ITEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anthropic": (
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    ),
    "openai-responses": (
        {"type": "program", "id": "prog_1", "call_id": "run_1", "code": "1 + 1"},
        {"type": "program_output", "id": "out_1", "call_id": "run_1", "output": "2"},
    ),
    "gemini": (
        {"toolCall": {"id": "tool_1", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}},
        {"toolResponse": {"id": "tool_1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
    ),
    "bedrock-converse": (
        {"toolUse": {"toolUseId": "srv_1", "name": "nova_grounding", "type": "server_tool_use", "input": {}}},
        {"toolResult": {"toolUseId": "srv_1", "type": "nova_grounding_result", "content": []}},
    ),
    "gemini-interactions": (
        {"type": "google_search_call", "id": "search_1", "arguments": {"queries": ["zebra"]}},
        {"type": "google_search_result", "call_id": "search_1", "result": []},
    ),
}
"""By dialect, the call of a vendor's tool and its result, as they stand in whole answers."""

HOSTING: tuple[DialectKit, ...] = tuple(kit for kit in KITS if kit.name in ITEMS)


def hosting_frames(kit: DialectKit, answer: Answer, at: int, *, done: bool) -> tuple[Frame, ...]:
    """The stream of the answer. `at`: the place of the text, not the first item; `done`: the tool's result has come."""
    frames: list[Frame] = []
    items = ITEMS[kit.name][: 1 + done]
    for frame in kit.frames(answer):
        place = -1 if frame.item is None else frame.item - at
        if not 0 <= place < len(items):
            frames.append(frame)
        elif not (frames and (frames[-1].item, frames[-1].choice) == (frame.item, frame.choice)):
            raw = _streamed(kit, items[place], at + place, frame.choice or 0)
            frames.append(Frame(raw, "piece", frame.choice, frame.item))
    return tuple(frames)


def hosting_whole(kit: DialectKit, answer: Answer, at: int, *, done: bool) -> bytes:
    """The answer as one body."""
    body = json.loads(kit.whole(answer))
    for listed in _lists(kit, body):
        listed[at : at + 1 + done] = ITEMS[kit.name][: 1 + done]
    return json.dumps(body, ensure_ascii=False).encode()


def _lists(kit: DialectKit, body: Any) -> list[list[Any]]:
    """The items of each choice of a body."""
    match kit.name:
        case "anthropic":
            return [body["content"]]
        case "openai-responses":
            return [body["output"]]
        case "gemini":
            return [candidate["content"]["parts"] for candidate in body["candidates"]]
        case "bedrock-converse":
            return [body["output"]["message"]["content"]]
        case _:
            return [body["steps"]]


def _streamed(kit: DialectKit, item: dict[str, Any], at: int, choice: int) -> bytes:
    """An item that begins and ends at its place in a stream."""
    if isinstance(kit, BedrockKit):
        start = {kind: {key: value for key, value in part.items() if key != "input"} for kind, part in item.items()}
        begun = event({"contentBlockStart": {"contentBlockIndex": at, "start": start}})
        return begun + event({"contentBlockStop": {"contentBlockIndex": at}})
    events: list[dict[str, Any]]
    match kit.name:
        case "anthropic":
            events = [
                {"type": "content_block_start", "index": at, "content_block": item},
                {"type": "content_block_stop", "index": at},
            ]
        case "openai-responses":
            events = [
                {"type": f"response.output_item.{what}", "sequence_number": 0, "output_index": at, "item": item}
                for what in ("added", "done")
            ]
        case "gemini":
            chunk: dict[str, Any] = {"candidates": [{"content": {"role": "model", "parts": [item]}, "index": choice}]}
            if isinstance(kit, GeminiArrayKit):
                return b"," + json.dumps(chunk).encode()
            events = [chunk]
        case _:
            events = [
                {"event_type": "step.start", "index": at, "step": item},
                {"event_type": "step.stop", "index": at},
            ]
    return b"".join(_sse(one) for one in events)


def _sse(said: dict[str, Any]) -> bytes:
    name = said.get("type") or said.get("event_type")
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(said)}\n\n".encode()
