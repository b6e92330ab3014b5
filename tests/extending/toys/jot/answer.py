"""Jot's answers: read, and written on after calls have been withheld. A call stands on a line of its own."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from callfuse.dialects.base import AnswerWriter, Block, Entry, Event, Frame, OpenCall, Reader, What, WholeChoice
from callfuse.dialects.said import TEXT, SaidPiece, piece_in
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps, loads


class JotReader(Reader):
    """Each call opens and closes with its line."""

    def read(self, payload: Payload) -> Sequence[Event]:
        """What one line says."""
        self.entries = []
        if "error" in payload:
            return (Event(What.BROKE),)
        if "end" in payload:
            return Event(What.FINISHED), Event(What.ENDED)
        if "call" not in payload:
            return ()
        made = payload["call"]
        call = OpenCall(0, len(self.calls), made["id"], made["name"], made["arguments"], closed=True, numbered=False)
        self.calls.append(call)
        self.entries.append(Entry(("call",), call))
        return Event(What.OPENED, 0, call), Event(What.CLOSED, 0, call)


class JotWriter(AnswerWriter):
    """Knows whether the client has been given text, which another text is parted from."""

    def __init__(self) -> None:
        self._has_text = False

    @property
    def may_continue(self) -> bool:
        """Text may follow text."""
        return True

    def note_sent(self, payload: Payload) -> None:
        """Note a line that has gone out."""
        self._has_text |= "text" in payload

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """The lines without the withheld calls; a block stands before the end."""
        out: list[bytes] = []
        for frame in frames:
            payload = frame.payload or {}
            if any(entry.call in withheld for entry in frame.entries):
                continue
            if "end" in payload and blocks:
                out.append(self.close(blocks))
                continue
            self.note_sent(payload)
            out.append(frame.raw)
        return b"".join(out)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The texts."""
        kept = [frame for frame in frames if not frame.entries and "end" not in (frame.payload or {})]
        for frame in kept:
            self.note_sent(frame.payload or {})
        return b"".join(frame.raw for frame in kept)

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing is different."""

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """The line as it is."""
        return frame

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """The text and the end."""
        if called:
            return dumps({"end": "calls"}) + b"\n"
        said = "\n\n".join(block.text for block in blocks.values())
        text = {"text": f"\n\n{said}" if self._has_text else said}
        return dumps(text) + b"\n" + dumps({"end": "stop" if cut is None else "limit"}) + b"\n"

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the calls at these places."""
        answer: Payload = loads(body)
        gone = {place for _, place in withheld}
        answer["calls"] = [call for at, call in enumerate(answer["calls"]) if at not in gone]
        for block in blocks.values():
            answer |= {"text": f"{answer['text']}\n\n{block.text}".strip(), "end": "stop"}
        return dumps(answer)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """The second answer with the text of the first in front."""
        answer: Payload = loads(second)
        return dumps(answer | {"text": f"{loads(first)['text']}\n\n{answer['text']}".strip()})


def calls_of(message: Any) -> tuple[ToolCall, ...]:
    """The calls of a message, or of a whole answer."""
    return tuple(ToolCall(one["id"], one["name"], one["arguments"]) for one in message.get("calls", ()))


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    return [WholeChoice(0, calls_of(payload))]


def said(payload: Payload) -> Iterator[SaidPiece]:
    """The text of a line, or of a whole answer."""
    return piece_in(TEXT, "text", payload.get("text"))


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """The message that the lines come to."""
    text = "".join(payload.get("text", "") for payload in payloads)
    return _message(text, [payload["call"] for payload in payloads if "call" in payload])


def model_turn_of_whole(payload: Payload) -> bytes:
    """The message of a whole answer."""
    return _message(payload["text"], payload["calls"])


def _message(text: str, calls: Sequence[Any]) -> bytes:
    return json.dumps({"role": "assistant", "content": text, "calls": calls}).encode()
