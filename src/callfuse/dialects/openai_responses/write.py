"""Continue a client's stream of Responses events after calls have been withheld.

Output indexes and sequence numbers count on without a gap over the whole stream; the response keeps the id, model and
times of the first answer; the terminal event's output is what was streamed, and its usage that of all answers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.base import Block, Frame, OpenCall
from callfuse.dialects.openai_responses.items import call_id, is_client_call
from callfuse.dialects.openai_responses.message import OwnMessage, own_id
from callfuse.dialects.openai_responses.read import TERMINAL
from callfuse.dialects.openai_responses.reasoning import is_reasoning
from callfuse.dialects.openai_responses.trail import Trail
from callfuse.dialects.usage import Usage
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads, spans

HEAD: Final = ("id", "created_at", "model", "previous_response_id")
"""What of the first answer's response stays, whichever answer goes on."""
_BEGINS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_OUTPUT: Final = ("response", "output")


def usage_of(*, summed: bool) -> Usage:
    """The names of token counts here."""
    return Usage("input_tokens", "output_tokens", "total_tokens", summed=summed)


def head_edits(one: Payload, other: Payload, path: tuple[str, ...] = ()) -> list[Edit]:
    """The edits that give one response the identity of another."""
    return [Edit((*path, key), dumps(one[key])) for key in HEAD if key in one and key in other]


def places_of(output: Sequence[Any], withheld: Iterable[tuple[str, str]]) -> list[int]:
    """Where in a response's output these calls stand, known by (kind, id)."""
    wanted = Counter(withheld)
    places = []
    for at, item in enumerate(output):
        if is_client_call(item) and wanted[key := (item["type"], call_id(item))]:
            wanted[key] -= 1
            places.append(at)
    return places


class ResponsesWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, *, structured: bool, summed: bool, trail: Trail) -> None:
        self._structured = structured
        self._trail = trail
        self._usage = usage_of(summed=summed)
        self._response: Payload = {}
        self._head: Payload = {}
        self._number = 0
        self._next = 0
        self._items: dict[int, Payload] = {}
        self._first_of_answer = 0
        self._spoke = False
        self._phase = False
        self._indexes: dict[int, int] = {}
        self._allotted = 0
        self._allotted_number = 0
        self._spliced: dict[int, Payload] = {}
        self._others: dict[int, Payload] = {}
        self._foreign = False

    @property
    def may_continue(self) -> bool:
        """A text that must fit a schema takes no second one."""
        return not (self._structured and self._spoke)

    def sent(self, payload: Payload) -> None:
        """Note what an event has given to the client."""
        kind = payload.get("type")
        number = payload.get("sequence_number")
        self._number = (number if isinstance(number, int) else self._number) + 1
        if kind == "response.output_item.added":
            self._next = max(self._next, payload.get("output_index", 0) + 1)
        elif kind == "response.output_item.done":
            self._items[payload.get("output_index", 0)] = item = payload.get("item") or {}
            self._next = max(self._next, payload.get("output_index", 0) + 1)
            self._phase |= bool(item.get("phase"))
        elif kind == "response.output_text.delta":
            self._spoke = True
        elif kind in _BEGINS or kind in TERMINAL:
            self._response = payload.get("response") or {}
            self._head = self._head or {key: self._response[key] for key in HEAD if key in self._response}
            self._usage.see(self._response.get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Events without the withheld items; a block's message stands before the terminal event."""
        frames = list(frames)
        gone = {call.index for call in withheld if call.index >= 0}
        self._note_losses(frames, gone)
        pieces: list[bytes] = []
        for raw, payload, _ in frames:
            if payload is None:
                pieces.append(raw)
                continue
            index = payload.get("output_index")
            edits: list[Edit] = []
            if isinstance(index, int):
                if index in gone:
                    continue
                if shift := sum(other < index for other in gone):
                    edits.append(Edit(("output_index",), dumps(index - shift)))
                    payload = payload | {"output_index": index - shift}
            elif payload.get("type") in TERMINAL:
                own = [self._message(block.text) for block in blocks.values()]
                pieces += [self._written(event) for message, at in own for event in message.events(at)]
                keys = [(call.kind, call.id) for call in withheld]
                edits += self._output_edits(payload, keys, [message for message, _ in own])
            pieces.append(self._edited(raw, payload, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The items among the held events that are no withheld calls; the end is kept back."""
        kept: list[Frame] = []
        for frame in frames:
            if frame.payload is None:
                if sse.is_comment(frame.raw):
                    kept.append(frame)
            elif frame.payload.get("type") in TERMINAL:
                self._usage.see((frame.payload.get("response") or {}).get("usage"))
            else:
                kept.append(frame)
        out = self.thin(kept, withheld, {})
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet."""
        self._foreign = foreign
        self._indexes, self._spliced, self._others = {}, {}, {}
        self._allotted = self._first_of_answer = self._next
        self._allotted_number = self._number

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, as one of this stream."""
        if payload is None:
            return frame
        kind = payload.get("type")
        if kind in _BEGINS or (self._foreign and self._is_muted(payload)):
            return b""
        edits = []
        if isinstance(payload.get("sequence_number"), int):
            edits.append(Edit(("sequence_number",), dumps(self._allotted_number)))
        self._allotted_number += 1
        index = payload.get("output_index")
        if isinstance(index, int):
            if index not in self._indexes:
                self._indexes[index] = self._allotted
                self._allotted += 1
            edits.append(Edit(("output_index",), dumps(self._indexes[index])))
            if kind == "response.output_item.done":
                self._spliced[self._indexes[index]] = payload.get("item") or {}
        elif kind in TERMINAL:
            edits += self._terminal_edits(payload.get("response") or {})
        return sse.with_data(frame, apply(sse.data(frame) or b"{}", edits))

    def _is_muted(self, payload: Payload) -> bool:
        """Whether an event of another model is of its reasoning. With the last one the trail knows what is missing."""
        index, item = payload.get("output_index"), payload.get("item")
        if isinstance(index, int) and isinstance(item, dict):
            self._others[index] = item
        if payload.get("type") in TERMINAL:
            items = [self._others[at] for at in sorted(self._others)]
            self._trail.lost(items, [at for at, one in enumerate(items) if is_reasoning(one)])
        return is_reasoning(self._others.get(index)) if isinstance(index, int) else False

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The message, and the terminal event with all that was streamed, where no further answer comes."""
        pieces = []
        for block in blocks.values():
            message, at = self._message(block.text)
            pieces += [self._written(event) for event in message.events(at)]
        done = {"status": "completed", "error": None, "incomplete_details": None}
        if "completed_at" in self._response:
            done["completed_at"] = self._response.get("created_at")
        response = self._response | done | {"output": self._delivered(), "usage": self._usage.total() or None}
        pieces.append(self._written({"type": "response.completed", "response": response | self._head}))
        return b"".join(pieces)

    def _delivered(self) -> list[Payload]:
        """The items that the client has been given, in their order."""
        return [self._items[index] for index in sorted(self._items)]

    def _message(self, text: str) -> tuple[OwnMessage, int]:
        """A message of callfuse's own and its place."""
        id_ = own_id(str(self._head.get("id") or ""), self._next)
        message = OwnMessage(id_, text, refuses=self._structured, phase=self._phase)
        self._trail.wrote(message.item())
        return message, self._next

    def _note_losses(self, frames: Sequence[Frame], gone: set[int]) -> None:
        """Tell the trail which items of this answer the client does not get, before any is renumbered."""
        known = {index: item for index, item in self._items.items() if index >= self._first_of_answer}
        for _, payload, _ in frames:
            if payload is not None and payload.get("type") == "response.output_item.done":
                known[payload.get("output_index", 0)] = payload.get("item") or {}
        order = sorted(known)
        self._trail.lost([known[index] for index in order], {order.index(index) for index in gone if index in known})

    def _output_edits(
        self, payload: Payload, withheld: Sequence[tuple[str, str]], own: Sequence[OwnMessage]
    ) -> list[Edit]:
        """The edits that make a terminal event's output what was streamed."""
        output = (payload.get("response") or {}).get("output")
        if not output:
            return [Edit(_OUTPUT, dumps(self._delivered()))]
        edits = [Edit((*_OUTPUT, at), None) for at in places_of(output, withheld)]
        if own:
            edits.append(Edit((*_OUTPUT, END), b",".join(dumps(message.item()) for message in own)))
        return edits

    def _terminal_edits(self, response: Payload) -> list[Edit]:
        """The edits that make the next answer's terminal event one of this stream."""
        edits = head_edits(self._head, response, ("response",))
        if usage := self._usage.see(response.get("usage")):
            edits.append(Edit(("response", "usage"), dumps(usage)))
        before = [dumps(item) for item in self._delivered()[: self._count_before()]]
        own = [dumps(self._spliced[index]) for index in sorted(self._spliced)]

        def joined(old: bytes) -> bytes:
            items = [old[item.value : item.end] for item in spans(old)] if old.startswith(b"[") else []
            if self._foreign:
                items = [item for item in items if not is_reasoning(loads(item))]
            return b"[" + b",".join((*before, *(items or own))) + b"]"

        return [*edits, Edit(_OUTPUT, joined)]

    def _count_before(self) -> int:
        """How many of the delivered items are of earlier answers."""
        return sum(index < self._first_of_answer for index in self._items)

    def _written(self, event: Payload) -> bytes:
        """An event of callfuse's own."""
        payload = event | {"sequence_number": self._number}
        self.sent(payload)
        return sse.event(dumps(payload), str(event["type"]))

    def _edited(self, raw: bytes, payload: Payload, edits: list[Edit]) -> bytes:
        """An event as it goes out, numbered by its place."""
        number = payload.get("sequence_number")
        if isinstance(number, int) and number != self._number:
            edits.append(Edit(("sequence_number",), dumps(self._number)))
            payload = payload | {"sequence_number": self._number}
        self.sent(payload)
        return sse.with_data(raw, apply(sse.data(raw) or b"{}", edits)) if edits else raw
