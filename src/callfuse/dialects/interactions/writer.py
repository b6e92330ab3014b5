"""Writes the streamed answer of the Interactions API: without withheld calls, with a block's text, or spliced.

Steps are numbered without a gap. The client gets one `interaction.created` and one `interaction.completed`, with the
first answer's id; of an answer that loses all its calls the status is `completed`. What is not changed keeps its bytes.
"""

from typing import Any

from callfuse.dialects.base import Block, Frame
from callfuse.dialects.interactions.answer import CALLED, COMPLETED, STEP_EVENTS, InteractionsUsage
from callfuse.dialects.interactions.steps import OUTPUT, THOUGHT, is_of
from callfuse.dialects.numbered import NumberedPart, NumberedWriter
from callfuse.dialects.shapes import is_one_of, object_of
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.jsontext import Edit, dumps

_UPDATE = "interaction.status_update"
_END = "interaction.completed"


class InteractionsWriter(NumberedWriter):
    """Continues one client's stream. See `base.Writer`."""

    def __init__(self, *, structured: bool, summed: bool, model: str) -> None:
        super().__init__(EVENTS, InteractionsUsage(summed=summed), structured=structured)
        self._head: dict[str, Any] = {"id": "", "object": "interaction", "model": model}

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        super().note_sent(payload)
        interaction = object_of(payload.get("interaction"))
        self._head |= {key: interaction[key] for key in ("id", "object", "model") if key in interaction}

    def _part_of(self, payload: Payload) -> NumberedPart | None:
        if not is_one_of(payload.get("event_type"), STEP_EVENTS):
            return None
        step = payload.get("step")
        return NumberedPart(
            payload.get("index"), ("index",), is_text=is_of(step, OUTPUT), is_reasoning=is_of(step, THOUGHT)
        )

    def _counts_in(self, payload: Payload) -> Any:
        return object_of(payload.get("interaction")).get("usage")

    def _is_end(self, payload: Payload) -> bool:
        return payload.get("event_type") == _END

    def _closes(self, frame: Frame) -> bool:
        if frame.payload is None:
            return sse.is_done(frame.raw)
        return frame.payload.get("event_type") in (_END, _UPDATE)

    def _end_edits(self, payload: Payload, block: Block) -> list[Edit]:
        is_own = object_of(payload.get("interaction")).get("status") == CALLED
        return [Edit(("interaction", "status"), dumps(COMPLETED))] if is_own else []

    def _keep(self, frame: bytes, payload: Payload, block: Block | None) -> bytes:
        """Of a blocked answer, an event that says that it has called is left out."""
        says_called = payload.get("event_type") == _UPDATE and payload.get("status") == CALLED
        return b"" if block and says_called else frame

    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        kind = payload.get("event_type")
        if kind == "interaction.created" or (kind == _UPDATE and payload.get("status") == "in_progress"):
            return b""
        if kind == _UPDATE:
            return self._editor.edit(frame, [Edit(("interaction_id",), dumps(self._head["id"]))])
        return self._editor.edit(frame, self._identity_edits(payload.get("interaction"))) if kind == _END else frame

    def _identity_edits(self, interaction: Any) -> list[Edit]:
        """The edits that give the end of the next answer the client's identity, and the usage of all answers."""
        if not isinstance(interaction, dict):
            return []
        edits = [Edit(("interaction", key), dumps(self._head[key])) for key in ("id", "model") if key in interaction]
        total = self._usage.see(interaction.get("usage"))
        return [*edits, Edit(("interaction", "usage"), dumps(total))] if total else edits

    def _end(self, block: Block | None, *, called: bool) -> bytes:
        usage = self._usage.total()
        status = {"status": CALLED if called else COMPLETED}
        interaction = self._head | status | ({"usage": usage} if usage else {})
        return event({"event_type": _END, "interaction": interaction})

    def _text(self, text: str) -> bytes:
        at = {"index": self._take_number()}
        return b"".join(
            (
                event({"event_type": "step.start", "step": {"type": OUTPUT}} | at),
                event({"event_type": "step.delta", "delta": {"type": "text", "text": text}} | at),
                event({"event_type": "step.stop"} | at),
            )
        )


def event(payload: Payload) -> bytes:
    """An event that is named by its type."""
    return sse.event(dumps(payload), str(payload["event_type"]))
