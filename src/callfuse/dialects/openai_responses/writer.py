"""Continues answers of the Responses API after calls have been withheld, streamed or whole.

In the client's stream, output indexes and sequence numbers have no gap. The response keeps the id, model and times of
the first answer. The terminal event has the streamed items as output, and the usage of all answers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from callfuse.dialects.base import AnswerWriter, Block, Frame, OpenCall
from callfuse.dialects.edits import index_without, raw_elements, raw_list
from callfuse.dialects.openai_responses.answer import TERMINAL
from callfuse.dialects.openai_responses.items import OWN_ID, call_id, is_client_call, is_reasoning
from callfuse.dialects.openai_responses.open_items import OpenItems
from callfuse.dialects.openai_responses.stored import Trail
from callfuse.dialects.shapes import index_of, is_index, is_one_of, list_of, object_of, text_of
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.editor import FrameEditor
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads

_BEGINS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_HEAD: Final = ("id", "created_at", "model", "previous_response_id")
"""Keys of the response that keep the first answer's values."""


class OwnMessage(NamedTuple):
    """callfuse's message in place of withheld calls, with every field that the official SDK's types require.

    `refuses`: send the text as a refusal, because plain text would not fit the schema of a structured output. `phase`:
    the vendor's messages have a phase, so callfuse's message gets a phase, too.
    """

    id: str
    text: str
    refuses: bool = False
    phase: bool = False

    def item(self) -> Payload:
        """Return the whole output item."""
        return self._head() | {"status": "completed", "content": [self._part(self.text)]}

    def events(self, output_index: int) -> Iterator[Payload]:
        """Yield the events from the item's begin to its end, without `sequence_number`."""
        at = {"item_id": self.id, "output_index": output_index, "content_index": 0}
        slot = "refusal" if self.refuses else "text"
        logprobs: Payload = {} if self.refuses else {"logprobs": []}
        text = f"response.{'refusal' if self.refuses else 'output_text'}"
        began = self._head() | {"status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": output_index, "item": began}
        yield {"type": "response.content_part.added"} | at | {"part": self._part("")}
        yield {"type": f"{text}.delta"} | at | {"delta": self.text} | logprobs
        yield {"type": f"{text}.done"} | at | {slot: self.text} | logprobs
        yield {"type": "response.content_part.done"} | at | {"part": self._part(self.text)}
        yield {"type": "response.output_item.done", "output_index": output_index, "item": self.item()}

    def _head(self) -> Payload:
        phase = {"phase": "final_answer"} if self.phase else {}
        return {"id": self.id, "type": "message", "role": "assistant"} | phase

    def _part(self, text: str) -> Payload:
        if self.refuses:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def own_id(response_id: str, output_index: int) -> str:
    """Return the id of callfuse's message at this place of this response; the id of a place is always the same."""
    digest = blake2b(f"{response_id} {output_index}".encode("utf-8", "surrogatepass"), digest_size=16)
    return OWN_ID + digest.hexdigest()


@dataclass(slots=True)
class _Splice:
    """The part of the next answer that has been spliced; the client may not have all of it yet.

    `first`: the output index of its first item. `number`: the next sequence number. `indexes`: its output indexes,
    mapped to those of the stream. `items`: its complete items, by the stream's indexes. `own`: the items of another
    model, by their own indexes.
    """

    foreign: bool = False
    first: int = 0
    number: int = 0
    indexes: dict[int, int] = field(default_factory=dict)
    items: dict[int, Payload] = field(default_factory=dict)
    own: dict[int, Payload] = field(default_factory=dict)


