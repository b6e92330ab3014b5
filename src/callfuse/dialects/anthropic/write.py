"""Continue a client's stream of Anthropic events after tool uses have been withheld.

Content blocks count on without a gap, every block precedes `message_delta`, and thinking of a second answer is not
forwarded once any block of the first has gone out: thinking of two answers in one message is refused ever after.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from callfuse.dialects.anthropic.reasoning import thinks
from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.usage import Usage
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import Edit, apply, dumps

OWN_REASONS: Final = frozenset({"tool_use", "end_turn", None})
"""Stop reasons that a block replaces, a missing one among them; `max_tokens`, `refusal` and the like stay."""
_BLOCK_EVENTS: Final = frozenset({"content_block_start", "content_block_delta", "content_block_stop"})


def usage_of(*, summed: bool) -> Usage:
    """Anthropic's names for token counts."""
    return Usage("input_tokens", "output_tokens", summed=summed)


class MessagesWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, *, summed: bool) -> None:
        self._next = 0
        self._allotted = 0
        self._numbers: dict[int, int | None] = {}
        self._may_think = True
        self._usage = usage_of(summed=summed)

    @property
    def may_continue(self) -> bool:
        """A message takes any number of blocks."""
        return True

    def sent(self, payload: Payload) -> None:
        """Note what an event has given to the client."""
        kind = payload.get("type")
        if kind == "content_block_start":
            self._next = max(self._next, payload.get("index", 0) + 1)
        elif kind == "message_start":
            self._usage.see((payload.get("message") or {}).get("usage"))
        elif kind == "message_delta":
            self._usage.see(payload.get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Events without the withheld blocks; the text of a block stands before `message_delta`, which comes with it
        where the answer has none."""
        gone = {call.index for call in withheld}
        block = blocks.get(0)
        due = [block.text] if block else []
        pieces: list[bytes] = []
        for frame in frames:
            payload = frame.payload or {}
            kind = payload.get("type")
            edits: list[Edit] = []
            if kind in _BLOCK_EVENTS:
                index = payload.get("index", 0)
                if index in gone:
                    continue
                if shift := sum(other < index for other in gone):
                    edits.append(Edit(("index",), dumps(index - shift)))
                if kind == "content_block_start":
                    self._next = index - shift + 1
            elif kind == "message_delta" and block:
                pieces += [self._text(due.pop())] if due else []
                if (payload.get("delta") or {}).get("stop_reason") in OWN_REASONS:
                    edits.append(Edit(("delta", "stop_reason"), b'"end_turn"'))
            elif kind == "message_stop" and due:
                pieces += (self._text(due.pop()), self._delta())
            pieces.append(_edited(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The blocks among the held events that are no calls; the finish and the end are kept back."""
        kept: list[Frame] = []
        for frame in frames:
            kind = (frame.payload or {}).get("type")
            if kind == "message_delta" and frame.payload:
                self._usage.see(frame.payload.get("usage"))
            elif kind != "message_stop":
                kept.append(frame)
        out = self.thin(kept, withheld, {})
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet; its thinking may stand in the message only where nothing went before."""
        self._numbers = {}
        self._allotted = self._next
        self._may_think = not (self._next or foreign)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, as one of this stream."""
        kind = (payload or {}).get("type")
        if payload is None or kind not in {*_BLOCK_EVENTS, "message_start", "message_delta"}:
            return frame
        if kind == "message_start":
            self._usage.see((payload.get("message") or {}).get("usage"))
            return b""
        if kind == "message_delta":
            return _edited(frame, [Edit(("usage",), dumps(self._usage.see(payload.get("usage") or {})))])
        index = payload.get("index", 0)
        if kind == "content_block_start":
            number = self._allotted if self._may_think or not thinks(payload.get("content_block")) else None
            self._numbers[index] = number
            self._allotted += number is not None
        number = self._numbers.get(index)
        return b"" if number is None else _edited(frame, [Edit(("index",), dumps(number))])

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text, the stop reason with all usage, and the end, where no further answer comes."""
        pieces = [self._text(block.text) for block in blocks.values()]
        return b"".join((*pieces, self._delta(), event({"type": "message_stop"})))

    def _delta(self) -> bytes:
        """The stop reason with all usage."""
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        return event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0} | self._usage.total()})

    def _text(self, text: str) -> bytes:
        """A text block with callfuse's own text."""
        index = self._next
        self._next += 1
        return b"".join(
            map(
                event,
                (
                    {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
                    {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
                    {"type": "content_block_stop", "index": index},
                ),
            )
        )


def event(payload: Payload) -> bytes:
    """A payload as an event of its type."""
    return sse.event(dumps(payload), str(payload["type"]))


def _edited(frame: bytes, edits: list[Edit]) -> bytes:
    return sse.with_data(frame, apply(sse.data(frame) or b"{}", edits)) if edits else frame
