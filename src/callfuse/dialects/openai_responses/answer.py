"""Answers of the Responses API: reads their calls, writes the answer without withheld calls, rebuilds the model's turn.

The event that ends an item is authoritative: arguments may come in pieces, in one piece, only with the item's end, or
(built-in tools) as an object, and ids may change between an item's begin and end. The terminal event may lack items
that were streamed, and may have items that were not.

In the client's stream, output indexes and sequence numbers have no gap; the response keeps the id, model and times of
the first answer; the output of the terminal event is what was streamed, its usage that of all answers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from callfuse.dialects.base import (
    NO_EVENTS,
    AnswerWriter,
    Block,
    CannotReplay,
    Event,
    Frame,
    OpenCall,
    Reader,
    What,
    WholeChoice,
    has_end,
)
from callfuse.dialects.edits import index_without, raw_elements, raw_list
from callfuse.dialects.openai_responses.items import (
    CALLS,
    OWN_ID,
    RESULTS,
    arguments_of,
    call_id,
    call_of,
    is_client_call,
    is_reasoning,
    name_of,
)
from callfuse.dialects.openai_responses.stored import Trail
from callfuse.dialects.shapes import index_of, is_one_of, list_of, object_of, plain_text_of, text_of
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.editor import FrameEditor
from callfuse.wire.events import typed_event
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end an answer; each has the whole response."""
UNSTREAMED: Final = -1
"""The index of a call that occurs only in the terminal event."""

_BEGINS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_PIECES: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_TEXTS: Final = {"response.function_call_arguments.done": "arguments", "response.custom_tool_call_input.done": "input"}
_BROKEN: Final = frozenset({"error", "response.failed", "response.cancelled"})
_TELLING: Final = frozenset({
    *_TEXTS, *_BROKEN, "response.created", "response.output_item.added", "response.output_item.done",
    "response.completed", "response.incomplete",
})  # fmt: skip
"""Events that may concern calls, apart from pieces of arguments."""
_HEAD: Final = ("id", "created_at", "model", "previous_response_id")
"""Keys of the response that stay those of the first answer."""
_INPUTS: Final = frozenset({
    *CALLS, *RESULTS, "message", "reasoning", "compaction", "web_search_call", "file_search_call",
    "code_interpreter_call", "image_generation_call", "mcp_list_tools", "mcp_call", "mcp_approval_request", "program",
    "program_output",
})  # fmt: skip
"""Types of items that the vendor accepts as input."""


class ResponsesReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_open",)

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self._open: dict[Any, OpenCall] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """The events in one payload."""
        kind = plain_text_of(payload.get("type"))
        if kind in _PIECES:
            if (call := self._open.get(_output_index(payload))) is not None:
                call.pieces.append(plain_text_of(payload.get("delta")))
        elif kind in _TELLING:
            return self._read_telling(kind, payload)
        return NO_EVENTS

    def _read_telling(self, kind: str, payload: Payload) -> Sequence[Event]:
        index = _output_index(payload)
        if kind == "response.output_item.added":
            return (self._open_call(index, item),) if is_client_call(item := payload.get("item")) else NO_EVENTS
        if kind == "response.output_item.done":
            return self._finish_item(index, payload.get("item"))
        if kind == "response.completed":
            return self._finish_answer(object_of(payload.get("response")))
        if kind == "response.incomplete":
            closed = [self._close_call(index) for index, call in [*self._open.items()] if has_end(call.arguments)]
            cut = self.calls[-1] if self.calls and not self.calls[-1].closed else None
            return (*closed, Event(What.CUT, 0, cut), Event(What.ENDED))
        if kind in _BROKEN or (kind == "response.created" and self.calls):
            return (Event(What.BROKE),)
        if (text := plain_text_of(payload.get(_TEXTS.get(kind, "")))) and (call := self._open.get(index)) is not None:
            call.pieces = [text]
        return NO_EVENTS

    def _open_call(self, index: Any, item: Payload) -> Event:
        place = index if isinstance(index, int) else UNSTREAMED
        call = OpenCall(0, place, call_id(item), name_of(item), kind=item["type"])
        call.namespace = str(item.get("namespace") or "")
        self.calls.append(call)
        self._open[index] = call
        return Event(What.OPENED, 0, call)

    def _finish_item(self, index: Any, item: Any) -> Sequence[Event]:
        """The events for the end of an item, which may be the first event of it. One that was cut off stays open."""
        if not is_client_call(item):
            return NO_EVENTS
        events = [] if index in self._open else [self._open_call(index, item)]
        call = self._open[index]
        call.id = call_id(item) or call.id
        call.name = name_of(item) or call.name
        if text := arguments_of(item):
            call.pieces = [text]
        if item.get("status") != "incomplete":
            events.append(self._close_call(index))
        return events

    def _close_call(self, index: Any) -> Event:
        call = self._open.pop(index)
        call.closed = True
        return Event(What.CLOSED, 0, call)

    def _finish_answer(self, response: Payload) -> Sequence[Event]:
        """The events for the end of the answer: open calls close, and calls only in the terminal event are added."""
        output = response.get("output")
        seen = Counter((call.kind, call.id) for call in self.calls)
        events: list[Event] = []
        for index, item in enumerate(output if isinstance(output, list) else ()):
            if not is_client_call(item):
                continue
            key = (item["type"], call_id(item))
            if seen[key]:
                seen[key] -= 1
            else:
                events += self._finish_item(("completed", index), item | {"status": "completed"})
        events += [self._close_call(index) for index in list(self._open)]
        return (*events, Event(What.FINISHED), Event(What.ENDED))