class ResponsesWriter(AnswerWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    def __init__(self, *, structured: bool, summed: bool, trail: Trail) -> None:
        self._structured = structured
        self._trail = trail
        self._usage = TokenUsage("output", "total_tokens", ("input_tokens", "output_tokens"), summed=summed)
        self._editor = FrameEditor(EVENTS)
        self._response: Payload = {}
        self._head: Payload = {}
        self._number = 0
        self._next = 0
        self._items: dict[int, Payload] = {}
        self._begun: dict[int, Payload] = {}
        self._spoke = False
        self._open = OpenItems()
        self._splice = _Splice()

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has text that must fit a schema."""
        return not (self._structured and self._spoke)

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        kind = payload.get("type")
        number = payload.get("sequence_number")
        self._number = (number if isinstance(number, int) else self._number) + 1
        self._open.note(kind, payload)
        if kind == "response.output_item.added":
            self._begun[index_of(payload.get("output_index"))] = object_of(payload.get("item"))
            self._next = max(self._next, index_of(payload.get("output_index")) + 1)
        elif kind == "response.output_item.done":
            self._items[index_of(payload.get("output_index"))] = object_of(payload.get("item"))
            self._next = max(self._next, index_of(payload.get("output_index")) + 1)
        elif kind == "response.output_text.delta":
            self._spoke = True
        elif is_one_of(kind, _BEGINS) or is_one_of(kind, TERMINAL):
            self._response = object_of(payload.get("response"))
            self._head = self._head or {key: self._response[key] for key in _HEAD if key in self._response}
            self._usage.see(self._response.get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the events without withheld items. A block's message is written before the terminal event."""
        gone = {call.index for call in withheld if call.index >= 0}
        return self._thin(list(frames), withheld, sorted(gone), blocks)

    def _thin(
        self, frames: Sequence[Frame], withheld: set[OpenCall], gone: Sequence[int], blocks: Mapping[int, Block]
    ) -> bytes:
        """Remove the items with the output indexes `gone` (sorted) from the frames, as `thin` does."""
        self._note_losses(frames, gone)
        pieces: list[bytes] = []
        unplaced = _unplaced_items(frames, withheld)
        for raw, payload, _ in frames:
            if payload is None:
                pieces.append(raw)
                continue
            if unplaced and _item_id(payload) in unplaced:
                continue
            index = payload.get("output_index")
            edits: list[Edit] = []
            if is_index(index):
                left = index_without(index, gone)
                if left is None:
                    continue
                if left != index:
                    edits.append(Edit(("output_index",), dumps(left)))
                    payload = payload | {"output_index": left}
            elif is_one_of(payload.get("type"), TERMINAL):
                own = []
                for block in blocks.values():
                    message, at = self._message(block.text)
                    own.append(message)
                    pieces += [self._write(event) for event in message.events(at)]
                edits += self._output_edits(payload, withheld, own)
            pieces.append(self._edit(raw, payload, edits))
        return b"".join(pieces)

    def _note_losses(self, frames: Sequence[Frame], gone: Sequence[int]) -> None:
        """Note in the trail which items of this answer the client does not get. Called before renumbering."""
        known = {index: item for index, item in self._items.items() if index >= self._splice.first}
        for _, payload, _ in frames:
            if payload is not None and payload.get("type") == "response.output_item.done":
                known[index_of(payload.get("output_index"))] = object_of(payload.get("item"))
        order = sorted(known)
        lost = set(gone)
        self._trail.note_withheld(
            [known[index] for index in order], {at for at, index in enumerate(order) if index in lost}
        )

    def _output_edits(self, payload: Payload, withheld: set[OpenCall], own: Sequence[OwnMessage]) -> list[Edit]:
        """Return the edits after which a terminal event lists exactly the items that were streamed."""
        response = payload.get("response")
        if not isinstance(response, dict):
            return []
        output = list_of(response.get("output"))
        if not output:
            return [Edit(("response", "output"), dumps(self._delivered_items()))]
        wanted = Counter((call.kind, call.id) for call in withheld)
        edits = []
        for at, item in enumerate(output):
            if is_client_call(item) and wanted[key := (item["type"], call_id(item))]:
                wanted[key] -= 1
                edits.append(Edit(("response", "output", at), None))
        if own:
            edits.append(Edit(("response", "output", END), b",".join(dumps(message.item()) for message in own)))
        return edits

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return the held events without withheld calls and end, and without messages that must fit a schema, because
        the next answer has its own."""
        gone = {call.index for call in withheld if call.index >= 0}
        kept: list[Frame] = []
        for frame in frames:
            if frame.payload is None:
                if sse.is_comment(frame.raw):
                    kept.append(frame)
            elif is_one_of(frame.payload.get("type"), TERMINAL):
                self._usage.see(object_of(frame.payload.get("response")).get("usage"))
            else:
                kept.append(frame)
                if self._structured and _begins_message(frame.payload):
                    gone.add(frame.payload["output_index"])
        out = self._thin(kept, withheld, sorted(gone), {})
        self._usage.next_answer()
        return out

    def break_off(self) -> bytes:
        """Return the events that end open messages and reasoning of the client's stream, with their texts so far."""
        return b"".join([self._write(event) for event in self._open.end()])

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._splice = _Splice(foreign, first=self._next, number=self._number)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite an event of the next answer for this stream; empty if the client must not see it."""
        if payload is None:
            return frame
        splice = self._splice
        kind, index = payload.get("type"), payload.get("output_index")
        if is_one_of(kind, _BEGINS) or (splice.foreign and self._is_foreign_reasoning(payload)):
            return b""
        edits = []
        if isinstance(payload.get("sequence_number"), int):
            edits.append(Edit(("sequence_number",), dumps(splice.number)))
        splice.number += 1
        if is_index(index):
            index = splice.indexes.setdefault(index, splice.first + len(splice.indexes))
            edits.append(Edit(("output_index",), dumps(index)))
            if kind == "response.output_item.done":
                splice.items[index] = object_of(payload.get("item"))
        elif is_one_of(kind, TERMINAL) and isinstance(payload.get("response"), dict):
            before = [dumps(self._items[at]) for at in sorted(self._items) if at < splice.first]
            edits += self._response_edits(object_of(payload.get("response")), before, "response")
        return self._editor.edit(frame, edits)

    def _is_foreign_reasoning(self, payload: Payload) -> bool:
        """Whether an event of another model belongs to its reasoning. The terminal event completes the trail."""
        own, index, item = self._splice.own, payload.get("output_index"), payload.get("item")
        if is_index(index) and isinstance(item, dict):
            own[index] = item
        if is_one_of(payload.get("type"), TERMINAL):
            self._lose_reasoning([own[at] for at in sorted(own)])
        return is_index(index) and is_reasoning(own.get(index))

    def _lose_reasoning(self, items: Sequence[Payload]) -> None:
        self._trail.note_withheld(items, {at for at, item in enumerate(items) if is_reasoning(item)})

    def _response_edits(self, response: Payload, before: Sequence[bytes], *path: str) -> list[Edit]:
        """Return the edits that turn the next answer's response, at `path`, into the client's: with the first one's
        head, the items `before` it, and the usage of all answers."""
        edits = [Edit((*path, key), dumps(value)) for key, value in self._head.items() if key in response]
        if usage := self._usage.see(response.get("usage")):
            edits.append(Edit((*path, "usage"), dumps(usage)))
        streamed = [dumps(self._splice.items[index]) for index in sorted(self._splice.items)]

        def join(old: bytes) -> bytes:
            items = raw_elements(old, ()) if old.startswith(b"[") else []
            if self._splice.foreign:
                items = [item for item in items if not is_reasoning(loads(item))]
            return raw_list((*before, *(items or streamed)))

        return [*edits, Edit((*path, "output"), join)]

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the blocks' messages, and a terminal event with everything that was streamed."""
        pieces = [] if cut is None else [self._write(self._broken_item(cut))]
        for block in blocks.values():
            message, at = self._message(block.text)
            pieces += [self._write(event) for event in message.events(at)]
        done: Payload = {"status": "completed", "error": None, "incomplete_details": None}
        if cut is not None:
            done |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        elif "completed_at" in self._response:
            done["completed_at"] = self._response.get("created_at")
        response = self._response | done | {"output": self._delivered_items(), "usage": self._usage.total() or None}
        kind = f"response.{done['status']}"
        pieces.append(self._write({"type": kind, "response": response | self._head}))
        return b"".join(pieces)

    def _broken_item(self, call: OpenCall) -> Payload:
        """Return the event that ends the item of an incomplete call, the last item that has begun."""
        index = max(self._begun)
        key = "input" if call.kind == "custom_tool_call" else "arguments"
        item = self._begun[index] | {key: call.arguments, "status": "incomplete"}
        return {"type": "response.output_item.done", "output_index": index, "item": item}

    def _delivered_items(self) -> list[Payload]:
        """Return the items that the client got, in order."""
        return [self._items[index] for index in sorted(self._items)]

    def _message(self, text: str) -> tuple[OwnMessage, int]:
        """Create a message by callfuse; return it with its output index."""
        id_ = own_id(str(self._head.get("id") or ""), self._next)
        has_phase = any(item.get("phase") for item in self._items.values())
        message = OwnMessage(id_, text, refuses=self._structured, phase=has_phase)
        self._trail.note_own(message.item())
        return message, self._next

    def _write(self, event: Payload) -> bytes:
        """Write an event by callfuse."""
        payload = event | {"sequence_number": self._number}
        self.note_sent(payload)
        return typed_event(payload)

    def _edit(self, raw: bytes, payload: Payload, edits: list[Edit]) -> bytes:
        """Apply these edits to an event, and give it its sequence number in the client's stream."""
        number = payload.get("sequence_number")
        if isinstance(number, int) and number != self._number:
            edits.append(Edit(("sequence_number",), dumps(self._number)))
            payload = payload | {"sequence_number": self._number}
        self.note_sent(payload)
        return self._editor.edit(raw, edits)

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return a whole response without the calls at these (choice, call) places. A block's message is appended."""
        payload: Payload = loads(body)
        output = payload["output"]
        calls = [at for at, item in enumerate(output) if is_client_call(item)]
        gone = {calls[place] for _, place in withheld}
        self._trail.note_withheld(output, gone)
        edits = [Edit(("output", at), None) for at in gone]
        if block := blocks.get(0):
            self._head = {"id": payload.get("id")}
            self._next = len(output) - len(gone)
            self._items = dict(enumerate(map(object_of, output)))
            edits.append(Edit(("output", END), dumps(self._message(block.text)[0].item())))
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second response with the first one's head, with the first one's items in front (without messages
        that must fit a schema), and with the usage of both."""
        one, other = loads(first), loads(second)
        items = list(zip(raw_elements(first, ("output",)), one["output"], strict=True))
        lost = {at for at, (_, item) in enumerate(items) if self._structured and _is_message(item)}
        self._trail.note_withheld(one["output"], lost)
        self.note_sent({"type": "response.completed", "response": one})
        self._usage.next_answer()
        self.next_answer(foreign=foreign)
        if foreign:
            self._lose_reasoning(other["output"])
        before = [raw for at, (raw, _) in enumerate(items) if at not in lost]
        return apply(second, self._response_edits(other, before))


def _is_message(item: Any) -> bool:
    """Whether an item is the model's message."""
    return isinstance(item, dict) and item.get("type") == "message"


def _begins_message(payload: Payload) -> bool:
    """Whether an event begins an item that is a message."""
    begins = payload.get("type") == "response.output_item.added" and is_index(payload.get("output_index"))
    return begins and _is_message(payload.get("item"))


def _unplaced_items(frames: Sequence[Frame], withheld: set[OpenCall]) -> set[str]:
    """Return the ids of withheld items that came without a readable output index, so that only ids name them."""
    calls = {(call.kind, call.id) for call in withheld if call.index < 0}
    items = [object_of(frame.payload.get("item")) for frame in frames if frame.payload] if calls else ()
    found = [item for item in items if is_client_call(item) and (item["type"], call_id(item)) in calls]
    return {text_of(item.get("id")) for item in found}


def _item_id(payload: Payload) -> str | None:
    """Return the id of the item that an event concerns; None if it concerns none."""
    about = object_of(payload.get("item")).get("id", payload.get("item_id"))
    return None if about is None else text_of(about)
