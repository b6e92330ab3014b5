"""Answers of the Interactions API: reads their calls, rebuilds the model's turn.

An answer is a list of numbered steps: thoughts, outputs, calls, and what Google's own tools did. Only `function_call`
is for the client. Its arguments come as an object in the step's start, as pieces of JSON, or not at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Event, What, WholeChoice
from callfuse.dialects.edits import encoded, raw_elements, raw_list, raw_object
from callfuse.dialects.interactions.steps import CALL, call_of, is_of
from callfuse.dialects.numbered import NumberedReader
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, blocks_in, piece_in
from callfuse.dialects.shapes import index_of, is_one_of, list_of, object_of, objects_of, plain_text_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

CUTTING: Final = frozenset({"incomplete", "failed", "cancelled", "budget_exceeded", "requires_continuation"})
"""Statuses after which the last call may be incomplete."""
CALLED: Final = "requires_action"
COMPLETED: Final = "completed"
STEP_EVENTS: Final = frozenset({"step.start", "step.delta", "step.stop"})


class InteractionsReader(NumberedReader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ()

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        kind = payload.get("event_type")
        if kind == "step.delta":
            delta = object_of(payload.get("delta"))
            if delta.get("type") == "arguments_delta":
                call = self._by_index.get(index_of(payload.get("index")))
                if call is not None:
                    call.pieces.append(plain_text_of(delta.get("arguments")))
            return NO_EVENTS
        if kind == "step.start":
            return self._start(payload)
        if kind == "step.stop":
            return self._close(payload.get("index"))
        if kind == "interaction.completed":
            return self._end(object_of(payload.get("interaction")).get("status"))
        restarts = kind == "interaction.created" and bool(self.calls)
        return (Event(What.BROKE),) if restarts or kind == "error" else NO_EVENTS

    def _start(self, payload: Payload) -> Sequence[Event]:
        """Return the event for the start of a step, if it is a call for the client."""
        step = payload.get("step")
        if not is_of(step, CALL):
            return NO_EVENTS
        begun = dumps(step["arguments"]).decode() if step.get("arguments") else ""
        return self._open(payload.get("index"), step.get("id"), step.get("name"), begun)

    def _end(self, status: Any) -> Sequence[Event]:
        """Return the events for the end of the answer."""
        if is_one_of(status, CUTTING):
            return (Event(What.CUT, 0, self.cut_call()), Event(What.ENDED))
        return (Event(What.FINISHED), Event(What.ENDED))


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in an event, or in a whole interaction. Thoughts come as summaries only."""
    if payload.get("event_type") == "step.delta":
        place, delta = index_of(payload.get("index")), object_of(payload.get("delta"))
        if delta.get("type") == "text":
            yield from piece_in(TEXT, (place, TEXT), delta.get("text"))
        elif delta.get("type") == "thought_summary":
            yield from piece_in(REASONING, (place, REASONING), object_of(delta.get("content")).get("text"))
    for at, step in enumerate(objects_of(payload.get("steps"))):
        yield from blocks_in(step.get("content"), at, {"text": ("text", TEXT)})
        yield from blocks_in(step.get("summary"), (at, REASONING), {"text": ("text", REASONING)})


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer."""
    steps = payload.get("steps")
    if not isinstance(steps, list):
        return []
    calls = [call_of(step) for step in steps if is_of(step, CALL)]
    return [WholeChoice(0, tuple(calls), cut=is_one_of(payload.get("status"), CUTTING))]


def is_unfinished(payloads: Iterable[Payload]) -> bool:
    """Whether the result of a tool that Google runs is missing."""
    called: set[str] = set()
    answered: set[str] = set()
    for payload in payloads:
        for step in (*objects_of(payload.get("steps")), object_of(payload.get("step"))):
            kind = plain_text_of(step.get("type"))
            if kind.endswith("_call") and kind != CALL:
                called.add(str(step.get("id")))
            answered.add(str(step.get("call_id")))
    return bool(called - answered)


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the id and the steps of a whole answer. Raises CannotReplay if it has no steps."""
    steps = raw_elements(body, ("steps",))
    if not steps:
        raise CannotReplay("steps")
    return _turn(str(payload.get("id") or ""), steps)


def _turn(id_: str, steps: Sequence[bytes]) -> bytes:
    return b'{"id":' + dumps(id_) + b',"steps":' + raw_list(steps) + b"}"


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the id and the steps assembled from the events, without calls that have no name. Raises CannotReplay for a
    step that cannot be rebuilt."""
    steps: dict[int, dict[str, Any]] = {}
    arguments: dict[int, list[str]] = {}
    id_ = ""
    for payload in payloads:
        kind, index = payload.get("event_type"), index_of(payload.get("index"))
        id_ = id_ or str(object_of(payload.get("interaction")).get("id") or "")
        if kind == "step.start":
            steps[index] = dict(payload["step"])
        elif kind == "step.delta":
            delta = payload["delta"]
            if delta.get("type") == "arguments_delta":
                arguments.setdefault(index, []).append(delta.get("arguments") or "")
            else:
                _grow(steps[index], delta)
    for index, pieces in arguments.items():
        steps[index]["arguments"] = raw_object("".join(pieces), "arguments_delta")
    return _turn(id_, [_encode(step) for step in steps.values() if not (is_of(step, CALL) and not step.get("name"))])


def _grow(step: dict[str, Any], delta: Payload) -> None:
    """Apply one delta to its step. Raises CannotReplay for a delta of an unknown kind."""
    kind = delta.get("type")
    if kind == "text":
        content = step["content"] = [*list_of(step.get("content"))] or [{"type": "text"}]
        content[-1] = dict(content[-1])
        grow(content[-1], "text", delta["text"])
    elif kind == "thought_signature":
        step["signature"] = delta.get("signature")
    elif kind == "thought_summary":
        step["summary"] = [*list_of(step.get("summary")), delta.get("content")]
    elif kind == "text_annotation_delta" or (kind == "text_annotation"):
        return  # the sources of a text: output only
    elif kind == step.get("type"):  # the input or the result of one of Google's tools
        step.update({key: value for key, value in delta.items() if key != "type"})
    else:
        raise CannotReplay(f"{kind}")


def _encode(step: dict[str, Any]) -> bytes:
    """Return a step as JSON. Raises CannotReplay for a step that cannot be encoded."""
    if isinstance(step.get("content"), list):
        step = step | {"content": [joined(part) if isinstance(part, dict) else part for part in step["content"]]}
    return encoded(step, f"{step.get('type')}")
