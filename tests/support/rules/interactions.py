"""The rules of Gemini's Interactions API: each function call is answered exactly once, by a result in front of the
model's next steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.testing.interactions import MODELS, steps_of
from callfuse.testing.turn import texts
from tests.support.rules.signed import read_signature

CHOICES = ("auto", "any", "none", "validated")
STEPS = (*MODELS, "user_input", "function_result")

Json = Mapping[str, Any]


def broken_rules(body: Json) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    if not (isinstance(body.get("model"), str) and body["model"]) and not body.get("agent"):
        yield "model: a non-empty string is required"
    spoken = body.get("input")
    if not isinstance(spoken, str | list) or not spoken:
        yield "input: a text or a non-empty array is required"
        return
    config = body.get("generation_config")
    choice = config.get("tool_choice") if isinstance(config, dict) else None
    mode = (choice.get("allowed_tools") or {}).get("mode", "auto") if isinstance(choice, dict) else choice
    if mode is not None and mode not in CHOICES:
        yield f"generation_config.tool_choice: {mode!r} is not one of {', '.join(CHOICES)}"
    steps = steps_of(spoken)
    for at, step in enumerate(steps):
        if step.get("type") not in STEPS:
            yield f"input[{at}].type: {step.get('type')!r} is not one of {', '.join(STEPS)}"
        if step.get("type") == "thought" and not _fits(step):
            yield f"input[{at}]: the thought does not fit its signature"
    yield from _check_answered(steps)


def _fits(step: Json) -> bool:
    signed = read_signature(str(step.get("signature")))
    return signed is None or signed.fits(texts(step.get("summary")))


def _check_answered(steps: Sequence[Json]) -> Iterator[str]:
    """Each call has one result, in front of the next step of the user's or the model's."""
    waiting: list[str] = []
    answering = False
    for at, step in enumerate([*steps, {"type": "user_input"}]):
        kind = step.get("type")
        if kind == "function_result":
            answering = True
            if (id_ := str(step.get("call_id"))) in waiting:
                waiting.remove(id_)
            else:
                yield f"input[{at}]: the result of a call that nobody made: {id_}"
        elif kind == "user_input" or answering:
            if waiting:
                yield f"input[{at}]: function calls without a result: {', '.join(waiting)}"
            waiting, answering = [], False
        if kind == "function_call":
            waiting.append(str(step.get("id")))
