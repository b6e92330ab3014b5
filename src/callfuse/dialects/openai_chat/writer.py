"""Continues a client's chat completion after calls have been withheld, streamed in chunks or whole.

All chunks have the id, created, model and fingerprint of the client's stream. Chunks of the next answer get these, too,
and lose their role; their text begins after a blank line if there was text before. Bytes that need no change stay.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from callfuse.dialects.base import AnswerWriter, Block, Entry, Frame, OpenCall
from callfuse.dialects.edits import append_to_string, break_before, lower_index, prepend_to_string, raw_at
from callfuse.dialects.openai_chat.answer import says_nothing
from callfuse.dialects.openai_chat.chunk import ChoicePart, choice_parts
from callfuse.dialects.openai_chat.details import KEY as DETAILS
from callfuse.dialects.openai_chat.details import call_ids, without_details, without_loose_details
from callfuse.dialects.openai_chat.reasoning import (
    MESSAGE,
    REASONING_TEXTS,
    first_reasoning,
    with_reasoning_of,
    without_reasoning,
)
from callfuse.dialects.shapes import list_of, object_of, text_of
from callfuse.dialects.thought_signatures import add_stand_in, heirs, is_signed, stand_ins
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import EVENTS, Payload, sse
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import Edit, NotJSON, Path, apply, dumps, loads

HEAD: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "provider")
OWN_REASONS: Final = frozenset({"tool_calls", "function_call", "stop", "", None})
"""Finish reasons that a block replaces (also a missing one); `length`, `content_filter` and the like stay."""
_CALL: Final = attrgetter("call")


class ChatWriter(AnswerWriter):
    """Continues one client's stream, and changes whole answers. Keeps what the client has received: identity, roles,
    whether there was text, usage."""

    def __init__(self, *, structured: bool, wants_usage: bool, summed: bool) -> None:
        self._structured = structured
        self._wants_usage = wants_usage
        self._head: Payload = {}
        self._head_edits: dict[str, Edit] = {}
        self._roles: set[int] = set()
        self._texts: set[int] = set()
        self._details_sent = False
        self._break_due: set[int] = set()
        self._details_due = True
        self._called: set[int] = set()
        self._foreign = False
        parts = ("prompt_tokens", "completion_tokens")
        self._usage = TokenUsage("completion", "total_tokens", parts, summed=summed)
        self._editor = FrameEditor(EVENTS)

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has text that must fit a schema."""
        return not (self._structured and self._texts)

    def note_sent(self, payload: Payload) -> None:
        """Note what the client got in a chunk."""
        self._see(payload, choice_parts(payload), ())

    def _see(self, payload: Payload, parts: Sequence[ChoicePart], gone: Collection[Path]) -> None:
        """Note what the client gets in a chunk. `gone`: the paths of values that it does not get."""
        self._see_head(payload)
        if usage := payload.get("usage"):
            self._usage.see(usage)
        for place, number, _, delta in parts:
            if delta.get("role"):
                self._roles.add(number)
            is_said = delta.get("content") and ("choices", place, "delta", "content") not in gone
            if is_said or delta.get("refusal"):
                self._texts.add(number)
            self._details_sent |= bool(delta.get(DETAILS)) and ("choices", place, "delta", DETAILS) not in gone

    def _see_head(self, payload: Payload) -> None:
        """Keep the stream's identity from its first chunk, whether the client got that chunk or not."""
        if not self._head and payload.get("choices"):
            self._head = {key: payload[key] for key in HEAD if key in payload}
            self._head_edits = {key: Edit((key,), dumps(value)) for key, value in self._head.items()}

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the chunks without the withheld calls; a blocked choice gets its text before its finish."""
        chunks = [_Chunk(frame, choice_parts(frame.payload)) for frame in frames]
        ends = _ends([chunk.parts for chunk in chunks], blocks)
        several = len({part.number for chunk in chunks for part in chunk.parts}) > 1
        pieces: list[bytes] = []
        left = dict(blocks)
        for at, ((frame, parts, _), edits) in enumerate(zip(chunks, _thin_edits(chunks, withheld), strict=True)):
            if frame.payload is None:
                pieces.append(frame.raw)
                continue
            self._see_head(frame.payload)
            for place in ends.get(at, ()):
                part = next(part for part in parts if part.place == place)
                block = blocks[part.number]
                if left.pop(part.number, None):
                    edit, piece = self._say(part, block)
                    edits += edit
                    pieces += piece
                edits += _finish_edits(part.choice, ("choices", place), block)
            if at in ends or not edits or not self._is_empty(frame.payload, parts, edits):
                pieces.append(self._write(frame, parts, edits))
            elif several:
                pieces += self._begin(parts)
        return b"".join(pieces)

    def _say(self, part: ChoicePart, block: Block) -> tuple[list[Edit], list[bytes]]:
        """Return the edits or the chunk that add a block's text to its choice: the text is added to the text in the
        finish's chunk, or else gets a chunk before it."""
        if part.delta.get("content") and not self._structured:
            return [Edit(("choices", part.place, "delta", "content"), append_to_string(block.text))], []
        return [], [self._text(part.number, block.text)]

    def _begin(self, parts: Iterable[ChoicePart]) -> Iterator[bytes]:
        """Yield chunks with the roles of choices that have not begun, in place of a removed chunk: the official SDK
        keeps choices in a list, so no choice may begin before a lower one."""
        for part in parts:
            if part.number not in self._roles:
                self._roles.add(part.number)
                role = {"index": part.number, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}
                yield self._chunk(role)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return the held chunks without calls, finish, usage and end, and without text that must fit a schema, because
        the next answer has its own."""
        lost = _Withheld(withheld)
        pieces: list[bytes] = []
        for frame in frames:
            if frame.payload is None:
                if not sse.is_done(frame.raw):
                    pieces.append(frame.raw)
                continue
            self._usage.see(frame.payload.get("usage"))
            self._see_head(frame.payload)
            parts = choice_parts(frame.payload)
            edits = _removal_edits(_Chunk(frame, parts), lost, {})
            for part in parts:
                if part.choice.get("finish_reason"):
                    edits.append(Edit(("choices", part.place, "finish_reason"), b"null"))
                if self._structured and part.delta.get("content"):
                    edits.append(Edit(("choices", part.place, "delta", "content"), None))
            if frame.payload.get("usage"):
                edits.append(Edit(("usage",), b"null"))
            if frame.payload.get("choices") and not self._is_empty(frame.payload, parts, edits):
                pieces.append(self._write(frame, parts, edits))
        self._usage.next_answer()
        return b"".join(pieces)

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._foreign = foreign
        self._break_due = set(self._texts)
        self._details_due = not self._details_sent
        self._called = set()

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite a chunk of the next answer for this stream; empty if the client must not see it."""
        if payload is None or (not payload.get("choices") and "usage" not in payload):
            return frame
        edits = [edit for key, edit in self._head_edits.items() if key in payload]
        if usage := self._usage.see(payload.get("usage")):
            edits.append(Edit(("usage",), dumps(usage)))
        parts = choice_parts(payload)
        for part in parts:
            edits += self._splice_edits(("choices", part.place, "delta"), part.number, part.delta)
        if payload.get("choices") and self._is_empty(payload, parts, edits):
            return b""
        return self._editor.edit(frame, edits)

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the blocks' texts, the finish and the end, when no further answer follows."""
        pieces = []
        self._texts.update(() if cut is None else blocks)  # text before a call may have passed unread
        for choice, block in blocks.items():
            finish = "length" if cut else block.finish or "stop"
            pieces += [self._text(choice, block.text), self._finish(choice, finish)]
        if called or (cut and not blocks):
            pieces.append(self._finish(0, "length" if cut else "tool_calls"))
        usage = self._usage.total()
        if usage and self._wants_usage:
            pieces.append(sse.event(dumps(self._head | {"choices": [], "usage": usage})))
        return b"".join((*pieces, sse.event(sse.DONE)))

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return the answer without the calls at (choice, call); a blocked choice gets its text, and stops."""
        payload: Payload = loads(body)
        chunk = _as_chunk(body, payload)
        calls = {(entry.call.choice, entry.call.index): entry.call for entry in chunk.frame.entries}
        [edits] = _thin_edits([chunk], {calls[place] for place in withheld})
        key = "refusal" if self._structured else "content"
        for at, block in blocks.items():
            choice = payload["choices"][at]
            if not isinstance(choice, dict):  # not from a model; no text can be added to it
                continue
            path = ("choices", at)
            if object_of(choice.get("message")):
                edits.append(Edit((*path, "message", key), append_to_string(block.text)))
            else:
                edits.append(Edit((*path, "message"), dumps({"role": "assistant", "content": None, key: block.text})))
            edits += _finish_edits(choice, path, block)
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second answer with the first one's identity, with its reasoning and text in front (without text
        that must fit a schema), and with the usage of both. Raises NotJSON if the second has no message."""
        if not raw_at(second, MESSAGE).startswith(b"{"):
            raise NotJSON("no message")
        one: Payload = loads(first)
        if foreign:
            second = with_reasoning_of(first, second, str(one.get("model") or ""))
        other: Payload = loads(second)
        edits = [Edit((key,), raw_at(first, (key,))) for key in HEAD if key in one and key in other]
        said, says = one["choices"][0]["message"], other["choices"][0]["message"]
        texts: list[str] = [] if self._structured else ["content"]
        texts += () if foreign else REASONING_TEXTS
        before = {key: text for key in texts if isinstance(text := said.get(key), str) and text}
        edits += [Edit((*MESSAGE, key), prepend_to_string(text)) for key, text in before.items()]
        edits += () if foreign else first_reasoning(first, second, says)
        if total := self._usage.of_both(one.get("usage"), other.get("usage")):
            edits.append(Edit(("usage",), dumps(total)))
        return apply(second, edits)

    def _splice_edits(self, path: Path, number: int, delta: Payload) -> list[Edit]:
        """Return the edits that make a delta of the next answer fit into this stream."""
        edits: list[Edit] = []
        if delta.get("role") and number in self._roles:
            edits.append(Edit((*path, "role"), None))
        if self._foreign:
            reader, begins = str(self._head.get("model") or ""), number not in self._called
            edits += without_reasoning(delta, path, reader, begins=begins)
        elif delta.get(DETAILS) and not self._details_due:
            edits += without_loose_details(delta, path)
        if delta.get("tool_calls"):
            self._called.add(number)
        if isinstance(delta.get("content"), str) and delta["content"] and number in self._break_due:
            self._break_due.discard(number)
            edits.append(Edit((*path, "content"), break_before))
        return edits

    def _text(self, choice: int, text: str) -> bytes:
        """Return a chunk with callfuse's own text: content, or a refusal if plain text would not fit the schema."""
        delta: Payload = {} if choice in self._roles else {"role": "assistant"}
        self._roles.add(choice)
        if self._structured:
            delta["refusal"] = text
        else:
            delta["content"] = f"\n\n{text}" if choice in self._texts else text
        return self._chunk({"index": choice, "delta": delta, "logprobs": None, "finish_reason": None})

    def _finish(self, choice: int, reason: str) -> bytes:
        return self._chunk({"index": choice, "delta": {}, "logprobs": None, "finish_reason": reason})

    def _chunk(self, choice: Payload) -> bytes:
        return sse.event(dumps(self._head | {"choices": [choice]}))

    def _write(self, frame: Frame, parts: Sequence[ChoicePart], edits: Sequence[Edit]) -> bytes:
        if frame.payload:
            self._see(frame.payload, parts, {edit.path for edit in edits if edit.raw is None})
        return self._editor.edit(frame.raw, edits)

    def _is_empty(self, payload: Payload, parts: Iterable[ChoicePart], edits: Sequence[Edit]) -> bool:
        """Whether a chunk is empty after these edits. A role that the client already has does not count."""
        gone = {edit.path for edit in edits if edit.raw is None or edit.raw == b"null"}
        if payload.get("usage") and ("usage",) not in gone:
            return False
        for place, number, choice, delta in parts:
            if choice.get("finish_reason") and ("choices", place, "finish_reason") not in gone:
                return False
            known_role = "role" if number in self._roles else ""
            for key, value in delta.items():
                if value and key != known_role and ("choices", place, "delta", key) not in gone:
                    return False
        return True


