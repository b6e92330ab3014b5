"""Writes the streamed answer of Bedrock's Converse: without withheld calls, with a block's text, or spliced.

Content blocks are numbered without a gap. The client gets one `messageStart`, one `messageStop` and one `metadata`. The
reasoning of a second answer is left out once a block of the first has been sent, because its signature is valid only in
its own turn. Bytes that are not changed stay the same.
"""

from typing import Any

from callfuse.dialects.base import Frame
from callfuse.dialects.bedrock.answer import CONTENT, event_in, is_client_use, reasons
from callfuse.dialects.cut_reasoning import CUT
from callfuse.dialects.numbered import BlocksWriter, FinishReasons, NumberedPart
from callfuse.dialects.shapes import object_of
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import AWS_EVENTS, Payload
from callfuse.wire.aws_events import event
from callfuse.wire.jsontext import Edit, dumps

_BLOCK_EVENTS = frozenset({"contentBlockStart", "contentBlockDelta", "contentBlockStop"})
_INDEX = "contentBlockIndex"
_NO_TOKENS = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


class ConverseWriter(BlocksWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    finish = FinishReasons(
        place="messageStop",
        key="stopReason",
        stopped="end_turn",
        called="tool_use",
        cut="max_tokens",
        own=("tool_use", "end_turn"),
    )
    reasons_once = True
    parts = CONTENT
    is_reasoning = staticmethod(reasons)

    def __init__(self, *, structured: bool, summed: bool) -> None:
        usage = TokenUsage("outputTokens", "totalTokens", ("inputTokens", "outputTokens"), summed=summed)
        super().__init__(AWS_EVENTS, usage, structured=structured)

    def _part_of(self, payload: Payload) -> NumberedPart | None:
        kind, said = event_in(payload)
        if kind not in _BLOCK_EVENTS:
            return None
        delta = said.get("delta")
        return NumberedPart(
            said.get(_INDEX),
            (kind, _INDEX),
            is_text=self.is_text(delta),
            is_reasoning=reasons(delta),
            ends=kind == "contentBlockStop",
            is_call="toolUse" in object_of(delta or said.get("start")),
        )

    def _counts_in(self, payload: Payload) -> Any:
        kind, said = event_in(payload)
        return said.get("usage") if kind == "metadata" else None

    def _is_end(self, payload: Payload) -> bool:
        return event_in(payload)[0] == "messageStop"

    def _closes(self, frame: Frame) -> bool:
        return event_in(frame.payload)[0] in ("messageStop", "metadata")

    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        kind, said = event_in(payload)
        if kind == "messageStart":
            return b""
        total = self._usage.see(said.get("usage") or {}) if kind == "metadata" else None
        return self._editor.edit(frame, [Edit((kind, "usage"), dumps(total))] if total else [])

    def _end(self, reason: str) -> bytes:
        finish = event({"messageStop": {"stopReason": reason}})
        usage = _NO_TOKENS | self._usage.total()
        return finish + event({"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}})

    def _sign(self, number: int) -> bytes:
        return event({"contentBlockDelta": {_INDEX: number, "delta": {"reasoningContent": {"signature": CUT}}}})

    def _stop(self, number: int) -> bytes:
        return event({"contentBlockStop": {_INDEX: number}})

    def _text(self, text: str) -> bytes:
        at = {_INDEX: self._take_number()}
        delta = {"delta": self.own_part(text)}
        return event({"contentBlockDelta": at | delta}) + event({"contentBlockStop": at})

    @staticmethod
    def is_call(part: Any) -> bool:
        """Whether a content block is a call for the client."""
        return isinstance(part, dict) and is_client_use(part.get("toolUse"))

    @staticmethod
    def is_text(part: Any) -> bool:
        """Whether a content block, or a delta of one, is text."""
        return isinstance(part, dict) and "text" in part

    @staticmethod
    def own_part(text: str) -> Payload:
        """Return a content block with a text by callfuse."""
        return {"text": text}
