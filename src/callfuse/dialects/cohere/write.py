"""Continue a client's stream of Cohere events after calls have been withheld.

Calls, content blocks and citations are each counted without a gap; a second answer's content goes on counting, and its
plan begins after a blank line where the first had one. There is one `message-start` and one `message-end`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.cohere.read import delta_of, message_of
from callfuse.dialects.cohere.usage import NestedUsage
from callfuse.framing import Payload, sse
from callfuse.jsontext import Edit, apply, dumps

OWN_REASONS: Final = frozenset({"TOOL_CALL", "COMPLETE"})
"""Finish reasons that a block replaces; `MAX_TOKENS` and the like stay."""
DONE: Final = b"[DONE]"
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
        self._base = dict(self._counts)
        self._planned = self._break_due = self._has_done = False
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
        self._base = dict(self._counts)
        self._break_due = self._planned
        return out

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
        return _edited(frame, list(self._counted_on(payload)))

    def _counted_on(self, payload: Payload) -> Iterator[Edit]:
        """The edits that count content and citations on from those of the answer before."""
        kind = payload.get("type")
        if kind in _CONTENT_EVENTS and self._base["content-start"]:
            yield Edit(("index",), dumps(payload.get("index", 0) + self._base["content-start"]))
        elif kind in _CITATION_EVENTS:
            if self._base["citation-start"]:
                yield Edit(("index",), dumps(payload.get("index", 0) + self._base["citation-start"]))
            citation: Any = message_of(payload).get("citations")
            if isinstance(citation, dict) and "content_index" in citation and self._base["content-start"]:
                index = (citation["content_index"] or 0) + self._base["content-start"]
                yield Edit(("delta", "message", "citations", "content_index"), dumps(index))

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text, the finish with all counts, and the end, where no further answer comes."""
        pieces = [self._text(block.text) for block in blocks.values()]
        finish = next((finish_of(block) for block in blocks.values()), "COMPLETE")
        usage = self._usage.total()
        delta = {"finish_reason": finish} | ({"usage": usage} if usage else {})
        return b"".join((*pieces, _event({"type": "message-end", "delta": delta}), sse.event(DONE)))

    def _text(self, text: str) -> bytes:
        """A content block with callfuse's own text."""
        index = self._counts["content-start"]
        self._counts["content-start"] += 1
        start = {"type": "text", "text": ""}
        return b"".join(
            (
                _event({"type": "content-start", "index": index, "delta": {"message": {"content": start}}}),
                _event({"type": "content-delta", "index": index, "delta": {"message": {"content": {"text": text}}}}),
                _event({"type": "content-end", "index": index}),
            )
        )


def is_done(frame: bytes) -> bool:
    """Whether a frame is the terminal one."""
    return (sse.data(frame) or b"").strip() == DONE


def _event(payload: Payload) -> bytes:
    return sse.event(dumps(payload), str(payload["type"]))


def _edited(frame: bytes, edits: list[Edit]) -> bytes:
    return sse.with_data(frame, apply(sse.data(frame) or b"{}", edits)) if edits else frame
