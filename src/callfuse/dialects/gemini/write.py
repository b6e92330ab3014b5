"""Continue a client's stream of Gemini chunks after function calls have been withheld.

What is written has the stream's own id and model version. Every chunk that goes out has a candidate with parts, for
google-genai's chats drop an answer of which one chunk has none; a part that is taken out of a chunk that must stay
becomes an empty text, as the vendor itself ends its streams.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from callfuse.dialects.base import Block, Entry, Frame, OpenCall
from callfuse.dialects.gemini.channel import Channel, encoded
from callfuse.dialects.gemini.names import FUNCTION_CALL, SIGNATURE
from callfuse.dialects.gemini.read import STOPS
from callfuse.dialects.gemini.reasoning import signatures, thoughts
from callfuse.dialects.gemini.usage import GeminiUsage
from callfuse.dialects.thought_signatures import STAND_IN, stand_ins
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit

HEAD: Final = ("modelVersion", "createTime", "responseId")
ERROR_REASON: Final = "OTHER"
"""The vendor's finish reason that comes nearest to `error`."""
_SAYS_NOTHING: Final = frozenset({"content", "index", "finishReason", "finishMessage", "safetyRatings", "tokenCount"})
"""Keys of a candidate that need no chunk of their own."""
_EMPTY_PART: Final = b'{"text":""}'

Path = tuple[str | int, ...]


def says(part: Any) -> bool:
    """Whether a part is text that the client shows as the answer."""
    return bool(part.get("text")) and not part.get("thought")


class GeminiWriter:
    """The state of one client's stream, as far as writing on needs it."""

    def __init__(self, channel: Channel, *, model: str, structured: bool, summed: bool) -> None:
        self._channel = channel
        self._model = model
        self._structured = structured
        self._head: Payload = {}
        self._texts: set[int] = set()
        self._break_due: set[int] = set()
        self._called = False
        self._foreign = False
        self._usage = GeminiUsage(summed=summed)

    @property
    def may_continue(self) -> bool:
        """A text that must fit a schema takes no second one."""
        return not (self._structured and self._texts)

    def sent(self, payload: Payload) -> None:
        """Note what a chunk has given to the client."""
        self._channel.began()
        self._note(payload)

    def _note(self, payload: Payload, *, seen: bool = True) -> None:
        """What a chunk says of the answer; its texts only where the client has seen them."""
        self._see_head(payload)
        self._usage.see(payload.get("usageMetadata"))
        for candidate in payload.get("candidates") or ():
            if seen and any(map(says, _parts(candidate))):
                self._texts.add(_number(candidate))

    def _see_head(self, payload: Payload) -> None:
        if not self._head:
            self._head = {key: payload[key] for key in HEAD if key in payload}

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Chunks without the withheld calls; a blocked choice gets its text with its finish."""
        frames = list(frames)
        self._see_head(next((frame.payload for frame in frames if frame.payload), {}))
        unsigned = stand_ins(frames, withheld, is_signed, str(self._head.get("modelVersion") or self._model))
        pieces: list[bytes] = []
        left = dict(blocks)
        hollow = False
        for frame in frames:
            if frame.payload is None:
                if self._channel.is_end(frame.raw):
                    pieces += [self._end(choice, block) for choice, block in left.items()]
                    left = {}
                if not (hollow and self._channel.is_blank(frame.raw)):
                    pieces.append(self._channel.bare(frame.raw))
                continue
            edits: list[Edit] = [Edit((*path, SIGNATURE), encoded(STAND_IN)) for path in unsigned.get(id(frame), ())]
            hollow = bool(frame.payload.get("candidates"))
            for place, candidate in enumerate(frame.payload.get("candidates") or ()):
                gone = _places(frame.entries, place, withheld)
                ends = bool(candidate.get("finishReason"))
                block = left.pop(_number(candidate), None) if ends else None
                hollow &= bool(gone) and not ends and _is_hollow(candidate, gone)
                if block is not None:
                    edits += self._blocked(place, candidate, gone, block)
                else:
                    edits += _without(place, candidate, gone)
            if not hollow:
                self._note(frame.payload)
                pieces.append(self._channel.edited(frame.raw, edits))
        if left:
            pieces = [*map(self._channel.ended, pieces), *(self._end(choice, block) for choice, block in left.items())]
        return b"".join(pieces)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """The texts among the held chunks, without calls, finish and end."""
        pieces: list[bytes] = []
        for frame in frames:
            if frame.payload is None:
                pieces.append(self._channel.bare(frame.raw, ends=False))
                continue
            edits: list[Edit] = []
            hollow = True
            for place, candidate in enumerate(frame.payload.get("candidates") or ()):
                gone = _places(frame.entries, place, withheld)
                hollow &= _is_hollow(candidate, gone)
                edits += _without(place, candidate, gone)
                edits += [
                    Edit(("candidates", place, key), None)
                    for key in ("finishReason", "finishMessage")
                    if key in candidate
                ]
            self._note(frame.payload, seen=not hollow)
            if not hollow:
                pieces.append(self._channel.ended(self._channel.edited(frame.raw, edits)))
        self._usage.next_answer()
        return b"".join(pieces)

    def next_answer(self, *, foreign: bool) -> None:
        """Nothing of it has come yet."""
        self._foreign = foreign
        self._channel.next_answer()
        self._break_due = set(self._texts)
        self._called = False

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """A chunk of the next answer, as one of this stream."""
        if payload is None:
            return self._channel.bare(frame)
        edits = [
            Edit((key,), encoded(value))
            for key, value in self._head.items()
            if key in payload and payload[key] != value
        ]
        if "usageMetadata" in payload:
            edits.append(Edit(("usageMetadata",), encoded(self._usage.see(payload["usageMetadata"]))))
        hollow = self._foreign and bool(payload.get("candidates"))
        for place, candidate in enumerate(payload.get("candidates") or ()):
            if self._foreign:
                gone = thoughts(_parts(candidate))
                hollow &= bool(gone) and "finishReason" not in candidate and _is_hollow(candidate, gone)
                edits += [*_without(place, candidate, gone), *self._signatures(place, candidate)]
            if _number(candidate) not in self._break_due:
                continue
            at = next((at for at, part in enumerate(_parts(candidate)) if says(part)), None)
            if at is not None:
                self._break_due.discard(_number(candidate))
                edits.append(Edit((*_path(place), at, "text"), after_blank_line))
        return b"" if hollow else self._channel.spliced(frame, edits)

    def _signatures(self, place: int, candidate: Payload) -> Iterator[Edit]:
        """The edits that replace another model's signatures."""
        parts, begins = _parts(candidate), not self._called
        self._called |= any(FUNCTION_CALL in part for part in parts)
        return signatures(parts, _path(place), self._model, begins=begins)

    def close(self, blocks: Mapping[int, Block]) -> bytes:
        """The text, the finish with all usage, and the end, where no further answer comes."""
        return b"".join(self._end(choice, block) for choice, block in blocks.items()) + self._channel.end()

    def _end(self, choice: int, block: Block) -> bytes:
        """A chunk that says why, and ends its choice."""
        part = {"text": self._parted(choice, block.text)}
        candidate = {
            "content": {"parts": [part], "role": "model"},
            "finishReason": ERROR_REASON if block.finish else "STOP",
            "index": choice,
        }
        usage = self._usage.total()
        return self._channel.chunk(
            {"candidates": [candidate]} | ({"usageMetadata": usage} if usage else {}) | self._head
        )

    def _parted(self, choice: int, text: str) -> str:
        """A text of callfuse's own, after a blank line where the client has text."""
        before = choice in self._texts
        self._texts.add(choice)
        return f"\n\n{text}" if before else text

    def _blocked(self, place: int, candidate: Payload, gone: Sequence[int], block: Block) -> Iterator[Edit]:
        """The edits that put the text of a block into the chunk that ends its choice."""
        parts = _parts(candidate)
        if any(says(part) for at, part in enumerate(parts) if at not in gone):
            self._texts.add(_number(candidate))
        part = encoded({"text": self._parted(_number(candidate), block.text)})
        if isinstance((candidate.get("content") or {}).get("parts"), list):
            for at in gone:
                yield Edit((*_path(place), at), None)
            yield Edit((*_path(place), END), part)
        else:
            yield Edit(("candidates", place, "content"), b'{"parts":[' + part + b'],"role":"model"}')
        if candidate["finishReason"] in STOPS and block.finish:
            yield Edit(("candidates", place, "finishReason"), encoded(ERROR_REASON))
        if "finishMessage" in candidate:
            yield Edit(("candidates", place, "finishMessage"), None)


