"""Writes the streamed answer of the Interactions API: without withheld calls, with a block's text, or spliced.

Steps are numbered without a gap. The client gets one `interaction.created` and one `interaction.completed`, with the
first answer's id. An answer that loses all its calls has the status `completed`. Unchanged bytes stay the same.
"""

from typing import Any

from callfuse.dialects.base import Block, Frame
from callfuse.dialects.cut_reasoning import CUT
from callfuse.dialects.interactions.answer import CALLED, COMPLETED, STEP_EVENTS
from callfuse.dialects.interactions.steps import CALL, OUTPUT, THOUGHT, is_of, own_step
from callfuse.dialects.numbered import BlocksWriter, FinishReasons, NumberedPart
from callfuse.dialects.shapes import is_one_of, object_of
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.jsontext import Edit, dumps

_UPDATE = "interaction.status_update"
_END = "interaction.completed"
_OUTPUTS = ".*(output|thought|tool_use)"
_COUNTS = ("total_input_tokens", "total_output_tokens", "total_thought_tokens", "total_tool_use_tokens")
"""The counts that add up to the total."""


class InteractionsWriter(BlocksWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    finish = FinishReasons(
        place="interaction", key="status", stopped=COMPLETED, called=CALLED, cut="incomplete", own=(CALLED,)
    )
    parts = ("steps",)
    identity = ("id", "model")
    own_part = staticmethod(own_step)

    def __init__(self, *, structured: bool, summed: bool, model: str) -> None:
        usage = TokenUsage(_OUTPUTS, "total_tokens", _COUNTS, summed=summed)
        super().__init__(EVENTS, usage, structured=structured)
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
            payload.get("index"),
            ("index",),
            is_text=self.is_text(step),
            is_reasoning=self.is_reasoning(step),
            ends=payload.get("event_type") == "step.stop",
            is_call=is_of(step, CALL) or object_of(payload.get("delta")).get("type") == "arguments_delta",
        )

    def _counts_in(self, payload: Payload) -> Any:
        return object_of(payload.get("interaction")).get("usage")

    def _is_end(self, payload: Payload) -> bool:
        return payload.get("event_type") == _END

    def _closes(self, frame: Frame) -> bool:
        if frame.payload is None:
            return sse.is_done(frame.raw)
        return frame.payload.get("event_type") in (_END, _UPDATE)

    def _keep(self, frame: bytes, payload: Payload, block: Block | None) -> bytes:
        """Return a held event; empty if the event says that a blocked answer has calls."""
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
        """Return the edits that give the end of the next answer the client's ids and the usage of all answers."""
        if not isinstance(interaction, dict):
            return []
        edits = [Edit(("interaction", key), dumps(self._head[key])) for key in ("id", "model") if key in interaction]
        total = self._usage.see(interaction.get("usage"))
        return [*edits, Edit(("interaction", "usage"), dumps(total))] if total else edits

    def _end(self, reason: str) -> bytes:
        usage = self._usage.total()
        interaction = self._head | {"status": reason} | ({"usage": usage} if usage else {})
        return event({"event_type": _END, "interaction": interaction})

    def _sign(self, number: int) -> bytes:
        delta = {"type": "thought_signature", "signature": CUT}
        return event({"event_type": "step.delta", "index": number, "delta": delta})

    def _stop(self, number: int) -> bytes:
        return event({"event_type": "step.stop", "index": number})

    def _text(self, text: str) -> bytes:
        at = {"index": self._take_number()}
        return b"".join(
            (
                event({"event_type": "step.start", "step": {"type": OUTPUT}} | at),
                event({"event_type": "step.delta", "delta": {"type": "text", "text": text}} | at),
                event({"event_type": "step.stop"} | at),
            )
        )

    @staticmethod
    def is_call(part: Any) -> bool:
        """Whether a step is a call for the client."""
        return is_of(part, CALL)

    @staticmethod
    def is_text(part: Any) -> bool:
        """Whether a step is an output, which may have to fit a schema."""
        return is_of(part, OUTPUT)

    @staticmethod
    def is_reasoning(part: Any) -> bool:
        """Whether a step is a thought."""
        return is_of(part, THOUGHT)


def event(payload: Payload) -> bytes:
    """Write an event that is named by its type."""
    return sse.event(dumps(payload), str(payload["event_type"]))
