"""Writes the streamed answer of the Interactions API: without withheld calls, with a block's text, or spliced.

Steps are numbered without a gap. The client gets one `interaction.created` and one `interaction.completed`, with the
first answer's id; of an answer that loses all its calls the status is `completed`. What is not changed keeps its bytes.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.edits import index_without
from callfuse.dialects.interactions.answer import CALLED, COMPLETED, STEP_EVENTS, InteractionsUsage
from callfuse.dialects.interactions.steps import OUTPUT, THOUGHT, is_of
from callfuse.dialects.shapes import index_of, is_one_of, object_of
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import Edit, dumps

_UPDATE = "interaction.status_update"
_END = "interaction.completed"


class InteractionsWriter:
    """Continues one client's stream. See `base.Writer`."""

    def __init__(self, *, structured: bool, summed: bool, model: str) -> None:
        self._structured = structured
        self._spoke = False
        self._next = 0
        self._allotted = 0
        self._numbers: dict[int, int | None] = {}
        self._foreign = False
        self._head: dict[str, Any] = {"id": "", "object": "interaction", "model": model}
        self._usage = InteractionsUsage(summed=summed)
        self._editor = FrameEditor(EVENTS)

    @property
    def may_continue(self) -> bool:
        """False once text has left that must fit a schema: a second text would break it."""
        return not (self._structured and self._spoke)

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        kind = payload.get("event_type")
        if is_one_of(kind, STEP_EVENTS):
            self._next = max(self._next, index_of(payload.get("index")) + 1)
            self._spoke |= is_of(payload.get("step"), OUTPUT)
        interaction = object_of(payload.get("interaction"))
        self._usage.see(interaction.get("usage"))
        self._head |= {key: interaction[key] for key in ("id", "object", "model") if key in interaction}

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """The events without withheld calls. A block's text is written before the end."""
        return self._thin(frames, {call.index for call in withheld}, blocks.get(0))

    def _thin(self, frames: Iterable[Frame], withheld: Set[int], block: Block | None) -> bytes:
        """As `thin`, with the numbers of the steps that are withheld."""
        gone = sorted(withheld)
        pieces: list[bytes] = []
        for frame in frames:
            payload = frame.payload or {}
            kind = payload.get("event_type")
            edits: list[Edit] = []
            if is_one_of(kind, STEP_EVENTS):
                index = index_of(payload.get("index"))
                left = index_without(index, gone)
                if left is None:
                    continue
                self._next = max(self._next, left + 1)
                if left != index:
                    edits.append(Edit(("index",), dumps(left)))
            elif block and kind == _UPDATE and payload.get("status") == CALLED:
                continue
            elif block and kind == _END:
                pieces.append(self._text(block.text))
                if object_of(payload.get("interaction")).get("status") == CALLED:
                    edits.append(Edit(("interaction", "status"), dumps(COMPLETED)))
            pieces.append(self._editor.edit(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The held events without withheld calls and the end; without text that must fit a schema, because another
        follows."""
        gone = {call.index for call in withheld}
        kept: list[Frame] = []
        for frame in frames:
            payload = frame.payload or {}
            kind = payload.get("event_type")
            if kind == _END:
                self._usage.see(object_of(payload.get("interaction")).get("usage"))
            elif kind != _UPDATE and not (frame.payload is None and sse.is_done(frame.raw)):
                kept.append(frame)
            if self._structured and is_of(payload.get("step"), OUTPUT):
                gone.add(index_of(payload.get("index")))
        out = self._thin(kept, gone, None)
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._numbers = {}
        self._allotted = self._next
        self._foreign = foreign

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, rewritten for this stream; empty if it must not be seen."""
        kind = (payload or {}).get("event_type")
        if payload is None or kind == "interaction.created":
            return frame if payload is None else b""
        if kind == _UPDATE:
            begins = payload.get("status") == "in_progress"
            return b"" if begins else self._editor.edit(frame, [Edit(("interaction_id",), dumps(self._head["id"]))])
        if kind == _END:
            return self._editor.edit(frame, self._end_edits(payload.get("interaction")))
        if not is_one_of(kind, STEP_EVENTS):
            return frame
        index = index_of(payload.get("index"))
        number = self._number(index, gone=self._foreign and is_of(payload.get("step"), THOUGHT))
        if number is None:
            return b""
        return self._editor.edit(frame, [Edit(("index",), dumps(number))] if number != index else [])

    def _end_edits(self, interaction: Any) -> list[Edit]:
        """The edits that give the end of the next answer the client's identity, and the usage of all answers."""
        if not isinstance(interaction, dict):
            return []
        edits = [Edit(("interaction", key), dumps(self._head[key])) for key in ("id", "model") if key in interaction]
        total = self._usage.see(interaction.get("usage"))
        return [*edits, Edit(("interaction", "usage"), dumps(total))] if total else edits

    def _number(self, index: int, *, gone: bool) -> int | None:
        """The number in this stream for a step of the next answer; None if it is left out (`gone`)."""
        if index not in self._numbers:
            self._numbers[index] = None if gone else self._allotted
            self._allotted += not gone
        return self._numbers[index]

    def close(self, blocks: Mapping[int, Block], *, called: bool = False) -> bytes:
        """The blocks' texts, and the end with the usage of all answers."""
        pieces = [self._text(block.text) for block in blocks.values()]
        usage = self._usage.total()
        status = {"status": CALLED if called else COMPLETED}
        interaction = self._head | status | ({"usage": usage} if usage else {})
        return b"".join((*pieces, event({"event_type": _END, "interaction": interaction})))

    def _text(self, text: str) -> bytes:
        """The events of a step of callfuse's own."""
        at = {"index": self._next}
        self._next += 1
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
