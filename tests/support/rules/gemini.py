"""Gemini's rules for a request.

In: a parsed body. Out: a sentence for each broken rule. Neighbouring contents of one role are one turn. A turn of
function responses follows the turn of the calls, with one response for each call, under its name and id. If thoughts
are signed, the first call of each step since the last user message has its signature.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callfuse.testing.gemini import signed_text, thinks
from callfuse.testing.turn import objects
from tests.support.rules.signed import read_signature

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
DATA = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
                  "codeExecutionResult", "toolCall", "toolResponse"})  # fmt: skip

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RoleTurn:
    """Neighbouring contents of one role, joined: their parts, each with its place."""

    role: str
    place: str
    parts: list[tuple[str, Json]] = field(default_factory=list)

    def of(self, kind: str) -> list[tuple[str, Json, Json]]:
        """The parts of a kind, as (place, part, data)."""
        return [(place, part, part[kind]) for place, part in self.parts if isinstance(part.get(kind), dict)]


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield "contents: a non-empty array is required"
        return
    yield from _check_shapes(contents)
    turns = _role_turns(contents)
    if turns and turns[0].role == "model":
        yield f"{turns[0].place}: the first content must be a user's"
    if turns and turns[-1].role == "model":
        yield f"{turns[-1].place}: the last content must be a user's"
    for before, turn, behind in zip([None, *turns], turns, [*turns[1:], None], strict=False):
        if turn.role == "model":
            yield from _check_calls_answered(turn, behind)
        elif turn.of("functionResponse") and (before is None or not before.of("functionCall")):
            yield f"{turn.place}: function responses must come right behind the function calls"
        yield from _check_signatures_fit(turn)
    if thinks(body):
        yield from _check_signed(contents)


def _check_shapes(contents: Sequence[Any]) -> Iterator[str]:
    """Roles and parts, content by content."""
    for at, content in enumerate(contents):
        place = f"contents[{at}]"
        if not isinstance(content, dict):
            yield f"{place}: an object is required"
            continue
        if content.get("role", "user") not in ("user", "model"):
            yield f"{place}.role: {content['role']!r} is not one of user, model"
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            yield f"{place}.parts: a non-empty array is required"
            continue
        for number, part in enumerate(parts):
            yield from _check_part(f"{place}.parts[{number}]", part, content.get("role", "user"))


def _check_part(place: str, part: Any, role: str) -> Iterator[str]:
    kinds = DATA & part.keys() if isinstance(part, dict) else set()
    if len(kinds) != 1:
        yield f"{place}: exactly one kind of data is required, not {sorted(kinds)}"
        return
    (kind,) = kinds
    if kind == "text":
        if not isinstance(part["text"], str):
            yield f"{place}.text: a string is required"
    elif not isinstance(part[kind], dict):
        yield f"{place}.{kind}: an object is required"
    elif kind == "functionCall":
        yield from _check_call(f"{place}.functionCall", part[kind])
        if role != "model":
            yield f"{place}: a function call belongs to the model"
    elif kind == "functionResponse":
        yield from _check_response(f"{place}.functionResponse", part[kind])
        if role == "model":
            yield f"{place}: a function response belongs to the user"


def _check_call(place: str, call: Json) -> Iterator[str]:
    name = call.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield f"{place}.name: {name!r} does not match {TOOL_NAME.pattern}"
    if not isinstance(call.get("args") or {}, dict):
        yield f"{place}.args: an object is required"
    if unknown := call.keys() - {"name", "args", "id"}:
        yield f"{place}: {', '.join(sorted(unknown))} must not be sent"


def _check_response(place: str, response: Json) -> Iterator[str]:
    if not isinstance(response.get("name"), str) or not response["name"]:
        yield f"{place}.name: a string is required"
    if not isinstance(response.get("response"), dict):
        yield f"{place}.response: an object is required"


def _role_turns(contents: Sequence[Any]) -> list[RoleTurn]:
    turns: list[RoleTurn] = []
    for at, content in enumerate(contents):
        role = str(content.get("role", "user")) if isinstance(content, dict) else ""
        if not turns or turns[-1].role != role:
            turns.append(RoleTurn(role, f"contents[{at}]"))
        parts = content.get("parts") if isinstance(content, dict) else None
        turns[-1].parts.extend(
            (f"contents[{at}].parts[{number}]", part)
            for number, part in enumerate(parts if isinstance(parts, list) else [])
            if isinstance(part, dict)
        )
    return turns


def _check_calls_answered(turn: RoleTurn, behind: RoleTurn | None) -> Iterator[str]:
    """There is one response for each call, with its name and, if both have one, its id."""
    calls = [call for _, _, call in turn.of("functionCall")]
    responses = [response for _, _, response in behind.of("functionResponse")] if behind else []
    if len(calls) != len(responses):
        yield (
            f"{turn.place}: the number of function responses must be that of the function calls, "
            f"not {len(responses)} for {len(calls)}"
        )
        return
    waiting = list(calls)
    for response in responses:
        found = next((call for call in waiting if _answers(response, call)), None)
        if found is None:
            yield f"{turn.place}: the response of {response.get('name')!r} belongs to no call"
        else:
            waiting.remove(found)


def _answers(response: Json, call: Json) -> bool:
    ids = response.get("id"), call.get("id")
    return response.get("name") == call.get("name") and (None in ids or ids[0] == ids[1])


def _check_signatures_fit(turn: RoleTurn) -> Iterator[str]:
    """A scripted signature is on the call that it was made for."""
    for place, part, call in turn.of("functionCall"):
        signed = read_signature(str(part.get("thoughtSignature")))
        if signed is not None and not signed.fits(signed_text(call.get("name"), call.get("args"))):
            yield f"{place}: the thought signature is not that of this call"


def _check_signed(contents: Sequence[Any]) -> Iterator[str]:
    """Since the last user message, the first call of each step has a signature."""
    turns = _role_turns(contents)
    spoken = [at for at, turn in enumerate(turns) if turn.role == "user" and not turn.of("functionResponse")]
    for turn in turns[spoken[-1] if spoken else 0 :]:
        calls = turn.of("functionCall")
        if calls and turn.role == "model" and not calls[0][1].get("thoughtSignature"):
            yield f"{calls[0][0]}: the first function call of a step must carry its thought signature"


def _check_settings(body: Json) -> Iterator[str]:
    config = body.get("toolConfig")
    choice = config.get("functionCallingConfig") if isinstance(config, dict) else None
    if not isinstance(choice, dict):
        return
    mode = choice.get("mode", "MODE_UNSPECIFIED")
    if mode not in MODES:
        yield f"toolConfig.functionCallingConfig.mode: {mode!r} is not one of {', '.join(MODES)}"
    allowed = choice.get("allowedFunctionNames")
    if allowed is None:
        return
    if mode not in ("ANY", "VALIDATED"):
        yield "toolConfig.functionCallingConfig.allowedFunctionNames: only allowed where the mode is ANY or VALIDATED"
    declared = [
        declaration.get("name")
        for tool in objects(body.get("tools"))
        for declaration in objects(tool.get("functionDeclarations"))
    ]
    for name in allowed if isinstance(allowed, list) else ():
        if name not in declared:
            yield f"toolConfig.functionCallingConfig.allowedFunctionNames: {name!r} is not declared"
