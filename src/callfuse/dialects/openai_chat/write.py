"""Continue a client's stream of chat completion chunks after calls have been withheld.

What is written has the stream's own id, created, model and fingerprint. Frames of the next answer take these too, lose
their role, and their text begins after a blank line where text went before. Every chunk is changed surgically.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from callfuse.dialects.base import Block, Entry, Frame, OpenCall
from callfuse.dialects.openai_chat.reasoning import is_signed, stood_in, without_reasoning
from callfuse.dialects.thought_signatures import stand_ins
from callfuse.dialects.usage import Usage
from callfuse.wire import Payload, sse
from callfuse.wire.jsontext import Edit, apply, dumps

HEAD: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "provider")
DONE: Final = b"[DONE]"
OWN_REASONS: Final = frozenset({"tool_calls", "function_call", "stop"})
"""Finish reasons that a block replaces; `length`, `content_filter` and the like stay."""

Path = tuple[str | int, ...]


class ChatWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, *, structured: bool, wants_usage: bool, summed: bool) -> None:
        self._structured = structured
        self._wants_usage = wants_usage
        self._head: Payload = {}
        self._roles: set[int] = set()
        self._texts: set[int] = set()
        self._details_sent = False
        self._break_due: set[int] = set()
        self._details_due = True
        self._called: set[int] = set()
        self._foreign = False
        self._usage = Usage("prompt_tokens", "completion_tokens", "total_tokens", summed=summed)

    @property
    def may_continue(self) -> bool:
        """A text that must fit a schema takes no second one."""
        return not (self._structured and self._texts)

    def sent(self, payload: Payload) -> None:
        """Note what a chunk has given to the client."""
        self._see_head(payload)
        self._usage.see(payload.get("usage"))
        for choice in payload.get("choices") or ():
            delta = choice.get("delta") or {}
            number = choice.get("index") or 0
            if delta.get("role"):
                self._roles.add(number)
            if delta.get("content") or delta.get("refusal"):
                self._texts.add(number)
            self._details_sent |= bool(delta.get("reasoning_details"))

    def _see_head(self, payload: Payload) -> None:
        """The stream's identity, of its first chunk, whether that went out or not."""
        if not self._head and payload.get("choices"):
            self._head = {key: payload[key] for key in HEAD if key in payload}

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Chunks without the withheld calls; a blocked choice gets its text before its finish."""
        frames = list(frames)
        ends = _ends(frames, blocks)
        unsigned = stand_ins(frames, withheld, lambda call: is_signed(call.extra), _model_of(frames))
        pieces: list[bytes] = []
        left = dict(blocks)
        for at, frame in enumerate(frames):
            if frame.payload is None:
                pieces.append(frame.raw)
                continue
            self._see_head(frame.payload)
            edits = list(_without(frame, withheld))
            edits += [Edit((*path, "extra_content"), stood_in) for path in unsigned.get(id(frame), ())]
            parts = frame.payload.get("choices") or ()
            for place in ends.get(at, ()):
                choice = parts[place]
                number = choice.get("index") or 0
                block = blocks[number]
                if left.pop(number, None):
                    if (choice.get("delta") or {}).get("content") and not self._structured:
                        path = ("choices", place, "delta", "content")
                        edits.append(Edit(path, partial(_before_text, block.text)))
                    else:
                        pieces.append(self._text(number, block.text))
                if (choice.get("finish_reason") or "stop") in OWN_REASONS:
                    edits.append(Edit(("choices", place, "finish_reason"), dumps(block.finish or "stop")))
            if at in ends or not edits or not self._is_hollow(frame.payload, edits):
                pieces.append(self._edited(frame, edits))
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The texts among the held chunks, without calls, finish, usage and end."""
        pieces: list[bytes] = []
        for frame in frames:
            if frame.payload is None:
                if not self.is_done(frame.raw):
                    pieces.append(frame.raw)
                continue
            self._usage.see(frame.payload.get("usage"))
            self._see_head(frame.payload)
            edits = list(_without(frame, withheld))
            for place, choice in enumerate(frame.payload.get("choices") or ()):
                if choice.get("finish_reason"):
                    edits.append(Edit(("choices", place, "finish_reason"), b"null"))
            if frame.payload.get("usage"):
                edits.append(Edit(("usage",), b"null"))
            if frame.payload.get("choices") and not self._is_hollow(frame.payload, edits):
                pieces.append(self._edited(frame, edits))
        self._usage.next_answer()
        return b"".join(pieces)

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet."""
        self._foreign = foreign
        self._break_due = set(self._texts)
        self._details_due = not self._details_sent
        self._called = set()

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """A chunk of the next answer, as one of this stream."""
        if payload is None or (not payload.get("choices") and "usage" not in payload):
            return frame
        edits = [Edit((key,), dumps(value)) for key, value in self._head.items() if key in payload]
        if usage := self._usage.see(payload.get("usage")):
            edits.append(Edit(("usage",), dumps(usage)))
        for place, choice in enumerate(payload.get("choices") or ()):
            edits += self._spliced(("choices", place, "delta"), choice)
        if payload.get("choices") and self._is_hollow(payload, edits):
            return b""
        return sse.with_data(frame, apply(sse.data(frame) or b"{}", edits))

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text, the finish and the end, where no further answer comes."""
        pieces = [self._end(choice, block) for choice, block in blocks.items()]
        usage = self._usage.total()
        if usage and self._wants_usage:
            pieces.append(sse.event(dumps(self._head | {"choices": [], "usage": usage})))
        return b"".join((*pieces, sse.event(DONE)))

    @staticmethod
    def is_done(frame: bytes) -> bool:
        """Whether the frame is the terminal one."""
        return (sse.data(frame) or b"").strip() == DONE

    def _spliced(self, path: Path, choice: Payload) -> list[Edit]:
        """The edits that make a delta of the next answer one of this stream."""
        delta = choice.get("delta") or {}
        number = choice.get("index") or 0
        edits: list[Edit] = []
        if delta.get("role") and number in self._roles:
            edits.append(Edit((*path, "role"), None))
        if self._foreign:
            reader, begins = str(self._head.get("model") or ""), number not in self._called
            edits += without_reasoning(delta, path, reader, begins=begins)
        elif delta.get("reasoning_details") and not self._details_due:
            edits.append(Edit((*path, "reasoning_details"), None))
        if delta.get("tool_calls"):
            self._called.add(number)
        if isinstance(delta.get("content"), str) and delta["content"] and number in self._break_due:
            self._break_due.discard(number)
            edits.append(Edit((*path, "content"), _after_blank_line))
        return edits

    def _text(self, choice: int, text: str) -> bytes:
        """A chunk with callfuse's own text: content, or a refusal where plain text would not fit the schema."""
        delta: Payload = {} if choice in self._roles else {"role": "assistant"}
        self._roles.add(choice)
        if self._structured:
            delta["refusal"] = text
        else:
            delta["content"] = f"\n\n{text}" if choice in self._texts else text
        return self._chunk({"index": choice, "delta": delta, "logprobs": None, "finish_reason": None})

    def _end(self, choice: int, block: Block) -> bytes:
        finish = {"index": choice, "delta": {}, "logprobs": None, "finish_reason": block.finish or "stop"}
        return self._text(choice, block.text) + self._chunk(finish)

    def _chunk(self, choice: Payload) -> bytes:
        return sse.event(dumps(self._head | {"choices": [choice]}))

    def _edited(self, frame: Frame, edits: Sequence[Edit]) -> bytes:
        if frame.payload:
            self.sent(frame.payload)
        if not edits:
            return frame.raw
        return sse.with_data(frame.raw, apply(sse.data(frame.raw) or b"{}", edits))

    def _is_hollow(self, payload: Payload, edits: Sequence[Edit]) -> bool:
        """Whether a chunk says nothing any more once the edits are made."""
        gone = {edit.path for edit in edits if edit.raw is None or edit.raw == b"null"}
        if payload.get("usage") and ("usage",) not in gone:
            return False
        for place, choice in enumerate(payload.get("choices") or ()):
            at: Path = ("choices", place)
            if choice.get("finish_reason") and (*at, "finish_reason") not in gone:
                return False
            role_is_new = (choice.get("index") or 0) not in self._roles
            for key, value in (choice.get("delta") or {}).items():
                if value and (*at, "delta", key) not in gone and (key != "role" or role_is_new):
                    return False
        return True


