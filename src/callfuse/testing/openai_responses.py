"""OpenAI Responses of the scripted vendor: reads and checks requests, writes answers as streams and as bodies.

In: a `Turn`. Out: frames or a body, with every field that the official SDK's types require. The ids of its items
say where they were made, so that rules can check a history: `fc_scripted_2_1_r0` was in the second answer at index 1,
with a reasoning item at index 0.

The main rules: each call is answered exactly once, by an output somewhere behind it. If the vendor stores responses, an
item with an id comes with the reasoning that it was made with, and reasoning with the item that followed it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, openai_error, read_signature, signature_for, texts

CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
RESULTS = frozenset(CALLS.values())
ROLES = ("user", "assistant", "system", "developer")
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
MAX_ID_LENGTH = 64
SCRIPTED = re.compile(r"\w+?_scripted_(?P<answer>\d+)_(?P<place>\d+)(?:_r(?P<reasoning>\d+))?")

Json = Mapping[str, Any]


class OpenAIResponses:
    """`POST .../responses`."""

    name = "openai-responses"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/responses`, under any prefix."""
        return path.endswith("/responses")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """The calls and results at the end of the conversation; both empty if it ends otherwise."""
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
        """Always 1."""
        return 1

    def broken_rules(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The vendor's rules that a request breaks, one sentence each."""
        return broken_rules(body)

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Server-sent events from `response.created` to the terminal one, numbered from 0."""
        for number, event in enumerate(_events(turn)):
            payload = {"type": event["type"], "sequence_number": number} | event
            yield b"event: " + event["type"].encode() + b"\ndata: " + dumps(payload) + b"\n\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """A `response`."""
        return _final_response(turn, [item for item, _ in _items(turn)])

    def error(self, status: int, message: str) -> dict[str, Any]:
        """OpenAI's error envelope."""
        return openai_error(status, message)

    def error_frame(self, message: str) -> bytes:
        """An `error` event."""
        payload = {"type": "error", "sequence_number": 0, "code": "server_error", "message": message, "param": None}
        return b"event: error\ndata: " + dumps(payload) + b"\n\n"

    def malformed_frame(self) -> bytes:
        """An event that breaks off in the middle of its JSON."""
        return b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"bro\n\n'


def _is_models(item: Mapping[str, Any]) -> bool:
    """Whether the model made an item, rather than the client."""
    return str(item.get("type")) not in RESULTS and item.get("role") in (None, "assistant")


def _call(item: Mapping[str, Any]) -> Call:
    text = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    return Call(str(item.get("name")), str(text), str(item.get("call_id")))


def response_id(turn: Turn) -> str:
    """The id of an answer."""
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
    """An item in the event that begins it."""
    empty: dict[str, Any] = {"message": {"content": []}, "reasoning": {"summary": []}}.get(
        item["type"], {"arguments": ""}
    )
    return item | empty | ({"status": "in_progress"} if "status" in item else {})


def _items(turn: Turn) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each complete item, with the events between its begin and its end."""
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


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    spoken = body.get("input")
    if isinstance(spoken, str) and spoken:
        return
    chained = bool(body.get("previous_response_id") or body.get("conversation"))
    if not isinstance(spoken, list) or not (spoken or chained):
        yield "input: a text or a non-empty array is required"
        return
    for at, item in enumerate(spoken):
        place = f"input[{at}]"
        if not isinstance(item, dict):
            yield f"{place}: an object is required"
        else:
            yield from _check_item(place, item, stored=body.get("store") is not False)
    items = [item if isinstance(item, dict) else {} for item in spoken]
    yield from _check_calls_answered(items, chained=chained)
    if body.get("store") is not False:
        yield from _check_reasoning_complete(items)


def _check_calls_answered(items: Sequence[Json], *, chained: bool) -> Iterator[str]:
    """Calls and outputs match one to one; in a chain an output may answer an earlier call."""
    waiting: list[tuple[str, str]] = []
    answered: list[tuple[str, str]] = []
    for at, item in enumerate(items):
        kind, called = str(item.get("type")), str(item.get("call_id"))
        if kind in CALLS:
            waiting.append((CALLS[kind], called))
        elif kind not in RESULTS:
            continue
        elif (kind, called) in waiting:
            waiting.remove((kind, called))
            answered.append((kind, called))
        elif (kind, called) in answered:
            yield f"input[{at}].call_id: {called!r} is answered twice"
        elif not chained:
            yield f"input[{at}]: No tool call found for function call output with call_id {called}."
    for _, called in waiting:
        yield f"input: No tool output found for function call {called}."


def _check_reasoning_complete(items: Sequence[Json]) -> Iterator[str]:
    """For items of scripted answers: reasoning comes with the item behind it, and later items with their reasoning."""
    known = [SCRIPTED.fullmatch(str(item.get("id"))) for item in items]
    present = {(match["answer"], match["place"]) for match in known if match}
    for at, match in enumerate(known):
        if match is None:
            continue
        answer, place = match["answer"], match["place"]
        following = (answer, str(int(place) + 1))
        if items[at].get("type") == "reasoning" and following not in present:
            item = match.group()
            yield f"input[{at}]: Item {item!r} of type 'reasoning' was provided without its required following item."
        if match["reasoning"] is not None and (answer, match["reasoning"]) not in present:
            kind, needed = items[at].get("type"), f"rs_scripted_{answer}_{match['reasoning']}"
            yield (
                f"input[{at}]: Item {match.group()!r} of type {kind!r} was provided without its required "
                f"'reasoning' item: {needed!r}."
            )


def _check_item(place: str, item: Json, *, stored: bool) -> Iterator[str]:
    kind = str(item.get("type", "message"))
    id_ = item.get("id")
    if kind == "item_reference":
        if not stored or not SCRIPTED.fullmatch(str(id_)):
            yield f"{place}: Item with id {id_!r} not found."
        return
    if id_ is not None:
        yield from _check_id(place, kind, id_, stored=stored)
    if kind == "message":
        yield from _check_message(place, item)
    elif kind == "reasoning":
        yield from _check_reasoning(place, item, stored=stored)
    elif kind in CALLS:
        yield from _check_call(place, kind, item)
    elif kind in RESULTS:
        if not isinstance(item.get("call_id"), str):
            yield f"{place}.call_id: a string is required"
        if kind in ("function_call_output", "custom_tool_call_output"):
            yield from _check_content(
                f"{place}.output", item.get("output"), ("input_text", "input_image", "input_file")
            )


def _check_id(place: str, kind: str, id_: Any, *, stored: bool) -> Iterator[str]:
    if not isinstance(id_, str) or not 1 <= len(id_) <= MAX_ID_LENGTH:
        yield f"{place}.id: a string of 1 to {MAX_ID_LENGTH} characters is required"
    elif not id_.startswith(PREFIXES.get(kind, "")):
        yield f"{place}.id: {id_!r} does not begin with {PREFIXES[kind]!r}"
    elif stored and id_.startswith("msg_callfuse_"):
        yield f"{place}: Item with id {id_!r} not found."


def _check_message(place: str, item: Json) -> Iterator[str]:
    role = item.get("role")
    if role not in ROLES:
        yield f"{place}.role: {role!r} is not one of {', '.join(ROLES)}"
        return
    parts = ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    yield from _check_content(f"{place}.content", item.get("content"), parts)


def _check_content(place: str, content: Any, kinds: Sequence[str]) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{place}: a string or an array is required"
        return
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds:
            yield f"{place}[{at}].type: {kind!r} is not one of {', '.join(kinds)}"
        elif kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            yield f"{place}[{at}].text: a string is required"


def _check_reasoning(place: str, item: Json, *, stored: bool) -> Iterator[str]:
    summary = item.get("summary")
    if not isinstance(summary, list):
        yield f"{place}.summary: an array is required"
        return
    encrypted = item.get("encrypted_content")
    if not encrypted:
        if not stored and not item.get("content"):
            yield f"{place}: Item with id {item.get('id')!r} not found. Items are not persisted when `store` is false."
        return
    signed = read_signature(str(encrypted))
    text = "".join(str(part.get("text")) for part in summary if isinstance(part, dict))
    if signed is not None and not signed.fits(text):
        yield f"{place}.encrypted_content: does not belong to this reasoning"


def _check_call(place: str, kind: str, item: Json) -> Iterator[str]:
    if not isinstance(item.get("call_id"), str) or not 1 <= len(item["call_id"]) <= MAX_ID_LENGTH:
        yield f"{place}.call_id: a string of 1 to {MAX_ID_LENGTH} characters is required"
    text = {"function_call": "arguments", "custom_tool_call": "input"}.get(kind)
    if text is not None:
        for key in ("name", text):
            if not isinstance(item.get(key), str):
                yield f"{place}.{key}: a string is required"


def _check_settings(body: Json) -> Iterator[str]:
    if "model" in body and not (isinstance(body["model"], str) and body["model"]):
        yield "model: a non-empty string is required"
    if body.get("previous_response_id") and body.get("conversation"):
        yield "previous_response_id: not allowed together with 'conversation'"
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        yield "tools: an array is required"
        return
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        yield f"tool_choice: {choice!r} is not one of none, auto, required"
    if choice == "required" and not tools:
        yield "tool_choice: 'required' is only allowed where 'tools' are given"
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        names = [tool.get("name") for tool in tools or () if isinstance(tool, dict)]
        if choice.get("name") not in names:
            yield f"tool_choice: the tool {choice.get('name')!r} is not in 'tools'"
