"""Writes the streamed answer of Bedrock's Converse: without withheld calls, with a block's text, spliced from several.

Content blocks are numbered without a gap. The client gets one `messageStart`, one `messageStop` and one `metadata`. The
reasoning of a second answer is left out once a block of the first has left, for its signature is valid in a turn of its
own only. What is not changed keeps its bytes.
"""

from collections.abc import Iterable, Mapping, Set

from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.bedrock.answer import OWN_REASONS, event_in, reasons
from callfuse.dialects.edits import index_without
from callfuse.dialects.shapes import index_of, is_one_of, object_of
from callfuse.dialects.usage import Usage
from callfuse.wire import AWS_EVENTS, Payload
from callfuse.wire.aws_events import event
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import Edit, dumps

_BLOCK_EVENTS = frozenset({"contentBlockStart", "contentBlockDelta", "contentBlockStop"})
_INDEX = "contentBlockIndex"
_NO_TOKENS = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


class ConverseWriter:
    """Continues one client's stream. See `base.Writer`."""

    def __init__(self, *, structured: bool, summed: bool) -> None:
        self._structured = structured
        self._spoke = False
        self._next = 0
        self._allotted = 0
        self._numbers: dict[int, int | None] = {}
        self._may_reason = True
        self._usage = Usage("inputTokens", "outputTokens", "totalTokens", summed=summed)
        self._editor = FrameEditor(AWS_EVENTS)

    @property
    def may_continue(self) -> bool:
        """False once text has left that must fit a schema: a second text would break it."""
        return not (self._structured and self._spoke)

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        kind, said = event_in(payload)
        if kind in _BLOCK_EVENTS:
            self._next = max(self._next, index_of(said.get(_INDEX)) + 1)
            self._spoke |= _is_text(said)
        elif kind == "metadata":
            self._usage.see(said.get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """The events without withheld calls. A block's text is written before `messageStop`."""
        return self._thin(frames, {call.index for call in withheld}, blocks.get(0))

    def _thin(self, frames: Iterable[Frame], withheld: Set[int], block: Block | None) -> bytes:
        """As `thin`, with the numbers of the content blocks that are withheld."""
        gone = sorted(withheld)
        pieces: list[bytes] = []
        for frame in frames:
            kind, said = event_in(frame.payload)
            edits: list[Edit] = []
            if kind in _BLOCK_EVENTS:
                index = index_of(said.get(_INDEX))
                left = index_without(index, gone)
                if left is None:
                    continue
                self._next = max(self._next, left + 1)
                if left != index:
                    edits.append(Edit((kind, _INDEX), dumps(left)))
            elif kind == "messageStop" and block:
                pieces.append(self._text(block.text))
                if is_one_of(said.get("stopReason"), OWN_REASONS):
                    edits.append(Edit((kind, "stopReason"), b'"end_turn"'))
            pieces.append(self._editor.edit(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The held events without withheld calls, stop reason and metadata; without text that must fit a schema,
        because another follows."""
        gone = {call.index for call in withheld}
        kept: list[Frame] = []
        for frame in frames:
            kind, said = event_in(frame.payload)
            if kind == "metadata":
                self._usage.see(said.get("usage"))
            elif kind != "messageStop":
                kept.append(frame)
            if self._structured and _is_text(said):
                gone.add(index_of(said.get(_INDEX)))
        out = self._thin(kept, gone, None)
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer. Its reasoning is kept only if no block has left before it."""
        self._numbers = {}
        self._allotted = self._next
        self._may_reason = not (self._next or foreign)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, rewritten for this stream; empty if it must not be seen."""
        kind, said = event_in(payload)
        if kind == "messageStart":
            return b""
        if kind == "metadata":
            total = self._usage.see(said.get("usage") or {})
            return self._editor.edit(frame, [Edit((kind, "usage"), dumps(total))] if total else [])
        if kind not in _BLOCK_EVENTS:
            return frame
        index = index_of(said.get(_INDEX))
        if index not in self._numbers:
            number = self._allotted if self._may_reason or not reasons(said.get("delta")) else None
            self._numbers[index] = number
            self._allotted += number is not None
        number = self._numbers[index]
        if number is None:
            return b""
        return self._editor.edit(frame, [Edit((kind, _INDEX), dumps(number))] if number != index else [])

    def close(self, blocks: Mapping[int, Block], *, called: bool = False) -> bytes:
        """The blocks' texts, the stop reason, and the usage of all answers."""
        pieces = [self._text(block.text) for block in blocks.values()]
        pieces.append(event({"messageStop": {"stopReason": "tool_use" if called else "end_turn"}}))
        usage = _NO_TOKENS | self._usage.total()
        pieces.append(event({"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}))
        return b"".join(pieces)

    def _text(self, text: str) -> bytes:
        """The events of a text block of callfuse's own."""
        at = {_INDEX: self._next}
        self._next += 1
        return event({"contentBlockDelta": at | {"delta": {"text": text}}}) + event({"contentBlockStop": at})


def _is_text(said: Payload) -> bool:
    """Whether an event brings a piece of text."""
    return "text" in object_of(said.get("delta"))
