"""Calls of OpenAI chat completions, put together from deltas or read from a whole body.

The rules that naive code breaks: key by (choice, index); without an index by id, else a name opens a call, else the
last call grows; an index that comes again with another id and a name is a new call; repeated ids and names are not
appended, empty ones overwrite nothing; arguments may be null; a whole call may come in one chunk, with its finish
reason; finish reasons may be repeated, followed by more deltas, or missing where `[DONE]` ends the answer.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, dumps, loads

CUTTING: Final = frozenset({"length", "content_filter"})
"""Finish reasons after which the last call may lack its end."""

_QUIET: Final[Sequence[Event]] = ()
_OWN_KEYS: Final = frozenset({"index", "id", "type", "function"})


class ChatReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_by_key", "_cut", "_growing", "_trace", "calls", "entries")

    def __init__(self, *, trace: bool = False) -> None:
        self._trace = trace
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []
        self._by_key: dict[tuple[int, object], OpenCall] = {}
        self._growing: dict[int, OpenCall] = {}
        self._cut: set[int] = set()

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one chunk says of calls."""
        if self._trace:
            self.entries = []
        choices = payload.get("choices")
        if not choices:
            return (Event(What.BROKE),) if payload.get("error") else _QUIET
        events: list[Event] = []
        for place, choice in enumerate(choices):
            delta = choice.get("delta")
            if delta:
                if parts := delta.get("tool_calls"):
                    number = choice.get("index") or 0
                    for at, part in enumerate(parts):
                        call = self._by_key.get((number, part.get("index"))) if len(part) == 2 else None
                        if call is not None and call.name:  # index and function of a call that is known: it grows
                            if piece := part["function"].get("arguments"):
                                call.pieces.append(piece if isinstance(piece, str) else dumps(piece).decode())
                        else:
                            call = self._grow(events, number, part)
                        if self._trace:
                            self.entries.append(Entry(("choices", place, "delta", "tool_calls", at), call))
                if part := delta.get("function_call"):
                    call = self._grow(events, choice.get("index") or 0, {"index": "function_call", "function": part})
                    if self._trace:
                        self.entries.append(Entry(("choices", place, "delta", "function_call"), call))
            if reason := choice.get("finish_reason"):
                self._finish(events, choice.get("index") or 0, reason)
        return events or _QUIET

    def end(self) -> Sequence[Event]:
        """A choice that still lacks its finish reason (some vendors send none) is over if all its calls are whole."""
        events: list[Event] = []
        growing = [call for call in self.calls if not call.closed and call.choice not in self._cut]
        broken = {call.choice for call in growing if call.pieces and not _is_complete(call.arguments)}
        for choice in sorted({call.choice for call in growing} - broken):
            self._finish(events, choice, "")
        return (*events, Event(What.ENDED))

    def _grow(self, events: list[Event], choice: int, part: Payload) -> OpenCall:
        """Add one delta to its call, which it may open."""
        function = part.get("function") or {}
        name = function.get("name") or ""
        id_ = part.get("id") or ""
        index = part.get("index")
        call = self._lookup(choice, index, id_, name)
        if call is None:
            call = self._open(events, choice, index, id_, name)
        arguments = function.get("arguments")
        if arguments:
            call.pieces.append(arguments if isinstance(arguments, str) else dumps(arguments).decode())
        if len(part) > 2 or (id_ and not call.id):
            call.id = call.id or id_
            call.name = call.name or name
            call.extra = call.extra | {key: value for key, value in part.items() if key not in _OWN_KEYS}
        elif name and not call.name:
            call.name = name
        return call

    def _lookup(self, choice: int, index: object, id_: str, name: str) -> OpenCall | None:
        """The call that a delta goes on with; None where it opens one."""
        if index is not None:
            call = self._by_key.get((choice, index))
            return None if call and id_ and name and call.id and id_ != call.id else call
        if id_ and (call := self._by_key.get((choice, "id " + id_))):
            return call
        return None if name else self._growing.get(choice)

    def _open(self, events: list[Event], choice: int, index: object, id_: str, name: str) -> OpenCall:
        if (before := self._growing.get(choice)) and not before.closed and _is_complete(before.arguments):
            before.closed = True
            events.append(Event(What.CLOSED, choice, before))
        place = sum(call.choice == choice for call in self.calls)
        call = OpenCall(choice, place, id_, name, numbered=index is not None)
        self.calls.append(call)
        self._growing[choice] = call
        self._by_key[choice, "id " + id_ if index is None else index] = call
        events.append(Event(What.OPENED, choice, call))
        return call

    def _finish(self, events: list[Event], choice: int, reason: str) -> None:
        open_calls = [call for call in self.calls if call.choice == choice and not call.closed]
        cut = None
        if reason in CUTTING:
            self._cut.add(choice)
            cut = open_calls.pop() if open_calls else None
        for call in open_calls:
            call.closed = True
            events.append(Event(What.CLOSED, choice, call))
        events.append(Event(What.CUT, choice, cut) if reason in CUTTING else Event(What.FINISHED, choice))


def _is_complete(arguments: str) -> bool:
    """Whether a call may be over where another begins, or all end: some servers send the pieces of several by turns."""
    try:
        loads(arguments)
    except NotJSON:
        return False
    return True


def calls_of(message: Payload) -> tuple[ToolCall, ...]:
    """The calls of a whole assistant message, of an answer or of a history."""
    parts = message.get("tool_calls") or ()
    calls = [_call(part.get("id"), part.get("function")) for part in parts if isinstance(part, dict)]
    if isinstance(part := message.get("function_call"), dict):
        calls.append(_call("", part))
    return tuple(calls)


def tool_of(message: Payload) -> str | None:
    """The one tool that the calls of `calls_of` are of: empty where they are of several, None where there are none."""
    parts = message.get("tool_calls") or ()
    names = [_named(part.get("function")) for part in parts if isinstance(part, dict)]
    if isinstance(part := message.get("function_call"), dict):
        names.append(_named(part))
    if not names:
        return None
    return names[0] if names.count(names[0]) == len(names) else ""


def _named(function: Any) -> str:
    name = function.get("name") if isinstance(function, dict) else ""
    return name if isinstance(name, str) else str(name or "")


def _call(id_: Any, function: Any) -> ToolCall:
    try:
        name, arguments = function["name"], function["arguments"]
    except (KeyError, TypeError):
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else dumps(arguments).decode()
    return ToolCall(id_ if isinstance(id_, str) else "", name if isinstance(name, str) else str(name or ""), arguments)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of each choice of a whole answer."""
    return [
        WholeChoice(
            choice.get("index") or 0,
            calls_of(choice.get("message") or {}),
            cut=choice.get("finish_reason") in CUTTING,
        )
        for choice in payload.get("choices") or ()
        if isinstance(choice, dict)
    ]
