"""Answers of Gemini: reads their calls, and rebuilds the model's turn.

A call comes whole in one part. Or it opens with its name and `willContinue`, grows by `partialArgs`, and closes with a
part that does not continue (`functionCall: {}`, which may be missing), with the next call or with the finish reason.
Ids may be missing, `args` empty or absent. Tools that the vendor runs itself (`executableCode`, `toolCall`) are not
calls.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Entry, Event, OpenCall, Reader, What, WholeChoice
from callfuse.dialects.edits import raw_at
from callfuse.dialects.gemini.parts import (
    FUNCTION_CALL,
    SIGNATURE,
    UnknownPieceError,
    arguments_of,
    join_or_keep,
    join_pieces,
)
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, piece_in
from callfuse.dialects.shapes import index_of, is_one_of, list_of, object_of, objects_of, plain_text_of, text_of
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, Path, apply, dumps

STOPS: Final = frozenset({"STOP", 1})
"""Finish reasons of a complete answer, by name, or by number if the client asked for numbers."""
_NO_REASON: Final = "FINISH_REASON_UNSPECIFIED"
TEXT_KEYS: Final = frozenset({"text", "thought"})
"""The keys of a part that is text or a thought, and nothing else."""
_GROWING_KEYS: Final = frozenset({"partialArgs", "willContinue"})


def number_of(candidate: Payload) -> int:
    """Return the index of a candidate."""
    return index_of(candidate.get("index"))


def candidates_of(payload: Payload) -> Sequence[Payload]:
    """Return the candidates of a payload."""
    return objects_of(payload.get("candidates"))


def parts_of(candidate: Payload) -> Sequence[Payload]:
    """Return the parts of a candidate."""
    return objects_of(object_of(candidate.get("content")).get("parts"))


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in a chunk, or in a whole answer. All thoughts of a candidate are one reasoning."""
    for candidate in candidates_of(payload):
        for part in parts_of(candidate):
            kind = REASONING if part.get("thought") else TEXT
            yield from piece_in(kind, (number_of(candidate), kind), part.get("text"))


def parts_path(place: int) -> Path:
    """Return the path of the parts of the candidate at this place."""
    return ("candidates", place, "content", "parts")


class _PartialCall(OpenCall):
    """A call whose arguments come in `parts` until the call is closed."""

    __slots__ = ("parts",)

    parts: list[Payload]

    @property
    def arguments(self) -> Any:
        """The arguments so far."""
        return super().arguments if self.closed else join_or_keep(self.value, self.parts)

    def add(self, parts: Sequence[Any]) -> None:
        """Add the parts of a chunk."""
        self.parts += parts
        self.grown += sum([len(text_of(object_of(part).get("stringValue"))) for part in parts])


