"""Imitate Gemini's Interactions API: read requests, write answers as streams and as bodies.

Input: a `Turn`. Output: frames or a body. `StepMemory` keeps the stored interactions, which chained requests continue.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from callfuse.testing.script import Answer, Call, Usage
from callfuse.testing.turn import EVENT_STREAM, Turn, dumps, objects, signature_for, texts

PATH = re.compile(r"/interactions\Z")
PLACE = "previous_interaction_id"
MODELS = ("model_output", "thought", "function_call")

Json = Mapping[str, Any]


class InteractionsVendor:
    """`POST .../interactions`."""

    name = "gemini-interactions"
    stream_type = EVENT_STREAM

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/interactions`, under any prefix."""
        return PATH.search(path) is not None

    def last_round(self, body: Json) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """Return the calls and results at the end of the conversation; both empty if it ends otherwise."""
        steps = steps_of(body.get("input"))
        end = len(steps)
        while end and steps[end - 1].get("type") == "function_result":
            end -= 1
        results = tuple(_said(step.get("result")) for step in steps[end:])
        start = end
        while start and steps[start - 1].get("type") in MODELS:
            start -= 1
        calls = tuple(
            Call(str(step.get("name")), dumps(step.get("arguments")).decode(), str(step.get("id")))
            for step in steps[start:end]
            if step.get("type") == "function_call"
        )
        return (calls if results else ()), results

    def choice_count(self, body: Json) -> int:
        """Return 1: a request cannot ask for several answers."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """Yield server-sent events from `interaction.created` to `interaction.completed`, then `[DONE]`."""
        (answer,) = turn.choices
        head = _head(turn)
        yield _event("interaction.created", interaction=head | {"status": "in_progress"})
        yield _event("interaction.status_update", interaction_id=head["id"], status="in_progress")
        for index, (opening, deltas) in enumerate(_stream_steps(turn, answer)):
            yield _event("step.start", index=index, step=opening)
            for delta in deltas:
                yield _event("step.delta", index=index, delta=delta)
            yield _event("step.stop", index=index)
        ended = head | {"status": _status(answer), "usage": _usage(turn.usage)}
        yield _event("interaction.completed", interaction=ended)
        yield b"data: [DONE]\n\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """Return the answer as an interaction."""
        (answer,) = turn.choices
        ended = {"status": _status(answer), "usage": _usage(turn.usage), "steps": list(_whole_steps(turn, answer))}
        return _head(turn) | ended

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return the API's error envelope."""
        return {"error": {"code": str(status), "message": message}}

    def error_frame(self, message: str) -> bytes:
        """Return an `error` event."""
        return _event("error", error={"code": "503", "message": message})

    def malformed_frame(self) -> bytes:
        """Return an event that breaks off in the middle of its JSON."""
        return b'event: step.delta\ndata: {"event_type":"step.delta","index":0,"del\n\n'


def steps_of(spoken: Any) -> list[dict[str, Any]]:
    """Return the steps of an input, which may also be a text or a list of contents."""
    steps = objects(spoken)
    if isinstance(spoken, str) or (steps and all(step.get("type") in ("text", "image") for step in steps)):
        return [{"type": "user_input", "content": spoken}]
    return steps


def _said(result: Any) -> str:
    return texts(result) if isinstance(result, str | list) else dumps(result).decode()


def _event(kind: str, **more: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({**more, "event_type": kind}) + b"\n\n"


def interaction_id(turn: Turn) -> str:
    """Return the id of an answer."""
    return f"v1_scripted_{turn.request.number}"


def _head(turn: Turn) -> dict[str, Any]:
    times = {"created": "2026-01-02T03:04:05Z", "updated": "2026-01-02T03:04:05Z"}
    return {"id": interaction_id(turn), "object": "interaction", "model": turn.request.model, **times}


def _status(answer: Answer) -> str:
    return answer.finish or ("requires_action" if answer.calls else "completed")


def _opening(turn: Turn, place: int, call: Call) -> dict[str, Any]:
    return {"type": "function_call", "id": turn.call_id("", 0, place, call), "name": call.name, "arguments": {}}


def _whole_steps(turn: Turn, answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.thinking:
        summary = [{"type": "text", "text": answer.thinking}]
        yield {"type": "thought", "signature": signature_for(interaction_id(turn), answer.thinking), "summary": summary}
    if answer.text:
        yield {"type": "model_output", "content": [{"type": "text", "text": answer.text}]}
    for place, call in enumerate(answer.calls):
        yield _opening(turn, place, call) | {"arguments": orjson.loads(call.text or "{}")}


def _stream_steps(turn: Turn, answer: Answer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each step in its opening form, with the deltas that fill it."""
    if answer.thinking:
        summary = {"type": "thought_summary", "content": {"type": "text", "text": answer.thinking}}
        signed = {"type": "thought_signature", "signature": signature_for(interaction_id(turn), answer.thinking)}
        yield {"type": "thought"}, [summary, signed]
    if answer.text:
        yield {"type": "model_output"}, [{"type": "text", "text": piece} for piece in turn.pieces(answer.text)]
    for place, call in enumerate(answer.calls):
        pieces = [{"type": "arguments_delta", "arguments": piece} for piece in turn.pieces(call.text)]
        yield _opening(turn, place, call), pieces


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "total_tokens": usage.total_tokens,
        "total_input_tokens": usage.input_tokens,
        "total_cached_tokens": usage.cached_tokens,
        "total_output_tokens": usage.output_tokens,
        "total_thought_tokens": 0,
        "total_tool_use_tokens": 0,
    }


class StepMemory:
    """The stored interactions of a vendor: by id, the conversation up to each."""

    def __init__(self) -> None:
        self._upto: dict[str, list[dict[str, Any]]] = {}

    def recall(self, body: Json) -> dict[str, Any] | None:
        """Return the body, preceded by the stored conversation that it continues; None if that is unknown."""
        place = str(body.get(PLACE) or "")
        if not place:
            return dict(body)
        if place not in self._upto:
            return None
        left = {key: value for key, value in body.items() if key != PLACE}
        return left | {"input": self._upto[place] + steps_of(body.get("input"))}

    def keep(self, body: Json, response: Json) -> None:
        """Store the answer to this body, unless it has `store: false`."""
        if body.get("store") is not False:
            known = steps_of((self.recall(body) or {}).get("input"))
            self._upto[str(response.get("id"))] = known + objects(response.get("steps"))
