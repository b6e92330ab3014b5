"""Calls of Ollama chats: whole, one or several in a message, of a streamed line or of a whole answer.

Older versions give them neither id nor index, some an index from the second call on; what tells them apart is their
order. Arguments are objects and may be missing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import ExactAt

_QUIET: Final[Sequence[Event]] = ()
_DONE: Final = (Event(What.FINISHED), Event(What.ENDED))


class ChatReader(Reader):
    """Assembles the calls of one streamed answer: each opens and closes with the line that brings it."""

    __slots__ = ("_trace", "calls", "entries")

    def __init__(self, *, trace: bool = False) -> None:
        self._trace = trace
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one line says of calls; of their opening and their end only with `trace`."""
        if self._trace:
            self.entries = []
        message = payload.get("message")
        parts = message.get("tool_calls") if isinstance(message, dict) else None
        if not parts:
            if payload.get("done"):
                return _DONE
            return (Event(What.BROKE),) if payload.get("error") else _QUIET
        events: list[Event] = []
        calls = self.calls
        for at, part in enumerate(parts):
            id_, name, function = parts_of(part)
            call = OpenCall(0, len(calls), id_, name, function.get("arguments", ""), True, "index" in function)
            calls.append(call)
            if self._trace:
                events += (Event(What.OPENED, 0, call), Event(What.CLOSED, 0, call))
                self.entries.append(Entry(("message", "tool_calls", at), call))
        if payload.get("done"):
            events += _DONE
        return events


def parts_of(part: Any) -> tuple[str, str, Payload]:
    """Id (may be empty), name and function of an element of `tool_calls`."""
    try:
        id_, function = part.get("id"), part["function"]
        name = function.get("name")
    except (AttributeError, KeyError):
        return "", "", {}
    return str(id_ or ""), str(name or ""), function


def calls_of(message: Any, exact: Callable[..., ExactAt] | None = None) -> Iterator[ToolCall]:
    """The calls of a whole message, of an answer or of a history; `exact` reads a place below its calls again."""
    parts = message.get("tool_calls") if isinstance(message, dict) else None
    for at, part in enumerate(parts if isinstance(parts, list) else ()):
        id_, name, function = parts_of(part)
        again = exact(at, "function", "arguments") if exact else None
        yield ToolCall(id_, name, function.get("arguments", ""), exact=again)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    return [WholeChoice(0, tuple(calls_of(payload.get("message"))))]