def is_signed(call: OpenCall) -> bool:
    """Whether a call carries a thought signature."""
    return SIGNATURE in call.extra


def after_blank_line(text: bytes) -> bytes:
    """A JSON string with a blank line before it."""
    return b'"\\n\\n' + text[1:]


def _number(candidate: Payload) -> int:
    return candidate.get("index") or 0


def _parts(candidate: Payload) -> Sequence[Payload]:
    return (candidate.get("content") or {}).get("parts") or ()


def _path(place: int) -> Path:
    return ("candidates", place, "content", "parts")


def _places(entries: Sequence[Entry], place: int, withheld: set[OpenCall]) -> list[int]:
    """Which parts of a candidate belong to withheld calls."""
    return [int(entry.path[-1]) for entry in entries if entry.path[1] == place and entry.call in withheld]


def _is_hollow(candidate: Payload, gone: Sequence[int]) -> bool:
    """Whether a candidate says nothing any more without these parts."""
    if not candidate.keys() <= _SAYS_NOTHING:
        return False
    left = [part for at, part in enumerate(_parts(candidate)) if at not in gone]
    return all(part.keys() <= {"text", "thought"} and not part.get("text") for part in left)


def _without(place: int, candidate: Payload, gone: Sequence[int]) -> Iterator[Edit]:
    """The edits that take parts out of a candidate; where none is left there is an empty text."""
    for at in gone:
        yield Edit((*_path(place), at), None)
    if gone and len(gone) == len(_parts(candidate)):
        yield Edit((*_path(place), END), _EMPTY_PART)