class _Chunk(NamedTuple):
    """A held chunk and its choices. `key`: the key under which a choice has its delta or message."""

    frame: Frame
    parts: list[ChoicePart]
    key: str = "delta"


class _Withheld:
    """The withheld calls of an answer, by choice, so that the cost per frame does not depend on their number."""

    def __init__(self, calls: set[OpenCall]) -> None:
        self.calls = calls
        self._ids: dict[int, set[str]] = {}
        self._indexes: dict[int, list[int]] = {}
        for call in calls:
            self._ids.setdefault(call.choice, set()).add(call.id)
            self._indexes.setdefault(call.choice, []).append(call.index)
        for indexes in self._indexes.values():
            indexes.sort()

    def ids(self, choice: int) -> Collection[str]:
        """Return the ids of a choice's withheld calls."""
        return self._ids.get(choice, ())

    def count_before(self, call: OpenCall) -> int:
        """Return how many withheld calls of the same choice precede a call."""
        return bisect_left(self._indexes.get(call.choice, ()), call.index)


def _ends(frames: Sequence[Sequence[ChoicePart]], choices: Collection[int]) -> dict[int, list[int]]:
    """Return, by frame, the places of the parts that end these choices: parts with a finish reason, or else the last
    part. `frames`: the parts of each frame."""
    finishes: dict[int, list[tuple[int, int]]] = {}
    last: dict[int, tuple[int, int]] = {}
    for at, parts in enumerate(frames):
        for part in parts:
            if part.number in choices:
                last[part.number] = at, part.place
                if part.choice.get("finish_reason"):
                    finishes.setdefault(part.number, []).append((at, part.place))
    ends: dict[int, list[int]] = {}
    for number, behind in last.items():
        for at, place in finishes.get(number, (behind,)):
            ends.setdefault(at, []).append(place)
    return ends