def _unplaced_items(frames: Sequence[Frame], withheld: set[OpenCall]) -> set[str]:
    """The ids of withheld items that came without a readable output index, so that only these ids name them."""
    calls = {(call.kind, call.id) for call in withheld if call.index < 0}
    items = [object_of(frame.payload.get("item")) for frame in frames if frame.payload] if calls else ()
    found = [item for item in items if is_client_call(item) and (item["type"], call_id(item)) in calls]
    return {text_of(item.get("id")) for item in found}


def _item_id(payload: Payload) -> str | None:
    """The id of the item that an event is about; None if it is about none."""
    about = payload.get("item_id", object_of(payload.get("item")).get("id"))
    return None if about is None else text_of(about)


def _output_index(payload: Payload) -> int | None:
    """The output index of an event; None if it has none."""
    index = payload.get("output_index")
    return index if type(index) is int else None


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    output = payload.get("output")
    if not isinstance(output, list):
        return []
    cut = payload.get("status") == "incomplete" and bool(output) and is_client_call(output[-1])
    return [WholeChoice(0, tuple(call_of(item) for item in output if is_client_call(item)), cut=cut)]


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """The model's turn: the response's id and items, from the terminal event or, if that has none, as they were
    streamed.

    Items stay as they came; those of a type that the vendor is not known to accept as input are left out. Raises
    CannotReplay for a call that callfuse cannot answer.
    """
    response: Payload = {}
    items: dict[Any, Payload] = {}
    for payload in payloads:
        kind = payload.get("type")
        if kind == "response.output_item.done":
            items[payload.get("output_index")] = payload["item"]
        elif kind == "response.created" or kind in TERMINAL:
            response = object_of(payload.get("response"))
    output = response.get("output") or list(items.values())
    return dumps({"id": response.get("id"), "output": [item for item in output if _goes_back(item)]})


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """As `model_turn`, for a whole answer, whose items keep their bytes."""
    output: Any = payload.get("output")
    if not isinstance(output, list):
        raise CannotReplay("output")
    listed = zip(raw_elements(body, ("output",)), output, strict=True)
    items = raw_list(raw for raw, item in listed if _goes_back(item))
    return b'{"id":%b,"output":%b}' % (dumps(payload.get("id")), items)


def _goes_back(item: Any) -> bool:
    """Whether an item is part of the turn: of a known type, and no call without a name. Raises CannotReplay."""
    kind = plain_text_of(object_of(item).get("type"))
    if kind not in _INPUTS:
        return False
    if is_client_call(item) and CALLS[kind].answer is None:
        raise CannotReplay(kind)
    return not (is_client_call(item) and not name_of(item))


class OwnMessage(NamedTuple):
    """callfuse's message in place of withheld calls, with every field that the official SDK's types require.

    `refuses`: send the text as a refusal, because plain text would not fit the schema of a structured output. `phase`:
    the vendor's messages have a phase, so this one gets one, too.
    """

    id: str
    text: str
    refuses: bool = False
    phase: bool = False

    def item(self) -> Payload:
        """The whole output item."""
        return self._head() | {"status": "completed", "content": [self._part(self.text)]}

    def events(self, output_index: int) -> Iterator[Payload]:
        """The events from the item's begin to its end, without `sequence_number`."""
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
    """The id of callfuse's message at this place of this response; always the same for the same place."""
    digest = blake2b(f"{response_id} {output_index}".encode("utf-8", "surrogatepass"), digest_size=16)
    return OWN_ID + digest.hexdigest()


