"""Writes the streamed answer of Bedrock's Converse: without withheld calls, with a block's text, spliced from several.

Content blocks are numbered without a gap. The client gets one `messageStart`, one `messageStop` and one `metadata`. The
reasoning of a second answer is left out once a block of the first has left, for its signature is valid in a turn of its
own only. What is not changed keeps its bytes.
"""

from typing import Any

from callfuse.dialects.base import Block, Frame
from callfuse.dialects.bedrock.answer import OWN_REASONS, event_in, reasons
from callfuse.dialects.numbered import NumberedPart, NumberedWriter
from callfuse.dialects.shapes import is_one_of, object_of
from callfuse.dialects.usage import Usage
from callfuse.wire import AWS_EVENTS, Payload
from callfuse.wire.aws_events import event
from callfuse.wire.jsontext import Edit, dumps

_BLOCK_EVENTS = frozenset({"contentBlockStart", "contentBlockDelta", "contentBlockStop"})
_INDEX = "contentBlockIndex"
_NO_TOKENS = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


class ConverseWriter(NumberedWriter):
    """Continues one client's stream. See `base.Writer`."""

    reasons_once = True

    def __init__(self, *, structured: bool, summed: bool) -> None:
        usage = Usage("inputTokens", "outputTokens", "totalTokens", summed=summed)
        super().__init__(AWS_EVENTS, usage, structured=structured)

    def _part_of(self, payload: Payload) -> NumberedPart | None:
        kind, said = event_in(payload)
        if kind not in _BLOCK_EVENTS:
            return None
        is_reasoning = reasons(said.get("delta"))
        return NumberedPart(said.get(_INDEX), (kind, _INDEX), is_text=_is_text(said), is_reasoning=is_reasoning)

    def _counts_in(self, payload: Payload) -> Any:
        kind, said = event_in(payload)
        return said.get("usage") if kind == "metadata" else None

    def _is_end(self, payload: Payload) -> bool:
        return event_in(payload)[0] == "messageStop"

    def _closes(self, frame: Frame) -> bool:
        return event_in(frame.payload)[0] in ("messageStop", "metadata")

    def _end_edits(self, payload: Payload, block: Block) -> list[Edit]:
        kind, said = event_in(payload)
        is_own = is_one_of(said.get("stopReason"), OWN_REASONS)
        return [Edit((kind, "stopReason"), b'"end_turn"')] if is_own else []

    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        kind, said = event_in(payload)
        if kind == "messageStart":
            return b""
        total = self._usage.see(said.get("usage") or {}) if kind == "metadata" else None
        return self._editor.edit(frame, [Edit((kind, "usage"), dumps(total))] if total else [])

    def _end(self, block: Block | None, *, called: bool) -> bytes:
        finish = event({"messageStop": {"stopReason": "tool_use" if called else "end_turn"}})
        usage = _NO_TOKENS | self._usage.total()
        return finish + event({"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}})

    def _text(self, text: str) -> bytes:
        at = {_INDEX: self._take_number()}
        return event({"contentBlockDelta": at | {"delta": {"text": text}}}) + event({"contentBlockStop": at})


def _is_text(said: Payload) -> bool:
    """Whether an event brings a piece of text."""
    return "text" in object_of(said.get("delta"))
