"""Answers of Ollama's chat: reads their calls, writes the answer without withheld calls, rebuilds the model's turn.

Calls come whole, one or several per message. Older versions send neither id nor index, some an index only from the
second call on, so calls are distinguished by their order. Arguments are objects and may be missing.

The client gets one `done` line, the last, with the counts of all answers; the model's name stays the first answer's.
Content and thinking of a next answer begin after a blank line if the client already has some. Lines that callfuse
writes are ASCII, because Ollama's Python client also ends lines at U+0085, U+2028 and the like.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import (
    NO_EVENTS,
    AnswerWriter,
    Block,
    Entry,
    Event,
    Frame,
    OpenCall,
    Reader,
    What,
    WholeChoice,
)
from callfuse.dialects.edits import append_to_string, break_before, lower_index, prepend_to_string, raw_at
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, piece_in
from callfuse.dialects.shapes import is_one_of, list_of, object_of
from callfuse.dialects.usage import Counts, TokenUsage
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import Edit, ExactValues, apply, dumps, dumps_ascii, loads
from callfuse.wire.ndjson import NDJSON

COUNTS: Final = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)
TEXTS: Final = ("content", "thinking")
OWN_REASONS: Final = frozenset({"stop", "tool_calls"})
"""Done reasons that a block replaces; `length` and the like stay."""
NO_TIME: Final = "1970-01-01T00:00:00Z"
"""The time in lines that are not from a model; clients require one."""
_LISTS: Final = ("tool_calls", "images")
_DONE: Final = (Event(What.FINISHED), Event(What.ENDED))


class OllamaReader(Reader):
    """Assembles the calls of one streamed answer; each call opens and closes with its line."""

    __slots__ = ("_trace",)

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__()
        self._trace = trace

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one line; OPENED and CLOSED only with `trace`."""
        if self._trace:
            self.entries = []
        message = payload.get("message")
        parts = list_of(message.get("tool_calls")) if isinstance(message, dict) else None
        if not parts:
            if payload.get("done"):
                return _DONE
            return (Event(What.BROKE),) if payload.get("error") else NO_EVENTS
        events: list[Event] = []
        calls = self.calls
        for at, part in enumerate(parts):
            id_, name, function = parts_of(part)
            call = OpenCall(
                0, len(calls), id_, name, function.get("arguments", ""), True, type(function.get("index")) is int
            )
            calls.append(call)
            if self._trace:
                events += (Event(What.OPENED, 0, call), Event(What.CLOSED, 0, call))
                self.entries.append(Entry(("message", "tool_calls", at), call))
        if payload.get("done"):
            events += _DONE
        return events


def parts_of(part: Any) -> tuple[str, str, Payload]:
    """Return id (may be empty), name and function of an element of `tool_calls`."""
    if type(part) is not dict:
        return "", "", {}
    id_, function = part.get("id"), part.get("function")
    if type(function) is not dict:
        return str(id_ or ""), "", {}
    return str(id_ or ""), str(function.get("name") or ""), function


def calls_of(message: Any, exact_values: ExactValues | None = None, position: int = 0) -> list[ToolCall]:
    """Return the calls of a whole message: of an answer, or (with `exact_values`) of the message at `position` of a
    request."""
    parts = message.get("tool_calls") if isinstance(message, dict) else None
    calls = []
    for at, part in enumerate(parts if isinstance(parts, list) else ()):
        id_, name, function = parts_of(part)
        exact = partial(_exact_arguments, exact_values, position, at) if exact_values else None
        calls.append(ToolCall(id_, name, function.get("arguments", ""), exact=exact))
    return calls


def _exact_arguments(values: ExactValues, position: int, place: int) -> Any:
    """Return the arguments of a call in a history, with all digits of their numbers."""
    return values.read("messages", position, "tool_calls", place, "function", "arguments")


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in a line, or in a whole answer."""
    message = object_of(payload.get("message"))
    yield from piece_in(TEXT, "content", message.get("content"))
    yield from piece_in(REASONING, "thinking", message.get("thinking"))


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of a whole answer, which has a message."""
    message = payload.get("message")
    return [WholeChoice(0, tuple(calls_of(message)))] if isinstance(message, dict) else []