@dataclass(slots=True)
class _Splice:
    """What has been spliced of the next answer; part of it may still wait.

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
        self._spoke = False
        self._phase = False
        self._splice = _Splice()

    @property
    def may_continue(self) -> bool:
        """False once text has left that must fit a schema: a second text would break it."""
        return not (self._structured and self._spoke)

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        kind = payload.get("type")
        number = payload.get("sequence_number")
        self._number = (number if isinstance(number, int) else self._number) + 1
        if kind == "response.output_item.added":
            self._next = max(self._next, index_of(payload.get("output_index")) + 1)
        elif kind == "response.output_item.done":
            self._items[index_of(payload.get("output_index"))] = item = object_of(payload.get("item"))
            self._next = max(self._next, index_of(payload.get("output_index")) + 1)
            self._phase |= bool(item.get("phase"))
        elif kind == "response.output_text.delta":
            self._spoke = True
        elif is_one_of(kind, _BEGINS) or is_one_of(kind, TERMINAL):
            self._response = object_of(payload.get("response"))
            self._head = self._head or {key: self._response[key] for key in _HEAD if key in self._response}
            self._usage.see(self._response.get("usage"))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """The events without withheld items. A block's message is written before the terminal event."""
        gone = {call.index for call in withheld if call.index >= 0}
        return self._thin(list(frames), withheld, sorted(gone), blocks)

    def _thin(
        self, frames: Sequence[Frame], withheld: set[OpenCall], gone: Sequence[int], blocks: Mapping[int, Block]
    ) -> bytes:
        """As `thin`, with the output indexes of the items that are withheld, sorted."""
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
            if isinstance(index, int):
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
        """Note in the trail which items of this answer the client does not get. Before renumbering."""
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
        """The edits that make the output of a terminal event equal to what was streamed."""
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
        """The held events without withheld calls and end; without messages that must fit a schema, because another
        follows."""
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

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._splice = _Splice(foreign, first=self._next, number=self._number)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """An event of the next answer, rewritten for this stream; empty if it must not be seen."""
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
        if isinstance(index, int):
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
        if isinstance(index, int) and isinstance(item, dict):
            own[index] = item
        if is_one_of(payload.get("type"), TERMINAL):
            self._lose_reasoning([own[at] for at in sorted(own)])
        return isinstance(index, int) and is_reasoning(own.get(index))

    def _lose_reasoning(self, items: Sequence[Payload]) -> None:
        self._trail.note_withheld(items, {at for at, item in enumerate(items) if is_reasoning(item)})

    def _response_edits(self, response: Payload, before: Sequence[bytes], *path: str) -> list[Edit]:
        """The edits that turn the next answer's response, at `path`, into the client's: the first one's head, the items
        `before` it, and the usage of all answers."""
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

    def close(self, blocks: Mapping[int, Block], *, called: bool = False) -> bytes:
        """The blocks' messages, and a terminal event with everything that was streamed."""
        pieces = []
        for block in blocks.values():
            message, at = self._message(block.text)
            pieces += [self._write(event) for event in message.events(at)]
        done = {"status": "completed", "error": None, "incomplete_details": None}
        if "completed_at" in self._response:
            done["completed_at"] = self._response.get("created_at")
        response = self._response | done | {"output": self._delivered_items(), "usage": self._usage.total() or None}
        pieces.append(self._write({"type": "response.completed", "response": response | self._head}))
        return b"".join(pieces)

    def _delivered_items(self) -> list[Payload]:
        """The items that the client got, in order."""
        return [self._items[index] for index in sorted(self._items)]

    def _message(self, text: str) -> tuple[OwnMessage, int]:
        """A message of callfuse's own and its output index."""
        id_ = own_id(str(self._head.get("id") or ""), self._next)
        message = OwnMessage(id_, text, refuses=self._structured, phase=self._phase)
        self._trail.note_own(message.item())
        return message, self._next

    def _write(self, event: Payload) -> bytes:
        """An event of callfuse's own."""
        payload = event | {"sequence_number": self._number}
        self.note_sent(payload)
        return typed_event(payload)

    def _edit(self, raw: bytes, payload: Payload, edits: list[Edit]) -> bytes:
        """An event with these edits and its sequence number in the client's stream."""
        number = payload.get("sequence_number")
        if isinstance(number, int) and number != self._number:
            edits.append(Edit(("sequence_number",), dumps(self._number)))
            payload = payload | {"sequence_number": self._number}
        self.note_sent(payload)
        return self._editor.edit(raw, edits)

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole response without the calls at these (choice, call) places. A block's message is appended."""
        payload: Payload = loads(body)
        output = payload["output"]
        calls = [at for at, item in enumerate(output) if is_client_call(item)]
        gone = {calls[place] for _, place in withheld}
        self._trail.note_withheld(output, gone)
        edits = [Edit(("output", at), None) for at in gone]
        if block := blocks.get(0):
            self._head = {"id": payload.get("id")}
            self._next = len(output) - len(gone)
            self._phase = any(isinstance(item, dict) and item.get("phase") for item in output)
            edits.append(Edit(("output", END), dumps(self._message(block.text)[0].item())))
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """The second response with the first one's head, the first one's items in front (not its messages, if they must
        fit a schema), and the usage of both."""
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
    """Whether an item is a message of the model's."""
    return isinstance(item, dict) and item.get("type") == "message"


def _begins_message(payload: Payload) -> bool:
    """Whether an event begins an item that is a message."""
    begins = payload.get("type") == "response.output_item.added" and isinstance(payload.get("output_index"), int)
    return begins and _is_message(payload.get("item"))
