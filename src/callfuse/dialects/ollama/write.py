"""Continue a client's stream of Ollama lines after calls have been withheld.

There is one `done` line, the last, and its counts are those of all answers; the model stays the first answer's. Content
and thinking of a next answer begin after a blank line where some went before. What is written is plain ASCII, because
Ollama's Python client also ends lines at U+0085, U+2028 and the like.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.base import Block, Entry, Frame, OpenCall
from callfuse.dialects.usage import Counts, Usage
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, loads
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
"""The time of a line that comes from no model; clients require one."""


def encoded(value: Any) -> bytes:
    """JSON without a character that any client takes for the end of a line."""
    return json.dumps(value, separators=(",", ":")).encode()


def counts_of(payload: Payload) -> Counts:
    """The counts of an answer that is done."""
    return {key: payload[key] for key in COUNTS if key in payload}


def usage_of(*, summed: bool) -> Usage:
    """Ollama's names for token counts."""
    return Usage("prompt_eval_count", "eval_count", summed=summed)


class ChatWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, *, structured: bool, summed: bool) -> None:
        self._structured = structured
        self._head: Payload = {}
        self._said: set[str] = set()
        self._break_due: set[str] = set()
        self._foreign = False
        self._usage = usage_of(summed=summed)

    @property
    def may_continue(self) -> bool:
        """A text that must fit a schema takes no second one."""
        return not (self._structured and "content" in self._said)

    def sent(self, payload: Payload) -> None:
        """Note what a line has given to the client."""
        for key in ("model", "created_at"):
            if key in payload and (key == "created_at" or key not in self._head):
                self._head[key] = payload[key]
        message = payload.get("message") or {}
        self._said.update(key for key in TEXTS if message.get(key))
        if payload.get("done"):
            self._usage.see(counts_of(payload))

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Lines without the withheld calls; the text of a block stands before the end, or in its line."""
        pieces: list[bytes] = []
        for frame in frames:
            payload = frame.payload
            if payload is None:
                pieces.append(frame.raw)
                continue
            edits = list(_without(frame, withheld))
            block = blocks.get(0) if payload.get("done") else None
            if block is not None:
                if (payload.get("message") or {}).get("content"):
                    edits.append(Edit(("message", "content"), partial(_with_text, block.text)))
                else:
                    pieces.append(self._text(block.text))
                if payload.get("done_reason", "stop") in OWN_REASONS:
                    edits.append(Edit(("done_reason",), encoded(block.finish or "stop")))
            if not (edits and _is_hollow(payload, edits)):
                self.sent(payload)
                pieces.append(_edited(frame.raw, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The texts among the held lines, without calls, counts and end."""
        pieces: list[bytes] = []
        for frame in frames:
            payload = frame.payload
            if payload is None:
                pieces.append(frame.raw)
                continue
            edits = list(_without(frame, withheld))
            if payload.get("done"):
                edits += _reopened(payload)
            if not (edits and _is_hollow(payload, edits)):
                pieces.append(_edited(frame.raw, edits).rstrip(b"\r\n") + b"\n")
            self.sent(payload)
        self._usage.next_answer()
        return b"".join(pieces)

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet."""
        self._foreign = foreign
        self._break_due = set(self._said)

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """A line of the next answer, as one of this stream."""
        if payload is None:
            return frame
        edits: list[Edit] = []
        if payload.get("model") != self._head.get("model") and "model" in self._head and "model" in payload:
            edits.append(Edit(("model",), encoded(self._head["model"])))
        message = payload.get("message") or {}
        for key in TEXTS:
            if self._foreign and key == "thinking" and key in message:
                edits.append(Edit(("message", key), None))
                if _is_hollow(payload, edits):
                    return b""
            elif message.get(key) and key in self._break_due:
                self._break_due.discard(key)
                edits.append(Edit(("message", key), _after_blank_line))
        if payload.get("done"):
            total = self._usage.see(counts_of(payload))
            edits += [Edit((key,), encoded(value)) for key, value in total.items() if payload.get(key) != value]
        return _edited(frame, edits)

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text and the end, where no further answer comes."""
        pieces = [self._text(block.text) for block in blocks.values()]
        finish = next((block.finish for block in blocks.values() if block.finish), "stop")
        end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": finish}
        return b"".join((*pieces, self._line(end | self._usage.total())))

    def _text(self, text: str) -> bytes:
        """A line with callfuse's own text."""
        content = f"\n\n{text}" if "content" in self._said else text
        self._said.add("content")
        return self._line({"message": {"role": "assistant", "content": content}, "done": False})

    def _line(self, rest: Payload) -> bytes:
        return encoded({"model": "", "created_at": NO_TIME} | self._head | rest) + b"\n"


def _without(frame: Frame, withheld: set[OpenCall]) -> Iterable[Edit]:
    """The edits that take the withheld calls out of a line and count the others anew."""
    entries: Sequence[Entry] = frame.entries
    if entries and all(entry.call in withheld for entry in entries):
        yield Edit(("message", "tool_calls"), None)
        return
    for entry in entries:
        shift = sum(call.index < entry.call.index for call in withheld)
        if entry.call in withheld:
            yield Edit(entry.path, None)
        elif shift and entry.call.numbered:
            yield Edit((*entry.path, "function", "index"), partial(_lower, shift))


def _reopened(payload: Payload) -> Iterable[Edit]:
    """The edits that make a last line one after which more comes."""
    yield Edit(("done",), b"false")
    for key in ("done_reason", *COUNTS):
        if key in payload:
            yield Edit((key,), None)


def _is_hollow(payload: Payload, edits: Sequence[Edit]) -> bool:
    """Whether a line says nothing any more once the edits are made."""
    if payload.get("done") and not any(edit.path == ("done",) for edit in edits):
        return False
    gone = {edit.path for edit in edits if edit.raw is None}
    message = payload.get("message") or {}
    return not any(value and key != "role" and ("message", key) not in gone for key, value in message.items())


def _edited(frame: bytes, edits: Sequence[Edit]) -> bytes:
    return NDJSON.with_text(frame, apply(NDJSON.text(frame), edits)) if edits else frame


def _lower(by: int, index: bytes) -> bytes:
    return str(int(index) - by).encode()


def _with_text(text: str, content: bytes) -> bytes:
    return encoded(f"{loads(content)}\n\n{text}")


def _after_blank_line(text: bytes) -> bytes:
    return b'"\\n\\n' + text[1:]
