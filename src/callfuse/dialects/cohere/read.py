"""Calls of Cohere chats, put together from typed events or read from a whole body.

Calls are counted apart from the blocks of content; each event says which call it is of.
"""

from collections.abc import Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.dialects.openai_chat.read import calls_of
from callfuse.wire import Payload

CUTTING: Final = frozenset({"MAX_TOKENS", "ERROR", "TIMEOUT"})
"""Finish reasons after which the last call may lack its end."""

_QUIET: Final[Sequence[Event]] = ()


class ChatReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_by_index", "calls", "entries")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []
        self._by_index: dict[int, OpenCall] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one event says of calls."""
        kind = payload.get("type")
        if kind == "tool-call-delta":
            call = self._by_index.get(payload.get("index", 0))
            if call is not None:
                call.pieces.append(function_of(payload).get("arguments") or "")
            return _QUIET
        if kind == "tool-call-start":
            return (Event(What.OPENED, 0, self._open(payload)),)
        if kind == "tool-call-end":
            call = self._by_index.pop(payload.get("index", 0), None)
            if call is None:
                return _QUIET
            call.closed = True
            return (Event(What.CLOSED, 0, call),)
        if kind == "message-end":
            return self._end(delta_of(payload).get("finish_reason"))
        return _QUIET

    def _open(self, payload: Payload) -> OpenCall:
        index = payload.get("index", 0)
        function = function_of(payload)
        call = OpenCall(0, index, str(part_of(payload).get("id") or ""), str(function.get("name") or ""))
        call.pieces.append(function.get("arguments") or "")
        self.calls.append(call)
        self._by_index[index] = call
        return call

    def _end(self, reason: Any) -> Sequence[Event]:
        """A call that has not ended is cut off, whatever the reason says."""
        cut = next(iter(self._by_index.values()), None)
        return (Event(What.CUT, 0, cut) if cut or reason in CUTTING else Event(What.FINISHED), Event(What.ENDED))


def delta_of(payload: Payload) -> Payload:
    """The delta of an event."""
    delta = payload.get("delta")
    return delta if isinstance(delta, dict) else {}


def message_of(payload: Payload) -> Payload:
    """The part of a message in an event."""
    message = delta_of(payload).get("message")
    return message if isinstance(message, dict) else {}


def part_of(payload: Payload) -> Payload:
    """The part of a call in an event."""
    part = message_of(payload).get("tool_calls")
    return part if isinstance(part, dict) else {}


def function_of(payload: Payload) -> Payload:
    """The part of a call's function in an event."""
    function = part_of(payload).get("function")
    return function if isinstance(function, dict) else {}


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    if not isinstance(payload, dict):
        return []
    message = payload.get("message")
    if not isinstance(message, dict):
        return []
    return [WholeChoice(0, calls_of(message), cut=payload.get("finish_reason") in CUTTING)]