def _finish_edits(choice: Payload, path: Path, block: Block) -> list[Edit]:
    """Return the edit that gives a blocked choice the block's finish reason, if its own is in `OWN_REASONS`."""
    reason = choice.get("finish_reason")
    if reason and not (type(reason) is str and reason in OWN_REASONS):
        return []
    return [Edit((*path, "finish_reason"), dumps(block.finish or "stop"))]


def _thin_edits(chunks: Sequence[_Chunk], withheld: set[OpenCall]) -> list[list[Edit]]:
    """Return, for each chunk, the edits that remove the withheld calls."""
    payloads = (chunk.frame.payload or {} for chunk in chunks)
    model = next((str(payload["model"]) for payload in payloads if payload.get("model")), "")
    unsigned = stand_ins([chunk.frame for chunk in chunks], withheld, lambda call: is_signed(call.extra), model)
    signed_now = _heirs(chunks, withheld, model)
    lost = _Withheld(withheld)
    found = []
    for chunk in chunks:
        edits = _removal_edits(chunk, lost, signed_now)
        if paths := unsigned.get(id(chunk.frame)):
            edits += [Edit((*path, "extra_content"), add_stand_in) for path in paths]
        found.append(edits)
    return found


def _removal_edits(chunk: _Chunk, withheld: _Withheld, signed_now: Mapping[int, str]) -> list[Edit]:
    """Return the edits that remove the withheld calls' parts and details from a chunk and renumber the others. The
    calls in `signed_now` inherit a detail."""
    edits: list[Edit] = []
    lists: dict[Path, list[Entry]] = {}
    touched: set[object] = set()
    lost = withheld.calls
    for entry in chunk.frame.entries:
        if entry.call in lost:
            touched.add(entry.path[1])
        if entry.path[-1] != "function_call":
            lists.setdefault(entry.path[:-1], []).append(entry)
        elif entry.call in lost:
            edits.append(Edit(entry.path, None))
    for path, entries in lists.items():
        if lost.issuperset(map(_CALL, entries)):
            edits.append(Edit(path, None))
        else:
            edits += _renumber_edits(entries, withheld)
    for part in chunk.parts:
        if part.delta.get(DETAILS):
            gone, heir = withheld.ids(part.number), signed_now.get(part.number, "")
            edits += without_details(part.delta, ("choices", part.place, chunk.key), gone, heir)
        copied = object_of(part.choice.get("message")).get("tool_calls")  # the vendor Writer repeats a delta there
        if copied and part.place in touched and chunk.key == "delta":
            edits.append(Edit(("choices", part.place, "message", "tool_calls"), b"null"))
    return edits


