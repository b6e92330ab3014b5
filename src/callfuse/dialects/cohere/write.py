"""Continue a client's stream of Cohere events after calls have been withheld.

Calls, content blocks and citations are each counted without a gap; a second answer's content goes on counting, and its
plan begins after a blank line where the first had one. There is one `message-start` and one `message-end`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.cohere.read import delta_of, message_of
from callfuse.dialects.cohere.usage import NestedUsage
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import Edit, apply, dumps

OWN_REASONS: Final = frozenset({"TOOL_CALL", "COMPLETE"})
"""Finish reasons that a block replaces; `MAX_TOKENS` and the like stay."""
DONE: Final = b"[DONE]"
THINKING: Final = "thinking"
"""The type of a content block that is the model's reasoning."""
_CALL_EVENTS: Final = frozenset({"tool-call-start", "tool-call-delta", "tool-call-end"})
_CONTENT_EVENTS: Final = frozenset({"content-start", "content-delta", "content-end"})
_CITATION_EVENTS: Final = frozenset({"citation-start", "citation-end"})


def finish_of(block: Block) -> str:
    """The finish reason of a blocked answer."""
    return block.finish.upper() if block.finish else "COMPLETE"


class ChatWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, *, structured: bool, summed: bool) -> None:
        self._structured = structured
        self._counts = {"content-start": 0, "citation-start": 0}
        self._next = dict(self._counts)
        self._numbers: dict[tuple[str, int], int | None] = {}
        self._planned = self._break_due = False
        self._foreign = False
        self._usage = NestedUsage(summed=summed)

    @property
    def may_continue(self) -> bool:
        """A text that must fit a schema takes no second one."""
        return not (self._structured and self._counts["content-start"])

    def sent(self, payload: Payload) -> None:
        """Note what an event has given to the client."""
        kind = str(payload.get("type"))
        if kind in self._counts:
            self._counts[kind] = max(self._counts[kind], payload.get("index", 0) + 1)
        elif kind == "tool-plan-delta":
            self._planned |= bool(message_of(payload).get("tool_plan"))
        elif kind == "message-end":
            self._usage.see(delta_of(payload).get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Events without the withheld calls; the text of a block stands before `message-end`."""
        gone = {call.index for call in withheld}
        pieces: list[bytes] = []
        for frame in frames:
            payload = frame.payload or {}
            kind = payload.get("type")
            edits: list[Edit] = []
            if kind in _CALL_EVENTS:
                index = payload.get("index", 0)
                if index in gone:
                    continue
                if shift := sum(other < index for other in gone):
                    edits.append(Edit(("index",), dumps(index - shift)))
            elif kind == "message-end" and (block := blocks.get(0)):
                pieces.append(self._text(block.text))
                if delta_of(payload).get("finish_reason") in OWN_REASONS:
                    edits.append(Edit(("delta", "finish_reason"), dumps(finish_of(block))))
            self.sent(payload)
            pieces.append(_edited(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """What of the held events is no call; the finish and the end are kept back."""
        kept: list[Frame] = []
        for frame in frames:
            if frame.payload is None:
                kept += [] if is_done(frame.raw) else [frame]
            elif frame.payload.get("type") == "message-end":
                self._usage.see(delta_of(frame.payload).get("usage"))
            else:
                kept.append(frame)
        out = self.thin(kept, withheld, {})
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet."""
        self._foreign = foreign
        self._next = dict(self._counts)
        self._numbers = {}
        self._break_due = self._planned

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, as one of this stream."""
        if payload is None:
            return frame
        kind = payload.get("type")
        if kind == "message-start":
            return b""
        if kind == "message-end":
            total = self._usage.see(delta_of(payload).get("usage") or {})
            return _edited(frame, [Edit(("delta", "usage"), dumps(total))] if total else [])
        if kind == "tool-plan-delta" and self._break_due and (plan := message_of(payload).get("tool_plan")):
            self._break_due = False
            return _edited(frame, [Edit(("delta", "message", "tool_plan"), dumps(f"\n\n{plan}"))])
        if kind in _CONTENT_EVENTS:
            content: Any = message_of(payload).get("content")
            gone = self._foreign and isinstance(content, dict) and content.get("type") == THINKING
            return self._counted(frame, "content-start", payload.get("index", 0), [], gone=gone)
        return self._cited(frame, payload) if kind in _CITATION_EVENTS else frame

    def _cited(self, frame: bytes, payload: Payload) -> bytes:
        """A citation of the next answer, which says of which content it is."""
        citation: Any = message_of(payload).get("citations")
        edits: list[Edit] = []
        gone = False
        if isinstance(citation, dict) and "content_index" in citation:
            about = citation["content_index"] or 0
            number = self._number("content-start", about)
            gone = number is None
            if number != about:
                edits.append(Edit(("delta", "message", "citations", "content_index"), dumps(number)))
        return self._counted(frame, "citation-start", payload.get("index", 0), edits, gone=gone)

    def _counted(self, frame: bytes, kind: str, index: int, edits: list[Edit], *, gone: bool) -> bytes:
        """An event whose number counts on from the answer before; nothing where what it is of is left out."""
        number = self._number(kind, index, gone=gone)
        if number is None:
            return b""
        return _edited(frame, [*edits, Edit(("index",), dumps(number))] if number != index else edits)

    def _number(self, kind: str, index: int, *, gone: bool = False) -> int | None:
        """The number in this stream of what is numbered so in the next answer; `gone`: it is left out."""
        if (kind, index) not in self._numbers:
            self._numbers[kind, index] = None if gone else self._next[kind]
            self._next[kind] += not gone
        return self._numbers[kind, index]

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text, the finish with all counts, and the end, where no further answer comes."""
        pieces = [self._text(block.text) for block in blocks.values()]
        finish = next((finish_of(block) for block in blocks.values()), "COMPLETE")
        usage = self._usage.total()
        delta = {"finish_reason": finish} | ({"usage": usage} if usage else {})
        return b"".join((*pieces, event({"type": "message-end", "delta": delta}), sse.event(DONE)))

    def _text(self, text: str) -> bytes:
        """A content block with callfuse's own text."""
        index = self._counts["content-start"]
        self._counts["content-start"] += 1
        start = {"type": "text", "text": ""}
        return b"".join(
            (
                event({"type": "content-start", "index": index, "delta": {"message": {"content": start}}}),
                event({"type": "content-delta", "index": index, "delta": {"message": {"content": {"text": text}}}}),
                event({"type": "content-end", "index": index}),
            )
        )


def is_done(frame: bytes) -> bool:
    """Whether a frame is the terminal one."""
    return (sse.data(frame) or b"").strip() == DONE


def event(payload: Payload) -> bytes:
    """A payload as an event of its type."""
    return sse.event(dumps(payload), str(payload["type"]))


def _edited(frame: bytes, edits: list[Edit]) -> bytes:
    return sse.with_data(frame, apply(sse.data(frame) or b"{}", edits)) if edits else frame