def _counts_of(payload: Payload) -> Counts:
    """Return the counts in the last line of an answer."""
    return {key: payload[key] for key in COUNTS if key in payload}


class OllamaWriter(AnswerWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`."""

    def __init__(self, *, structured: bool, summed: bool) -> None:
        self._structured = structured
        self._head: Payload = {}
        self._said: set[str] = set()
        self._break_due: set[str] = set()
        self._foreign = False
        self._usage = TokenUsage("eval", summed=summed)
        self._editor = FrameEditor(NDJSON)

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has text that must fit a schema."""
        return not (self._structured and "content" in self._said)

    def note_sent(self, payload: Payload) -> None:
        """Note a line that the client got."""
        for key in ("model", "created_at"):
            if key in payload and (key == "created_at" or key not in self._head):
                self._head[key] = payload[key]
        message = object_of(payload.get("message"))
        self._said.update(key for key in TEXTS if message.get(key))
        if payload.get("done"):
            self._usage.see(_counts_of(payload))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the lines without withheld calls. A block's text is written before the last line, or in that line if
        it has content."""
        pieces: list[bytes] = []
        gone = sorted(call.index for call in withheld)
        for frame in frames:
            payload = frame.payload
            if payload is None:
                pieces.append(frame.raw)
                continue
            edits = list(_removal_edits(frame, withheld, gone))
            block = blocks.get(0) if payload.get("done") else None
            if block is not None:
                if object_of(payload.get("message")).get("content"):
                    edits.append(Edit(("message", "content"), append_to_string(block.text, dumps_ascii)))
                else:
                    pieces.append(self._text(block.text))
                edits += _finish_edits(payload, block)
            if not (edits and _is_empty(payload, edits)):
                self.note_sent(payload)
                pieces.append(self._editor.edit(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return the held lines without withheld calls, counts and end, and without text that must fit a schema,
        because the next answer has its own."""
        pieces: list[bytes] = []
        gone = sorted(call.index for call in withheld)
        for frame in frames:
            payload = frame.payload
            if payload is None:
                pieces.append(frame.raw)
                continue
            edits = list(_removal_edits(frame, withheld, gone))
            message = object_of(payload.get("message"))
            if self._structured and "content" in message:
                edits.append(Edit(("message", "content"), None))
                payload = payload | {"message": {key: message[key] for key in message if key != "content"}}
            if payload.get("done"):
                edits += _reopen_edits(payload)
            if not (edits and _is_empty(payload, edits)):
                pieces.append(self._editor.edit(frame.raw, edits).rstrip(b"\r\n") + b"\n")
            self.note_sent(payload)
        self._usage.next_answer()
        return b"".join(pieces)

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._foreign = foreign
        self._break_due = set(self._said)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite a line of the next answer for this stream; empty if the client must not see it."""
        if payload is None:
            return frame
        edits: list[Edit] = []
        if payload.get("model") != self._head.get("model") and "model" in self._head and "model" in payload:
            edits.append(Edit(("model",), dumps_ascii(self._head["model"])))
        message = object_of(payload.get("message"))
        if self._foreign and "thinking" in message:
            edits.append(Edit(("message", "thinking"), None))
            if _is_empty(payload, edits):
                return b""
        edits += self._break_edits(message)
        if payload.get("done"):
            total = self._usage.see(_counts_of(payload))
            edits += [Edit((key,), dumps_ascii(value)) for key, value in total.items() if payload.get(key) != value]
        return self._editor.edit(frame, edits)

    def _break_edits(self, message: Payload) -> Iterator[Edit]:
        """Yield the edits that put a blank line between texts of the next answer and those before."""
        for key in TEXTS:
            if message.get(key) and key in self._break_due and not (self._foreign and key == "thinking"):
                self._break_due.discard(key)
                yield Edit(("message", key), break_before)

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the blocks' texts and the last line with the counts of all answers. Calls end with `stop`, too."""
        pieces = [self._text(block.text) for block in blocks.values()]
        finish = next((block.finish for block in blocks.values() if block.finish), "stop")
        finish = finish if cut is None else "length"
        end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": finish}
        return b"".join((*pieces, self._line(end | self._usage.total())))

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return the answer without the calls at these (choice, call) places, with the block's text."""
        payload: Payload = loads(body)
        reader = OllamaReader(trace=True)
        reader.read({"message": payload["message"]})
        gone = [place for _, place in withheld]
        frame = Frame(body, payload, tuple(reader.entries))
        edits = list(_removal_edits(frame, {reader.calls[place] for place in gone}, gone))
        if block := blocks.get(0):
            edits += [Edit(("message", "content"), append_to_string(block.text)), *_finish_edits(payload, block)]
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second answer with the first one's model name, the first one's texts in front (without content
        that must fit a schema), and the counts of both. Thinking of another model (`foreign`) is left out."""
        if foreign:
            second = apply(second, [Edit(("message", "thinking"), None)])
        one, other = loads(first), loads(second)
        edits = []
        if "model" in one and "model" in other:
            edits.append(Edit(("model",), raw_at(first, ("model",))))
        for key in ("thinking",) if self._structured else TEXTS:
            before = one["message"].get(key)
            if isinstance(before, str) and before:
                edits.append(Edit(("message", key), prepend_to_string(before)))
        total = self._usage.of_both(_counts_of(one), _counts_of(other))
        edits += [Edit((key,), dumps(value)) for key, value in total.items() if other.get(key) != value]
        return apply(second, edits)

    def _text(self, text: str) -> bytes:
        """Return a line with a text by callfuse."""
        content = f"\n\n{text}" if "content" in self._said else text
        self._said.add("content")
        return self._line({"message": {"role": "assistant", "content": content}, "done": False})

    def _line(self, rest: Payload) -> bytes:
        return dumps_ascii({"model": "", "created_at": NO_TIME} | self._head | rest) + b"\n"


def _removal_edits(frame: Frame, withheld: set[OpenCall], gone: Sequence[int]) -> Iterable[Edit]:
    """Return the edits that remove the withheld calls, at the indexes `gone` (sorted), and renumber the others."""
    entries: Sequence[Entry] = frame.entries
    if entries and all(entry.call in withheld for entry in entries):
        yield Edit(("message", "tool_calls"), None)
        return
    for entry in entries:
        shift = bisect_left(gone, entry.call.index)
        if entry.call in withheld:
            yield Edit(entry.path, None)
        elif shift and entry.call.numbered:
            yield Edit((*entry.path, "function", "index"), lower_index(shift))


def _finish_edits(payload: Payload, block: Block) -> Iterable[Edit]:
    """Return the edit that gives the last line of an answer the block's finish reason."""
    if is_one_of(payload.get("done_reason", "stop"), OWN_REASONS):
        yield Edit(("done_reason",), dumps_ascii(block.finish or "stop"))


def _reopen_edits(payload: Payload) -> Iterable[Edit]:
    """Return the edits that turn the last line of an answer into a line in the middle."""
    yield Edit(("done",), b"false")
    for key in ("done_reason", *COUNTS):
        if key in payload:
            yield Edit((key,), None)


def _is_empty(payload: Payload, edits: Sequence[Edit]) -> bool:
    """Whether a line is empty after these edits."""
    if payload.get("done") and not any(edit.path == ("done",) for edit in edits):
        return False
    gone = {edit.path for edit in edits if edit.raw is None}
    message = object_of(payload.get("message"))
    return not any(value and key != "role" and ("message", key) not in gone for key, value in message.items())


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the assistant message assembled from the lines, without calls that have no name and keys that no vendor is
    known to expect. Raises CannotReplay for a value of an unknown kind."""
    message: Payload = {"role": "assistant", "content": ""}
    for payload in payloads:
        for key, value in object_of(payload.get("message")).items():
            if value:
                _add(message, key, value)
    message = joined(message)
    if "tool_calls" in message:
        message["tool_calls"] = [part for part in message["tool_calls"] if parts_of(part)[1]]
    return dumps(message)


def _add(message: Payload, key: str, value: Any) -> None:
    """Add the value of one line to the message."""
    if key in TEXTS and isinstance(value, str):
        grow(message, key, value)
    elif key in _LISTS and isinstance(value, list):
        message.setdefault(key, []).extend(value)
    elif key in TEXTS or key in _LISTS:
        raise CannotReplay(f"message.{key}")
