"""The rules of OpenAI Responses.

Each call is answered exactly once, by an output somewhere behind it. If the vendor stores responses, an item with an id
comes with the reasoning that it was made with, and reasoning with the item that followed it. The ids of the scripted
vendor say where an item was made: `fc_scripted_2_1_r0` was in the second answer at index 1, with reasoning at index 0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.testing.openai_responses import CALLS, RESULTS
from tests.support.rules.signed import read_signature

ROLES = ("user", "assistant", "system", "developer")
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
MAX_ID_LENGTH = 64
SCRIPTED = re.compile(r"\w+?_scripted_(?P<answer>\d+)_(?P<place>\d+)(?:_r(?P<reasoning>\d+))?")

Json = Mapping[str, Any]


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