def _renumber_edits(entries: Iterable[Entry], withheld: _Withheld) -> Iterator[Edit]:
    """Yield the edits that remove the withheld calls from a list of calls and renumber the others."""
    for entry in entries:
        if entry.call in withheld.calls:
            yield Edit(entry.path, None)
        elif entry.call.numbered and (shift := withheld.count_before(entry.call)):
            yield Edit((*entry.path, "index"), lower_index(shift))


def _heirs(chunks: Sequence[_Chunk], withheld: set[OpenCall], model: str) -> dict[int, str]:
    """Return, by choice, the id of the call that gets the stand-in for a signature in the details."""
    details = ((part.number, part.delta) for chunk in chunks for part in chunk.parts if part.delta.get(DETAILS))
    signed = {(number, id_) for number, delta in details for id_ in call_ids(delta)}
    if not signed:
        return {}
    opened = dict.fromkeys(entry.call for chunk in chunks for entry in chunk.frame.entries)
    chosen = heirs(opened, withheld, lambda call: (call.choice, call.id) in signed, model)
    return {call.choice: call.id for call in chosen}


def _as_chunk(body: bytes, payload: Payload) -> _Chunk:
    """Return a whole answer as one chunk. Choices and calls are numbered by their places; a legacy call is last."""
    parts: list[ChoicePart] = []
    entries: list[Entry] = []
    for at, choice in enumerate(map(object_of, list_of(payload.get("choices")))):
        message = object_of(choice.get("message"))
        parts.append(ChoicePart(at, at, choice, message))
        path = ("choices", at, "message")
        calls = [(place, part) for place, part in enumerate(list_of(message.get("tool_calls"))) if type(part) is dict]
        for index, (place, part) in enumerate(calls):
            call = OpenCall(at, index, text_of(part.get("id")), numbered=False)
            call.extra = part
            entries.append(Entry((*path, "tool_calls", place), call))
        if not says_nothing(object_of(message.get("function_call"))):
            entries.append(Entry((*path, "function_call"), OpenCall(at, len(calls), numbered=False)))
    return _Chunk(Frame(body, payload, tuple(entries)), parts, "message")
