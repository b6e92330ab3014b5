"""Continues Gemini's answers after calls have been withheld, streamed or whole.

Written chunks have the stream's id and model version. Each has a candidate with parts, because google-genai's chats
drop an answer if one of its chunks has none. If a chunk must stay but loses its only part, it gets an empty text; the
vendor also ends its streams with one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from callfuse.dialects.base import AnswerWriter, Block, Entry, Frame, OpenCall
from callfuse.dialects.edits import break_before, raw_at, raw_elements, raw_list
from callfuse.dialects.gemini.answer import (
    STOPS,
    TEXT_KEYS,
    GeminiReader,
    calls_by_candidate,
    candidates_of,
    number_of,
    parts_of,
    parts_path,
)
from callfuse.dialects.gemini.channel import Channel
from callfuse.dialects.gemini.parts import FUNCTION_CALL, SIGNATURE, is_answer_text, replace_signatures, thoughts
from callfuse.dialects.shapes import is_one_of, object_of
from callfuse.dialects.thought_signatures import STAND_IN, stand_ins
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, NotJSON, apply, dumps_ascii, loads

_ERROR_REASON: Final = "OTHER"
"""The vendor's finish reason that is closest to `error`."""
_HEAD: Final = ("modelVersion", "createTime", "responseId")
_NEEDS_NO_CHUNK: Final = frozenset({"content", "index", "finishReason", "finishMessage", "safetyRatings", "tokenCount"})
"""Keys of a candidate that do not justify a chunk of their own."""
_OUTPUTS: Final = "(candidatesTokenCount|thoughtsTokenCount|candidatesTokensDetails)$"
_COUNTS: Final = ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
"""The counts that add up to the total."""
_EMPTY_PART: Final = b'{"text":""}'


