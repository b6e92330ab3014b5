"""Calls of the Responses API, put together from typed events or read from a whole body.

An item's end is authoritative: arguments may come in pieces, in one piece, with the item's end only, or (built-in
tools) as an object; ids may change between an item's begin and its end. The terminal event may lack what was streamed,
and may bring what was not.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.dialects.openai_responses.items import arguments_of, call_id, call_of, is_client_call, name_of
from callfuse.wire import Payload

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end an answer; each holds the whole response."""

UNSTREAMED: Final = -1
"""The index of a call that only the terminal event has."""

_QUIET: Final[Sequence[Event]] = ()
_PIECES: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_TEXTS: Final = {"response.function_call_arguments.done": "arguments", "response.custom_tool_call_input.done": "input"}
_BROKEN: Final = frozenset({"error", "response.failed", "response.cancelled"})


class ResponsesReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_open", "calls", "entries")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []
        self._open: dict[Any, OpenCall] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one event says of calls."""
        kind = payload.get("type")
        if kind in _PIECES:
            if (call := self._open.get(payload.get("output_index"))) is not None:
                call.pieces.append(payload.get("delta") or "")
            return _QUIET
        if kind == "response.output_item.added":
            return self._added(payload)
        if kind == "response.output_item.done":
            return self._done(payload)
        if kind in _TEXTS:
            call = self._open.get(payload.get("output_index"))
            if call is not None and (text := payload.get(_TEXTS[kind])):
                call.pieces = [text]
            return _QUIET
        if kind == "response.completed":
            return self._completed(payload.get("response") or {})
        if kind == "response.incomplete":
            cut = self.calls[-1] if self.calls and not self.calls[-1].closed else None
            return (Event(What.CUT, 0, cut), Event(What.ENDED))
        broken = kind in _BROKEN or (kind == "response.created" and bool(self.calls))
        return (Event(What.BROKE),) if broken else _QUIET

    def _added(self, payload: Payload) -> Sequence[Event]:
        item = payload.get("item")
        if not is_client_call(item):
            return _QUIET
        return (self._opened(payload.get("output_index"), item),)

    def _opened(self, index: Any, item: Any) -> Event:
        place = index if isinstance(index, int) else UNSTREAMED
        call = OpenCall(0, place, call_id(item), name_of(item), kind=item["type"])
        call.namespace = str(item.get("namespace") or "")
        self.calls.append(call)
        self._open[index] = call
        return Event(What.OPENED, 0, call)

    def _done(self, payload: Payload) -> Sequence[Event]:
        """An item is complete, unless it was cut off; it may be the first that is heard of it."""
        item = payload.get("item")
        if not is_client_call(item):
            return _QUIET
        index = payload.get("output_index")
        events = [] if index in self._open else [self._opened(index, item)]
        call = self._open[index]
        call.id = call_id(item) or call.id
        call.name = name_of(item) or call.name
        if text := arguments_of(item):
            call.pieces = [text]
        if item.get("status") != "incomplete":
            events.append(self._closed(index, call))
        return events

    def _closed(self, index: Any, call: OpenCall) -> Event:
        del self._open[index]
        call.closed = True
        return Event(What.CLOSED, 0, call)

    def _completed(self, response: Payload) -> Sequence[Event]:
        """The answer is over: so are its calls, and those come that it alone has."""
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
                events += self._done({"output_index": ("completed", index), "item": item | {"status": "completed"}})
        events += [self._closed(index, call) for index, call in list(self._open.items())]
        return (*events, Event(What.FINISHED), Event(What.ENDED))


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    output = payload.get("output")
    if not isinstance(output, list):
        return []
    items = [item for item in output if isinstance(item, dict)]
    cut = payload.get("status") == "incomplete" and bool(items) and is_client_call(items[-1])
    return [WholeChoice(0, tuple(call_of(item) for item in items if is_client_call(item)), cut=cut)]
