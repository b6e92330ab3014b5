"""Function calls of Gemini's answers, whole or put together from pieces.

A call comes whole in one part, or opens with its name and `willContinue`, grows by `partialArgs` and closes with a part
that does not continue (`functionCall: {}`, which may be missing), with the next call or with the finish reason. Ids may
be missing, `args` empty or absent. Tools that the vendor runs itself (`executableCode`, `toolCall`) are no calls here.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.base import Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.dialects.gemini.names import FUNCTION_CALL, SIGNATURE
from callfuse.dialects.gemini.partial_args import UnknownPieceError, built
from callfuse.model import ToolCall
from callfuse.wire import Payload

STOPS: Final = frozenset({"STOP", 1})
"""Finish reasons of an answer that is complete; by name, or by number where the client asked for numbers."""
_NO_REASON: Final = "FINISH_REASON_UNSPECIFIED"
_QUIET: Final[Sequence[Event]] = ()


class GeminiReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_growing", "_last", "_trace", "calls", "entries")

    def __init__(self, *, trace: bool = False) -> None:
        self._trace = trace
        self.calls: list[OpenCall] = []
        self.entries: list[Entry] = []
        self._last: dict[int, OpenCall] = {}
        self._growing: dict[int, tuple[OpenCall, list[Payload]]] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one chunk says of calls; of their opening and their end only with `trace`."""
        candidates = payload.get("candidates")
        if not candidates:
            self.entries = []
            return (Event(What.BROKE),) if payload.get("error") else _QUIET
        events: list[Event] = []
        taken: list[OpenCall | None] = []
        for candidate in candidates:
            content = candidate.get("content")
            if content and (parts := content.get("parts")):
                for part in parts:
                    if (function := part.get(FUNCTION_CALL)) is not None:
                        call = self._take(events, candidate.get("index") or 0, function, part)
                        if self._trace:
                            taken.append(call)
            if (reason := candidate.get("finishReason")) and reason != _NO_REASON:
                self._finish(events, candidate.get("index") or 0, reason)
        if self._trace:
            self.entries = [Entry(path, call) for path, call in zip(_paths(candidates), taken, strict=True) if call]
        return events or _QUIET

    def _take(self, events: list[Event], choice: int, function: Payload, part: Payload) -> OpenCall | None:
        """Read one part: a call, or a piece of one."""
        name = function.get("name")
        if name:
            if self._growing:
                self._close(events, choice)
            grows = bool(function.get("willContinue"))
            value = arguments_of(function) if "partialArgs" in function and not grows else function.get("args")
            last = self._last.get(choice)
            call = OpenCall(choice, last.index + 1 if last else 0, function.get("id") or "", name, value, not grows)
            self._last[choice] = call
            if SIGNATURE in part:
                call.extra = {SIGNATURE: part[SIGNATURE]}
            self.calls.append(call)
            if self._trace:
                events.append(Event(What.OPENED, choice, call))
                if not grows:
                    events.append(Event(What.CLOSED, choice, call))
            if not grows:
                return call
            self._growing[choice] = (call, [])
        elif choice not in self._growing:
            return self._last.get(choice)  # a terminator that comes twice
        call, arguments = self._growing[choice]
        if new := function.get("partialArgs"):
            arguments += new
        if not function.get("willContinue"):
            self._close(events, choice)
        return call

    def _close(self, events: list[Event], choice: int) -> None:
        """The call that is open, if one is, is complete."""
        if choice not in self._growing:
            return
        call, pieces = self._growing.pop(choice)
        if pieces:
            call.value = _built(call.value, pieces)
        call.closed = True
        if self._trace:
            events.append(Event(What.CLOSED, choice, call))

    def _finish(self, events: list[Event], choice: int, reason: str | int) -> None:
        if reason in STOPS:
            self._close(events, choice)
            events.append(Event(What.FINISHED, choice))
            return
        cut = self._growing.pop(choice, None)
        events.append(Event(What.CUT, choice, cut[0] if cut else None))


def _built(opening: Any, pieces: Sequence[Payload]) -> Any:
    """The arguments of a call; pieces that cannot be put together stay what they are."""
    try:
        return built(opening, pieces)
    except UnknownPieceError:
        return pieces


def arguments_of(function: Payload) -> Any:
    """The arguments of a whole call; empty text where it has none."""
    arguments = function.get("args")
    if pieces := function.get("partialArgs"):
        return _built(arguments, pieces)
    return "" if arguments is None else arguments


def _paths(candidates: Sequence[Payload]) -> Iterator[tuple[str | int, ...]]:
    """Where the parts of calls stand in a payload."""
    for place, candidate in enumerate(candidates):
        for at, part in enumerate((candidate.get("content") or {}).get("parts") or ()):
            if part.get(FUNCTION_CALL) is not None:
                yield ("candidates", place, "content", "parts", at)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of each candidate of a whole answer; none of them can lack its end."""
    return [
        WholeChoice(
            candidate.get("index") or 0, tuple(_call(part[FUNCTION_CALL]) for _, part in client_parts(candidate))
        )
        for candidate in payload.get("candidates") or ()
    ]


def client_parts(candidate: Payload) -> list[tuple[int, Payload]]:
    """The parts of a candidate that are calls for the client, with their places."""
    parts = (candidate.get("content") or {}).get("parts") or ()
    return [(at, part) for at, part in enumerate(parts) if (part.get(FUNCTION_CALL) or {}).get("name")]


def _call(function: Payload) -> ToolCall:
    return ToolCall(function.get("id") or "", function["name"], arguments_of(function))
