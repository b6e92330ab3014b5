"""Reads and writes steps of the Interactions API: calls for the client, results, and messages of a person."""

from collections.abc import Callable
from typing import Any, Final, TypeGuard

from callfuse.dialects.shapes import is_one_of
from callfuse.model import Result, ToolCall
from callfuse.wire import Payload

CALL: Final = "function_call"
RESULT: Final = "function_result"
USER: Final = "user_input"
OUTPUT: Final = "model_output"
THOUGHT: Final = "thought"
_CONTENTS: Final = frozenset({"text", "image", "audio", "document", "video", "file"})
"""Types of contents. An input may be a list of contents instead of steps."""


def steps_of(spoken: Any) -> list[Any]:
    """Return the steps of an input. An input that is a text or a list of contents counts as one step of the user."""
    if isinstance(spoken, list) and not (spoken and all(map(_is_content, spoken))):
        return spoken
    return [{"type": USER, "content": spoken}]


def _is_content(one: Any) -> bool:
    return isinstance(one, dict) and is_one_of(one.get("type"), _CONTENTS)


def is_of(step: Any, kind: str) -> TypeGuard[Payload]:
    """Whether a step is an object of this type."""
    return isinstance(step, dict) and step.get("type") == kind


def call_of(step: Payload, exact: Callable[[], Any] | None = None) -> ToolCall:
    """Return the call in a step. `exact`: reads the call's arguments with all digits."""
    return ToolCall(str(step.get("id") or ""), str(step.get("name") or ""), step.get("arguments"), exact=exact)


def keyed_result_of(step: Payload) -> tuple[str, Result]:
    """Return the call's id and the result in a step."""
    failed = step.get("is_error")
    return str(step.get("call_id") or ""), Result(step.get("result"), None if failed is None else bool(failed))


def answer_to(call: ToolCall, text: str) -> Payload:
    """Return callfuse's result for a withheld call."""
    return {"type": RESULT, "call_id": call.id, "name": call.name, "result": text, "is_error": True}


def own_step(text: str) -> Payload:
    """Return a step with callfuse's own text."""
    return {"type": OUTPUT, "content": [{"type": "text", "text": text}]}
