"""Imitate OpenAI Responses: read requests, write answers as streams and as bodies.

Input: a `Turn`. Output: frames or a body, with every field that the official SDK's types require. The ids of items
contain their origin, so that a history can be checked: `fc_scripted_2_1_r0` was in the second answer at index 1, with a
reasoning item at index 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, openai_error, signature_for, texts

CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
RESULTS = frozenset(CALLS.values())


class OpenAIResponsesVendor:
    """`POST .../responses`."""

    name = "openai-responses"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/responses`, under any prefix."""
        return path.endswith("/responses")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        items = objects(body.get("input"))
        end = len(items)
        while end and str(items[end - 1].get("type")) in RESULTS:
            end -= 1
        results = tuple(texts(item.get("output")) for item in items[end:])
        start = end
        while start and _is_models(items[start - 1]):
            start -= 1
        calls = tuple(_call(item) for item in items[start:end] if str(item.get("type")) in CALLS)
        return (calls if results else ()), results

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events from `response.created` to the terminal one, numbered from 0."""
        for number, event in enumerate(_events(turn)):
            payload = {"type": event["type"], "sequence_number": number} | event
            yield b"event: " + event["type"].encode() + b"\ndata: " + dumps(payload) + b"\n\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as a `response`."""
        return _final_response(turn, [item for item, _ in _items(turn)])

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return OpenAI's error envelope."""
        return openai_error(status, message)

    def error_frame(self, message: str) -> bytes:
        """Return an `error` event."""
        payload = {"type": "error", "sequence_number": 0, "code": "server_error", "message": message, "param": None}
        return b"event: error\ndata: " + dumps(payload) + b"\n\n"

    def malformed_frame(self) -> bytes:
        """Return an event that breaks off in the middle of its JSON."""
        return b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"bro\n\n'


def _is_models(item: Mapping[str, Any]) -> bool:
    """Whether the model made an item, not the client."""
    return str(item.get("type")) not in RESULTS and item.get("role") in (None, "assistant")


def _call(item: Mapping[str, Any]) -> Call:
    text = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    return Call(str(item.get("name")), str(text), str(item.get("call_id")))


def response_id(turn: Turn) -> str:
    """Return the id of an answer."""
    return f"resp_scripted_{turn.request.number}"


def _response(turn: Turn) -> dict[str, Any]:
    body = turn.request.body
    return {
        "id": response_id(turn),
        "object": "response",
        "created_at": turn.created_s,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": None,
        "model": turn.request.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": objects(body.get("tools")),
        "top_p": 1.0,
        "usage": None,
        "metadata": {},
    }


def _final_response(turn: Turn, output: list[dict[str, Any]]) -> dict[str, Any]:
    (answer,) = turn.choices
    response = _response(turn) | {"output": output, "usage": _usage(turn.usage), "status": "completed"}
    if answer.finish:
        response |= {"status": "incomplete", "incomplete_details": {"reason": answer.finish}}
    return response


def _events(turn: Turn) -> Iterator[dict[str, Any]]:
    (answer,) = turn.choices
    yield {"type": "response.created", "response": _response(turn)}
    yield {"type": "response.in_progress", "response": _response(turn)}
    output = []
    for index, (item, growth) in enumerate(_items(turn)):
        yield {"type": "response.output_item.added", "output_index": index, "item": _opening_item(item)}
        for event in growth:
            yield {"type": event["type"], "item_id": item["id"], "output_index": index} | event
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
        output.append(item)
    end = "incomplete" if answer.finish else "completed"
    yield {"type": f"response.{end}", "response": _final_response(turn, output)}


def _opening_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as in the event that opens it."""
    empty: dict[str, Any] = {"message": {"content": []}, "reasoning": {"summary": []}}.get(
        item["type"], {"arguments": ""}
    )
    return item | empty | ({"status": "in_progress"} if "status" in item else {})


def _items(turn: Turn) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each complete item, with the events between its beginning and its end."""
    (answer,) = turn.choices
    number = turn.request.number
    after = f"_{number}_%d_r0" if answer.thinking else f"_{number}_%d"
    index = 0
    if answer.thinking:
        yield _reasoning(turn, answer), _reasoning_events(turn, answer)
        index += 1
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        head = {"id": "msg_scripted" + after % index, "type": "message", "role": "assistant"}
        yield head | {"status": "completed", "content": [part]}, _text_events(turn, answer, part)
        index += 1
    for place, call in enumerate(answer.calls, start=index):
        item = {
            "id": "fc_scripted" + after % place,
            "type": "function_call",
            "status": "completed",
            "call_id": turn.call_id("call_", 0, place - index, call),
            "name": call.name,
            "arguments": call.text,
        }
        yield item, _call_events(turn, call)


def _reasoning(turn: Turn, answer: Answer) -> dict[str, Any]:
    include = turn.request.body.get("include")
    encrypted = isinstance(include, list) and "reasoning.encrypted_content" in include
    return {
        "id": f"rs_scripted_{turn.request.number}_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": answer.thinking}],
    } | ({"encrypted_content": signature_for(response_id(turn), answer.thinking)} if encrypted else {})


def _reasoning_events(turn: Turn, answer: Answer) -> list[dict[str, Any]]:
    kind, at = "response.reasoning_summary_", {"summary_index": 0}
    return [
        {"type": f"{kind}part.added", "part": {"type": "summary_text", "text": ""}} | at,
        *({"type": f"{kind}text.delta", "delta": piece} | at for piece in turn.pieces(answer.thinking)),
        {"type": f"{kind}text.done", "text": answer.thinking} | at,
        {"type": f"{kind}part.done", "part": {"type": "summary_text", "text": answer.thinking}} | at,
    ]


def _text_events(turn: Turn, answer: Answer, part: dict[str, Any]) -> list[dict[str, Any]]:
    at: dict[str, Any] = {"content_index": 0}
    text = at | {"logprobs": []}
    return [
        {"type": "response.content_part.added", "part": part | {"text": ""}} | at,
        *({"type": "response.output_text.delta", "delta": piece} | text for piece in turn.pieces(answer.text)),
        {"type": "response.output_text.done", "text": answer.text} | text,
        {"type": "response.content_part.done", "part": part} | at,
    ]


def _call_events(turn: Turn, call: Call) -> list[dict[str, Any]]:
    kind = "response.function_call_arguments."
    return [
        *({"type": f"{kind}delta", "delta": piece} for piece in turn.pieces(call.text)),
        {"type": f"{kind}done", "arguments": call.text},
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