class GeminiReader(Reader):
    """Assembles the calls of one answer. Reports OPENED and CLOSED events, and entries, only with `trace`."""

    __slots__ = ("_growing", "_last", "_trace")

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__()
        self._trace = trace
        self._last: dict[int, OpenCall] = {}
        self._growing: dict[int, _PartialCall] = {}

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one chunk."""
        if self._trace:
            self.entries = []
        candidates = candidates_of(payload)
        if not candidates:
            return (Event(What.BROKE),) if payload.get("error") else NO_EVENTS
        events: list[Event] = []
        for place, candidate in enumerate(candidates):
            for at, part in enumerate(parts_of(candidate)):
                if type(function := part.get(FUNCTION_CALL)) is dict:
                    call = self._take(events, number_of(candidate), function, part)
                    if call and self._trace:
                        self.entries.append(Entry((*parts_path(place), at), call))
            if reason := candidate.get("finishReason"):
                self._finish(events, number_of(candidate), reason)
        return events or NO_EVENTS

    def _take(self, events: list[Event], choice: int, function: Payload, part: Payload) -> OpenCall | None:
        """Read a part with a call or a piece of a call; return that call."""
        name = plain_text_of(function.get("name"))
        if name:
            if self._growing:
                self._close(events, choice)
            grows = bool(function.get("willContinue"))
            value = arguments_of(function) if "partialArgs" in function and not grows else function.get("args")
            last = self._last.get(choice)
            index, id_ = last.index + 1 if last else 0, str(function.get("id") or "")
            call: OpenCall = (_PartialCall if grows else OpenCall)(choice, index, id_, name, value, not grows)
            self._last[choice] = call
            if SIGNATURE in part:
                call.extra = {SIGNATURE: part[SIGNATURE]}
            self.calls.append(call)
            if self._trace:
                events.append(Event(What.OPENED, choice, call))
                if not grows:
                    events.append(Event(What.CLOSED, choice, call))
            if not isinstance(call, _PartialCall):
                return call
            call.parts = []
            self._growing[choice] = call
        elif choice not in self._growing:
            return self._last.get(choice)  # a terminator may come twice
        partial = self._growing[choice]
        partial.add(list_of(function.get("partialArgs")))
        if not function.get("willContinue"):
            self._close(events, choice)
        return partial

    def _close(self, events: list[Event], choice: int) -> None:
        """Close the growing call of a choice, if there is a growing call."""
        call = self._growing.pop(choice, None)
        if call is None:
            return
        if call.parts:
            call.value = join_or_keep(call.value, call.parts)
        call.closed = True
        if self._trace:
            events.append(Event(What.CLOSED, choice, call))

    def _finish(self, events: list[Event], choice: int, reason: Any) -> None:
        if is_one_of(reason, STOPS):
            self._close(events, choice)
            events.append(Event(What.FINISHED, choice))
        elif reason != _NO_REASON:
            events.append(Event(What.CUT, choice, self._growing.pop(choice, None)))


def calls_by_candidate(reader: GeminiReader, payload: Payload) -> list[list[OpenCall]]:
    """Return the calls of each candidate of a whole answer, read by this reader."""
    reader.read(payload)
    found: list[dict[OpenCall, None]] = [{} for _ in candidates_of(payload)]
    for path, call in reader.entries:
        found[int(path[1])][call] = None
    return [list(calls) for calls in found]


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of each candidate of a whole answer. These calls are always complete."""
    by_candidate = calls_by_candidate(GeminiReader(trace=True), payload)
    return [
        WholeChoice(number_of(candidate), tuple(call.complete() for call in calls))
        for candidate, calls in zip(candidates_of(payload), by_candidate, strict=True)
    ]


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Rebuild the model's turn, as a content of the next request, from all chunks of one candidate.

    Parts stay as they came, with signatures. Pieces of texts and of calls are joined, but no text joins a part with a
    signature. Raises CannotReplay if a call cannot be assembled.
    """
    parts: list[Payload] = []
    calls: list[tuple[Payload, list[Payload]]] = []
    for payload in payloads:
        for candidate in candidates_of(payload):
            for part in parts_of(candidate):
                function = part.get(FUNCTION_CALL)
                if type(function) is not dict:
                    _add(parts, part)
                    continue
                if function.get("name"):
                    complete = {name: value for name, value in function.items() if name not in _GROWING_KEYS}
                    parts.append(part | {FUNCTION_CALL: complete})
                    calls.append((complete, []))
                if calls:
                    calls[-1][1].extend(list_of(function.get("partialArgs")))
    for complete, pieces in calls:
        if pieces:
            try:
                complete["args"] = join_pieces(complete.get("args"), pieces)
            except UnknownPieceError as error:
                raise CannotReplay(str(error)) from None
    return dumps({"role": "model", "parts": [joined(part) for part in parts]})


def _add(parts: list[Payload], part: Payload) -> None:
    """Append a part that is not a call; a text is joined to a text before it."""
    if not part.keys() <= TEXT_KEYS:
        parts.append(part)
    elif text := part.get("text"):
        last: Payload = parts[-1] if parts else {}
        if last.keys() <= TEXT_KEYS and last.get("text") and bool(last.get("thought")) == bool(part.get("thought")):
            grow(last, "text", text_of(text))
        else:
            parts.append(dict(part))


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the content of a whole answer, byte for byte, with its role. Raises CannotReplay if it has none."""
    content = raw_at(body, ("candidates", 0, "content"))
    if not content.startswith(b"{"):
        raise CannotReplay("content")
    return content if "role" in payload["candidates"][0]["content"] else apply(content, [Edit(("role",), b'"model"')])
