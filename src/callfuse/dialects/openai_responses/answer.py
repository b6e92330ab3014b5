"""Answers of the Responses API: reads their calls, rebuilds the model's turn.

The event that ends an item is authoritative: arguments may come in pieces, in one piece, only with the item's end, or
(built-in tools) as an object, and ids may change between an item's begin and end. The terminal event may lack items
that were streamed, and may have items that were not.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Event, OpenCall, Reader, What, WholeChoice, has_end
from callfuse.dialects.edits import raw_elements, raw_list
from callfuse.dialects.openai_responses.items import (
    CALLS,
    RESULTS,
    arguments_of,
    call_id,
    call_of,
    is_client_call,
    name_of,
)
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, blocks_in, piece_in
from callfuse.dialects.shapes import is_index, object_of, objects_of, plain_text_of, text_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end an answer; each has the whole response."""
UNSTREAMED: Final = -1
"""The index of a call that occurs only in the terminal event."""

_PIECES: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_TEXTS: Final = {"response.function_call_arguments.done": "arguments", "response.custom_tool_call_input.done": "input"}
_BROKEN: Final = frozenset({"error", "response.failed", "response.cancelled"})
_TELLING: Final = frozenset({
    *_TEXTS, *_BROKEN, "response.created", "response.output_item.added", "response.output_item.done",
    "response.completed", "response.incomplete",
})  # fmt: skip
"""Events that may concern calls, apart from pieces of arguments."""
_INPUTS: Final = frozenset({
    *CALLS, *RESULTS, "message", "reasoning", "compaction", "web_search_call", "file_search_call",
    "code_interpreter_call", "image_generation_call", "mcp_list_tools", "mcp_call", "mcp_approval_request", "program",
    "program_output",
})  # fmt: skip
"""Types of items that the vendor accepts as input."""

_SAID: Final = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": TEXT,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
}
"""Events with a piece of text."""
_SAID_WHOLE: Final = {
    "output_text": ("text", TEXT),
    "refusal": ("refusal", TEXT),
    "reasoning_text": ("text", REASONING),
    "summary_text": ("text", REASONING),
}
"""Parts of whole items with a text, and the key of the text."""
_PLACE: Final = ("type", "output_index", "item_id", "content_index", "summary_index")


class ResponsesReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_open",)

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self._open: dict[Any, OpenCall] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one payload."""
        kind = plain_text_of(payload.get("type"))
        if kind in _PIECES:
            if (call := self._call_of(_output_index(payload))) is not None:
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
        if (text := plain_text_of(payload.get(_TEXTS.get(kind, "")))) and (call := self._call_of(index)) is not None:
            call.pieces = [text]
        return NO_EVENTS

    def _call_of(self, index: int | None) -> OpenCall | None:
        """Return the open call at an output index; the newest open call if both came without an index."""
        if index is not None:
            return self._open.get(index)
        newest = self.calls[-1] if self.calls else None
        return newest if newest is not None and newest.index == UNSTREAMED and not newest.closed else None

    def _open_call(self, index: Any, item: Payload) -> Event:
        place = index if is_index(index) else UNSTREAMED
        call = OpenCall(0, place, call_id(item), name_of(item), kind=item["type"])
        call.namespace = str(item.get("namespace") or "")
        self.calls.append(call)
        self._open[_unplaced(item) if index is None else index] = call
        return Event(What.OPENED, 0, call)

    def _finish_item(self, index: Any, item: Any) -> Sequence[Event]:
        """Return the events for the end of an item, which may be its first event. A cut-off call stays open."""
        if not is_client_call(item):
            return NO_EVENTS
        if index is None or (index not in self._open and _unplaced(item) in self._open):
            index = _unplaced(item)
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
        """Return the events for the end of the answer: close open calls, add calls only in the terminal event."""
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


def _output_index(payload: Payload) -> int | None:
    """Return the output index of an event; None if it has none."""
    index = payload.get("output_index")
    return index if type(index) is int and index >= 0 else None


def _unplaced(item: Payload) -> tuple[None, str]:
    """Return a key, built from the item's id, in place of the output index of an item that came without one."""
    return None, call_id(item)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer."""
    output = payload.get("output")
    if not isinstance(output, list):
        return []
    cut = payload.get("status") == "incomplete" and bool(output) and is_client_call(output[-1])
    return [WholeChoice(0, tuple(call_of(item) for item in output if is_client_call(item)), cut=cut)]


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the model's turn: the response's id and items, from the terminal event or, if that has none, as they were
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
    """Rebuild the model's turn from a whole answer, whose items keep their bytes."""
    output: Any = payload.get("output")
    if not isinstance(output, list):
        raise CannotReplay("output")
    listed = zip(raw_elements(body, ("output",)), output, strict=True)
    items = raw_list(raw for raw, item in listed if _goes_back(item))
    return b'{"id":%b,"output":%b}' % (dumps(payload.get("id")), items)


def _goes_back(item: Any) -> bool:
    """Whether an item is sent back in the turn: of a known type, and not a call without a name. Raises CannotReplay."""
    kind = plain_text_of(object_of(item).get("type"))
    if kind not in _INPUTS:
        return False
    if is_client_call(item) and CALLS[kind].answer is None:
        raise CannotReplay(kind)
    return not (is_client_call(item) and not name_of(item))


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in an event, or in a whole response."""
    kind = plain_text_of(payload.get("type"))
    if kind in _SAID:
        place = tuple([text_of(payload.get(key)) for key in _PLACE])
        yield from piece_in(_SAID[kind], place, payload.get("delta"))
    for at, item in enumerate(objects_of(payload.get("output"))):
        for key in ("content", "summary"):
            yield from blocks_in(item.get(key), (at, key), _SAID_WHOLE)