class GeminiWriter(AnswerWriter):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`.

    A choice is a candidate's `index`; in whole answers its place.
    """

    def __init__(self, channel: Channel, *, model: str, structured: bool, summed: bool) -> None:
        self._channel = channel
        self._is_whole = False
        self._model = model
        self._structured = structured
        self._head: Payload = {}
        self._texts: set[int] = set()
        """Choices in which the client has text."""
        self._break_due: set[int] = set()
        """Choices whose next text begins after a blank line."""
        self._called = False
        self._foreign = False
        self._usage = TokenUsage(_OUTPUTS, "totalTokenCount", _COUNTS, summed=summed)

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has text that must fit a schema."""
        return not (self._structured and self._texts)

    def note_sent(self, payload: Payload) -> None:
        """Note a chunk that the client got."""
        self._channel.note_chunk()
        self._note(payload)

    def _note(self, payload: Payload, *, seen: bool = True) -> None:
        """Note a chunk's head and usage and, if the client has `seen` the chunk, its texts."""
        self._note_head(payload)
        self._usage.see(payload.get("usageMetadata"))
        for candidate in candidates_of(payload):
            if seen and any(map(is_answer_text, parts_of(candidate))):
                self._texts.add(number_of(candidate))

    def _note_head(self, payload: Payload) -> None:
        if not self._head:
            self._head = {name: payload[name] for name in _HEAD if name in payload}

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the chunks without withheld calls. A blocked choice gets its text in the chunk with its finish."""
        frames = list(frames)
        self._note_head(next((frame.payload for frame in frames if frame.payload), {}))
        unsigned = self._stand_ins(frames, withheld)
        pieces: list[bytes] = []
        left = dict(blocks)
        hollow = False
        for frame in frames:
            if frame.payload is None:
                if self._channel.is_end(frame.raw):
                    pieces += [self._end(choice, block) for choice, block in left.items()]
                    left = {}
                if not (hollow and self._channel.is_separator(frame.raw)):
                    pieces.append(self._channel.bare(frame.raw))
                continue
            edits, hollow = self._thin(frame, withheld, left)
            if not hollow:
                self._note(frame.payload)
                pieces.append(self._channel.edit(frame.raw, [*unsigned.get(id(frame), ()), *edits]))
        if left:
            pieces = [self._channel.terminate(piece) for piece in pieces]
            pieces += [self._end(choice, block) for choice, block in left.items()]
        return b"".join(pieces)

    def _stand_ins(self, frames: Sequence[Frame], withheld: set[OpenCall]) -> dict[int, list[Edit]]:
        """Return, by a frame's `id()`, the edits that give delivered calls the stand-in for a lost signature."""
        model = str(self._head.get("modelVersion") or self._model)
        found = stand_ins(frames, withheld, lambda call: SIGNATURE in call.extra, model)
        return {at: [Edit((*path, SIGNATURE), dumps_ascii(STAND_IN)) for path in paths] for at, paths in found.items()}

    def _thin(self, frame: Frame, withheld: set[OpenCall], blocks: dict[int, Block]) -> tuple[list[Edit], bool]:
        """Return the edits that remove withheld calls from a frame and insert blocks at the end of their choices, and
        whether the frame then has nothing left to say. Inserted blocks are removed from `blocks`."""
        edits: list[Edit] = []
        candidates = candidates_of(frame.payload or {})
        hollow = bool(candidates)
        for place, candidate in enumerate(candidates):
            gone = _places(frame.entries, place, withheld)
            ends = self._is_whole or bool(candidate.get("finishReason"))
            choice = place if self._is_whole else number_of(candidate)
            block = blocks.pop(choice, None) if ends else None
            hollow &= bool(gone) and not ends and _is_hollow(candidate, gone)
            if block is not None:
                edits += self._block(place, choice, candidate, gone, block)
            else:
                edits += self._remove(place, candidate, gone)
        return edits, hollow

    def _remove(self, place: int, candidate: Payload, gone: Sequence[int]) -> Iterator[Edit]:
        """Yield the edits that remove parts of a candidate; the last part of a chunk is replaced by an empty text."""
        for at in gone:
            yield Edit((*parts_path(place), at), None)
        if gone and len(gone) == len(parts_of(candidate)) and not self._is_whole:
            yield Edit((*parts_path(place), END), _EMPTY_PART)

    def _block(self, place: int, choice: int, candidate: Payload, gone: Sequence[int], block: Block) -> Iterator[Edit]:
        """Yield the edits that insert a block into the candidate that ends its choice."""
        if any(map(is_answer_text, parts_of(candidate))):
            self._texts.add(choice)
        text = self._own_text(choice, block.text)
        part = dumps_ascii({"text": text})
        if isinstance(object_of(candidate.get("content")).get("parts"), list):
            bare, signed = _empty_texts(candidate, gone)
            for at in (*gone, *bare):
                yield Edit((*parts_path(place), at), None)
            if signed:
                yield Edit((*parts_path(place), signed[-1], "text"), dumps_ascii(text))
            else:
                yield Edit((*parts_path(place), END), part)
        else:
            yield Edit(("candidates", place, "content"), b'{"parts":[' + part + b'],"role":"model"}')
        if is_one_of(candidate.get("finishReason"), STOPS) and block.finish:
            yield Edit(("candidates", place, "finishReason"), dumps_ascii(_ERROR_REASON))
        if "finishMessage" in candidate:
            yield Edit(("candidates", place, "finishMessage"), None)

    def _own_text(self, choice: int, text: str) -> str:
        """Return a text by callfuse, after a blank line if the client has text."""
        before = choice in self._texts
        self._texts.add(choice)
        return f"\n\n{text}" if before else text

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return the held chunks without withheld calls, finish and end, and without text that must fit a schema,
        because the next answer has its own."""
        pieces: list[bytes] = []
        for frame in frames:
            if frame.payload is None:
                pieces.append(self._channel.bare(frame.raw, ends=False))
                continue
            edits: list[Edit] = []
            hollow = True
            for place, candidate in enumerate(candidates_of(frame.payload)):
                gone = sorted({*_places(frame.entries, place, withheld), *self._superseded(candidate)})
                hollow &= _is_hollow(candidate, gone)
                edits += self._remove(place, candidate, gone)
                finish = {"finishReason", "finishMessage"} & candidate.keys()
                edits += [Edit(("candidates", place, name), None) for name in finish]
            self._note(frame.payload, seen=not (hollow or self._structured))
            if not hollow:
                pieces.append(self._channel.terminate(self._channel.edit(frame.raw, edits)))
        self._usage.next_answer()
        return b"".join(pieces)

    def _superseded(self, candidate: Payload) -> list[int]:
        """Return the indexes of parts to leave out because the next answer has its own: texts that must fit a
        schema."""
        return [at for at, part in enumerate(parts_of(candidate)) if self._structured and is_answer_text(part)]

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._foreign = foreign
        self._channel.next_answer()
        self._break_due = set(self._texts)
        self._called = False

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite a chunk of the next answer for this stream; empty if the client must not see it."""
        if payload is None:
            return self._channel.bare(frame)
        edits, hollow = self._splice(payload)
        return b"" if hollow else self._channel.edit(frame, edits, spliced=True)

    def _splice(self, payload: Payload) -> tuple[list[Edit], bool]:
        """Return the edits that turn a payload of the next answer into a payload of this stream, and whether it then
        has nothing left to say."""
        edits = [
            Edit((name,), dumps_ascii(value)) for name, value in self._head.items() if payload.get(name, value) != value
        ]
        if total := self._usage.see(payload.get("usageMetadata")):
            edits.append(Edit(("usageMetadata",), dumps_ascii(total)))
        candidates = candidates_of(payload)
        hollow = self._foreign and bool(candidates)
        for place, candidate in enumerate(candidates):
            parts = parts_of(candidate)
            if self._foreign:
                gone = thoughts(parts)
                hollow &= bool(gone) and "finishReason" not in candidate and _is_hollow(candidate, gone)
                edits += self._remove(place, candidate, gone)
                edits += replace_signatures(parts, parts_path(place), self._model, begins=not self._called)
                self._called |= any(FUNCTION_CALL in part for part in parts)
            if number_of(candidate) not in self._break_due:
                continue
            at = next((at for at, part in enumerate(parts) if is_answer_text(part)), None)
            if at is not None:
                self._break_due.discard(number_of(candidate))
                edits.append(Edit((*parts_path(place), at, "text"), break_before))
        return edits, hollow

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the blocks' texts, the finish with the usage of all answers, and the end. `STOP` ends calls, too."""
        if cut is not None:
            text = "".join([f"\n\n{block.text}" for block in blocks.values()])  # text may have passed unread
            return self._finish(0, text, "MAX_TOKENS") + self._channel.end()
        ends = [self._end(choice, block) for choice, block in blocks.items()]
        if called:
            ends.append(self._finish(0, "", "STOP"))
        return b"".join(ends) + self._channel.end()

    def _end(self, choice: int, block: Block) -> bytes:
        """Return a chunk with a block's text that ends its choice."""
        return self._finish(choice, self._own_text(choice, block.text), _ERROR_REASON if block.finish else "STOP")

    def _finish(self, choice: int, text: str, reason: str) -> bytes:
        """Return a chunk with a text and the finish of a choice."""
        content = {"parts": [{"text": text}], "role": "model"}
        candidate = {"content": content, "finishReason": reason, "index": choice}
        usage = self._usage.total()
        counts = {"usageMetadata": usage} if usage else {}
        return self._channel.chunk({"candidates": [candidate]} | counts | self._head)

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return a whole answer without the calls at these (candidate, call) places."""
        self._is_whole = True
        payload: Payload = loads(body)
        self._note_head(payload)
        reader = GeminiReader(trace=True)
        calls = calls_by_candidate(reader, payload)
        gone = {calls[candidate][place] for candidate, place in withheld}
        frame = Frame(body, payload, tuple(reader.entries))
        edits, _ = self._thin(frame, gone, dict(blocks))
        return apply(body, [*self._stand_ins([frame], gone).get(id(frame), ()), *edits])

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second answer with the first one's head, the first one's parts in front (without texts that must
        fit a schema), and the usage of both. Raises NotJSON if the second's first candidate is not an object."""
        self._is_whole = True
        one, other = loads(first), loads(second)
        if not raw_at(second, ("candidates", 0)).startswith(b"{") and other.get("candidates"):
            raise NotJSON("no candidate")
        if self._structured and (candidates := one.get("candidates")):
            first = apply(first, [Edit((*parts_path(0), at), None) for at in self._superseded(candidates[0])])
        self._note(one, seen=not self._structured)
        self._usage.next_answer()
        self.next_answer(foreign=foreign)
        second = apply(second, self._splice(other)[0])
        if not other.get("candidates"):
            return second
        after = raw_elements(second, parts_path(0))
        parts = raw_list((*raw_elements(first, parts_path(0)), *after))
        if after:
            return apply(second, [Edit(parts_path(0), parts)])
        return apply(second, [Edit(("candidates", 0, "content"), b'{"parts":' + parts + b',"role":"model"}')])


def _places(entries: Sequence[Entry], place: int, withheld: set[OpenCall]) -> list[int]:
    """Return the indexes of the parts of a candidate that belong to withheld calls, in order."""
    return [int(entry.path[-1]) for entry in entries if entry.path[1] == place and entry.call in withheld]


def _empty_texts(candidate: Payload, gone: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the indexes of the parts, apart from those at `gone`, that are empty texts: bare, and with a signature.

    Gemini CLI drops a content with such a part from its history, whatever else it contains.
    """
    lost = set(gone)
    bare: list[int] = []
    signed: list[int] = []
    for at, part in enumerate(parts_of(candidate)):
        if at not in lost and part.get("text") == "" and not part.get("thought"):
            (bare if len(part) == 1 else signed).append(at)
    return bare, signed


def _is_hollow(candidate: Payload, gone: Sequence[int]) -> bool:
    """Whether a candidate has nothing left to say once the parts at `gone` are removed."""
    if not candidate.keys() <= _NEEDS_NO_CHUNK:
        return False
    lost = set(gone)
    left = [part for at, part in enumerate(parts_of(candidate)) if at not in lost]
    return all(part.keys() <= TEXT_KEYS and not part.get("text") for part in left)