def _ends(frames: Sequence[Frame], choices: Collection[int]) -> dict[int, list[int]]:
    """The parts that end these choices, by the place of their frame: those with a finish reason, or the last one."""
    ends: dict[int, list[int]] = {}
    for number in choices:
        parts = [
            (at, place, bool(part.get("finish_reason")))
            for at, frame in enumerate(frames)
            for place, part in enumerate((frame.payload or {}).get("choices") or ())
            if (part.get("index") or 0) == number
        ]
        for at, place, _ in [part for part in parts if part[2]] or parts[-1:]:
            ends.setdefault(at, []).append(place)
    return ends


def _model_of(frames: Iterable[Frame]) -> str:
    """The model that has answered."""
    return next((str(frame.payload["model"]) for frame in frames if frame.payload and frame.payload.get("model")), "")


def _without(frame: Frame, withheld: set[OpenCall]) -> Iterable[Edit]:
    """The edits that take the withheld calls' parts out of a chunk and count the others anew."""
    lists: dict[Path, list[Entry]] = {}
    for entry in frame.entries:
        if entry.path[-1] == "function_call":
            if entry.call in withheld:
                yield Edit(entry.path, None)
        else:
            lists.setdefault(entry.path[:-1], []).append(entry)
        if entry.call in withheld:
            yield from _copies(frame.payload or {}, entry.path[:2])
    for path, parts in lists.items():
        if all(entry.call in withheld for entry in parts):
            yield Edit(path, None)
            continue
        for entry in parts:
            shift = sum(call.choice == entry.call.choice and call.index < entry.call.index for call in withheld)
            if entry.call in withheld:
                yield Edit(entry.path, None)
            elif shift and entry.call.numbered:
                yield Edit((*entry.path, "index"), partial(_lower, shift))


def _copies(payload: Payload, path: Path) -> Iterable[Edit]:
    """Writer repeats a chunk's delta as its `message`: the calls go there too."""
    message = payload[str(path[0])][path[1]].get("message")
    if isinstance(message, dict) and message.get("tool_calls"):
        yield Edit((*path, "message", "tool_calls"), b"null")


def _lower(by: int, index: bytes) -> bytes:
    return str(int(index) - by).encode()


def _before_text(text: str, content: bytes) -> bytes:
    return content[:-1] + dumps(f"\n\n{text}")[1:]


def _after_blank_line(text: bytes) -> bytes:
    return b'"\\n\\n' + text[1:]
