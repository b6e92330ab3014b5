"""Reading Responses streams a second way: what a client has at the end, and the rules of a valid stream.

In: bodies. Out: views and faults. A client may read the items as they end, or the terminal event's output: both must
say the same.
"""

import json
from collections.abc import Iterable
from typing import Any

from tests.support.model import SeenCall, View, canonical
from tests.support.wire import events

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
GROWTH = {
    "message": ("content_part", "output_text", "refusal"),
    "reasoning": ("reasoning_summary_part", "reasoning_summary_text"),
    "function_call": ("function_call_arguments",),
}
FIELDS = {
    "response.output_item.added": ("output_index", "item"),
    "response.output_item.done": ("output_index", "item"),
    "response.content_part.added": ("item_id", "output_index", "content_index", "part"),
    "response.content_part.done": ("item_id", "output_index", "content_index", "part"),
    "response.output_text.delta": ("item_id", "output_index", "content_index", "delta", "logprobs"),
    "response.output_text.done": ("item_id", "output_index", "content_index", "text", "logprobs"),
    "response.refusal.delta": ("item_id", "output_index", "content_index", "delta"),
    "response.refusal.done": ("item_id", "output_index", "content_index", "refusal"),
}
ITEM_FIELDS = {
    "message": ("id", "role", "status", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "reasoning": ("id", "summary"),
}


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def read_stream(body: bytes) -> View:
    """A stream put together from the ends of its items."""
    items: dict[int, dict[str, Any]] = {}
    finish = None
    for part in payloads(body):
        if part["type"] == "response.output_item.done":
            items[part["output_index"]] = part["item"]
        elif part["type"] in TERMINAL:
            finish = part["response"]["status"]
    return _view([items[at] for at in sorted(items)], finish)


def read_whole(body: dict[str, Any]) -> View:
    """A whole response."""
    return _view(body["output"], body["status"])


def _view(items: list[dict[str, Any]], finish: str | None) -> View:
    said = [part for item in items if item["type"] == "message" for part in item["content"]]
    thought = [part for item in items if item["type"] == "reasoning" for part in item["summary"]]
    calls = [item for item in items if item["type"] == "function_call"]
    return View(
        "".join(part.get("text") or part.get("refusal") or "" for part in said),
        "".join(part["text"] for part in thought),
        tuple(SeenCall(call["call_id"], call["name"], canonical(call["arguments"])) for call in calls),
        finish,
    )


def check(body: bytes) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    parts = payloads(body)
    named = [(event.name, json.loads(event.data)["type"]) for event in events(body)]
    faults = [f"{name} is called {kind}" for name, kind in named if name not in ("", kind)]
    return [*faults, *_outline(parts), *_fields(parts), *_items(parts), *_ends(parts)]


def _outline(parts: list[dict[str, Any]]) -> Iterable[str]:
    kinds = [part["type"] for part in parts]
    if kinds[:2] != ["response.created", "response.in_progress"]:
        yield f"begins with {kinds[:2]}"
    if [at for at, kind in enumerate(kinds) if kind in TERMINAL] != [len(kinds) - 1]:
        yield "not one terminal event at the end"
    if [part.get("sequence_number") for part in parts] != list(range(len(parts))):
        yield f"sequence numbers {[part.get('sequence_number') for part in parts]}"
    for key in ("id", "created_at", "model"):
        if len({part["response"].get(key) for part in parts if "response" in part}) != 1:
            yield f"the response's {key} changes within the stream"


def _fields(parts: list[dict[str, Any]]) -> Iterable[str]:
    for part in parts:
        if missing := [key for key in FIELDS.get(part["type"], ()) if key not in part]:
            yield f"{part['type']} lacks {missing}"
        item = part.get("item") or {"type": ""}
        if missing := [key for key in ITEM_FIELDS.get(item["type"], ()) if key not in item]:
            yield f"a {item['type']} item lacks {missing}"


def _items(parts: list[dict[str, Any]]) -> Iterable[str]:
    current: dict[str, Any] | None = None
    opened = 0
    for part in parts:
        kind = part["type"].removeprefix("response.").rpartition(".")[0]
        if part["type"] == "response.output_item.added":
            if current is not None or part["output_index"] != opened:
                yield f"item {part['output_index']} opens out of turn (the next is {opened})"
            current, opened = part, opened + 1
        elif "output_index" in part:
            if current is None or part["output_index"] != current["output_index"]:
                yield f"{part['type']} for item {part['output_index']}, which is not open"
            elif part["type"] == "response.output_item.done":
                if part["item"].get("id") != current["item"].get("id"):
                    yield "an item's id changes"
                current = None
            elif kind not in GROWTH[current["item"]["type"]] or part["item_id"] != current["item"]["id"]:
                yield f"{part['type']} in a {current['item']['type']} item"


def _ends(parts: list[dict[str, Any]]) -> Iterable[str]:
    done = [part["item"] for part in parts if part["type"] == "response.output_item.done"]
    ids = [item.get("id") for item in done]
    if len(set(ids)) != len(ids):
        yield f"an id stands twice: {ids}"
    if parts and parts[-1]["type"] in TERMINAL and parts[-1]["response"]["output"] != done:
        yield "the terminal event's output is not what was streamed"
