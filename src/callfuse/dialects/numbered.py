"""Base classes for answers whose parts are numbered: Anthropic, Converse, Interactions, Cohere.

Each event of a content block (or a step, a call, a citation) has the block's number. The client gets numbers without
gaps, even if a call is withheld or another answer follows. Some vendors number kinds of parts separately: each kind is
a series of its own. If there is only one series, a whole answer is a list of the same parts. All bytes that are not
changed stay the same.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

from callfuse.dialects.base import NO_EVENTS, AnswerWriter, Block, Event, Frame, OpenCall, Reader, What
from callfuse.dialects.edits import index_without, raw_elements, raw_list
from callfuse.dialects.shapes import index_of
from callfuse.dialects.usage import TokenUsage
from callfuse.wire import Format, Payload
from callfuse.wire.editor import FrameEditor
from callfuse.wire.jsontext import END, Edit, Path, apply, dumps, loads

BLOCKS: Final = "blocks"
"""The name of the series if a vendor has only one."""


class NumberedPart(NamedTuple):
    """An event about a numbered part.

    `written`: the number as the event has it, of any type. `path`: the path of the number. `begins`: the event may be
    the part's first; `ends`: the event is the last. `is_call`: the part is a call for the client.
    """

    written: Any
    path: Path
    series: str = BLOCKS
    begins: bool = True
    is_text: bool = False
    is_reasoning: bool = False
    ends: bool = False
    is_call: bool = False

    @property
    def number(self) -> int:
        """The part's number in its own answer; 0 if it cannot be read."""
        return index_of(self.written)


class NumberedReader(Reader):
    """Assembles the calls of one streamed answer. `_by_index`: by part number, the calls that have not ended."""

    __slots__ = ("_by_index",)

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__(trace=trace)
        self._by_index: dict[int, OpenCall] = {}

    def _open(self, number: Any, id_: Any, name: Any, arguments: str = "") -> Sequence[Event]:
        """Add a call that starts, and return its event."""
        index = index_of(number)
        call = OpenCall(0, index, str(id_ or ""), str(name or ""))
        if arguments:
            call.pieces.append(arguments)
        self.calls.append(call)
        self._by_index[index] = call
        return (Event(What.OPENED, 0, call),)

    def _close(self, number: Any) -> Sequence[Event]:
        """Return the event for the end of a part if the part is a call."""
        call = self._by_index.pop(index_of(number), None)
        if call is None:
            return NO_EVENTS
        call.closed = True
        return (Event(What.CLOSED, 0, call),)


class FinishReasons(NamedTuple):
    """A vendor's finish reasons, and their places in events and answers.

    `place`: in the event that ends a stream, the key of the object with the reason. `key`: the key of the reason, in
    this object and in a whole answer. `stopped`, `called`: the reason of an answer without and with calls. `own`: the
    reasons that a block replaces; others, such as a limit's, stay. `cut`: the reason for the vendor's length limit.
    """

    place: str
    key: str
    stopped: str
    called: str
    cut: str
    own: tuple[str | None, ...]


class NumberedWriter(AnswerWriter, ABC):
    """Continues one client's stream, and changes whole answers. See `base.AnswerWriter`.

    `_next`: by series, the number of the next part that the client gets. `_allotted`: these, with parts of the next
    answer that may still wait. `_numbers`: these parts, by their own series and number, mapped to their number in the
    client's stream; None for a part that is left out. `_open`: by series and number, parts other than calls that the
    client has seen begin but not end, and whether each is reasoning. `_cut`: how many reasoning parts were cut off.
    """

    finish: ClassVar[FinishReasons]
    calls: ClassVar = BLOCKS
    """The series in which calls are numbered."""
    must_begin: ClassVar = False
    """Whether a part begins only with a start event, and events before it are left out; else with its first event."""
    reasons_once: ClassVar = False
    """Whether the reasoning of a second answer is left out once a part of the first has been sent."""

    def __init__(self, form: Format, usage: TokenUsage, *, structured: bool) -> None:
        self._editor = FrameEditor(form)
        self._usage = usage
        self._structured = structured
        self._spoke = False
        self._next = Counter[str]()
        self._allotted = Counter[str]()
        self._numbers: dict[tuple[str, int], int | None] = {}
        self._may_reason = True
        self._cut = 0
        self._open: dict[tuple[str, int], bool] = {}

    @abstractmethod
    def _part_of(self, payload: Payload) -> NumberedPart | None:
        """Return the numbered part that an event concerns; None if it concerns none."""

    @abstractmethod
    def _counts_in(self, payload: Payload) -> Any:
        """Return the token counts in an event, of any type; None if there are none."""

    @abstractmethod
    def _is_end(self, payload: Payload) -> bool:
        """Whether an event ends the answer; a block's text must be written before it."""

    @abstractmethod
    def _closes(self, frame: Frame) -> bool:
        """Whether a frame is held back when another answer follows: it has the finish, the usage or the end."""

    @abstractmethod
    def _splice_other(self, frame: bytes, payload: Payload) -> bytes:
        """Rewrite, for this stream, an event of the next answer that concerns no numbered part."""

    @abstractmethod
    def _text(self, text: str) -> bytes:
        """Return the events for a text by callfuse."""

    @abstractmethod
    def _end(self, reason: str) -> bytes:
        """Return the events for the end of the answer, with this finish reason and the usage of all answers."""

    @abstractmethod
    def _stop(self, number: int) -> bytes:
        """Return the event that ends the call with this number."""

    def _sign(self, number: int) -> bytes:
        """Return the event that signs the reasoning with this number with `CUT`; empty if the vendor signs none."""
        return b""

    def _stop_said(self, series: str, number: int) -> bytes:
        """Return the event that ends a part other than a call."""
        return self._stop(number)

    @property
    def may_continue(self) -> bool:
        """Whether another answer may follow: False once the client has text that must fit a schema."""
        return not (self._structured and self._spoke)

    def note_sent(self, payload: Payload) -> None:
        """Note an event that the client got."""
        part = self._part_of(payload)
        if part is None:
            self._usage.see(self._counts_in(payload))
        else:
            self._note_number(part, part.number)
            self._spoke |= part.is_text

    def _note_number(self, part: NumberedPart, number: int) -> None:
        """Note the number of a part that is sent to the client."""
        if part.begins:
            self._next[part.series] = max(self._next[part.series], number + 1)
        if part.ends:
            self._open.pop((part.series, number), None)
        elif not part.is_call:
            self._open[part.series, number] = part.is_reasoning or self._open.get((part.series, number), False)

    def break_off(self) -> bytes:
        """Return the events that end all open parts of the client's stream except calls. Reasoning gets the signature
        `CUT` first, so that it is removed from later requests."""
        pieces: list[bytes] = []
        for (series, number), is_reasoning in reversed(self._open.items()):
            self._cut += is_reasoning
            pieces += [self._sign(number) if is_reasoning else b"", self._stop_said(series, number)]
        self._open.clear()
        return b"".join(pieces)

    def _take_number(self, series: str = BLOCKS) -> int:
        """Return the next free number, for a part by callfuse."""
        number = self._next[series]
        self._next[series] += 1
        return number

    def thin(self, frames: Iterable[Frame], withheld: set[OpenCall], blocks: Mapping[int, Block]) -> bytes:
        """Return the events without withheld calls. A block's text is written before the end."""
        gone = sorted({call.index for call in withheld})
        if gone:  # the client has every part before the first one, also those that passed unread
            self._next[self.calls] = max(self._next[self.calls], gone[0])
        return self._thin(frames, gone, blocks.get(0))

    def _thin(self, frames: Iterable[Frame], gone: Sequence[int], block: Block | None) -> bytes:
        """Remove the parts with the numbers `gone` (sorted) from the frames, as `thin` does."""
        pieces: list[bytes] = []
        is_due = block is not None
        for frame in frames:
            payload = frame.payload or {}
            part = self._part_of(payload)
            if part is not None:
                pieces.append(self._thin_part(frame.raw, part, gone if part.series == self.calls else ()))
            elif block is None or not self._is_end(payload):
                pieces.append(self._keep(frame.raw, payload, block))
            else:
                pieces += [self._last_text(payload, block.text)] if is_due else []
                place = self.finish.place
                pieces.append(self._editor.edit(frame.raw, self._finish_edits(payload.get(place), block, place)))
                is_due = False
        return b"".join(pieces)

    def _thin_part(self, frame: bytes, part: NumberedPart, gone: Sequence[int]) -> bytes:
        """Return an event of a part, renumbered; empty if the part is removed."""
        left = index_without(part.number, gone)
        if left is None:
            return b""
        self._note_number(part, left)
        return self._editor.edit(frame, [Edit(part.path, dumps(left))] if left != part.number else [])

    def _keep(self, frame: bytes, payload: Payload, block: Block | None) -> bytes:
        """Return a held event without a number that does not end a blocked answer. `block`: the answer is blocked."""
        return frame

    def _finish_edits(self, holder: Any, block: Block, *path: str) -> list[Edit]:
        """Return the edits that replace the finish reason in the object at `path` by that of a blocked answer."""
        key = self.finish.key
        is_own = isinstance(holder, dict) and holder.get(key) in self.finish.own
        return [Edit((*path, key), dumps(self._reason_of(block)))] if is_own else []

    def _reason_of(self, block: Block) -> str:
        """Return the finish reason of a blocked answer."""
        return self.finish.stopped

    def _last_text(self, payload: Payload, text: str) -> bytes:
        """Return a block's text, to be written before the event that ends the answer."""
        return self._text(text)

    def before_asking(self, frames: Iterable[Frame], withheld: set[OpenCall]) -> bytes:
        """Return the held events without withheld calls, finish and end, and without text that must fit a schema,
        because the next answer has its own."""
        gone = {call.index for call in withheld}
        kept: list[Frame] = []
        for frame in frames:
            payload = frame.payload or {}
            if self._closes(frame):
                self._usage.see(self._counts_in(payload))
                continue
            kept.append(frame)
            part = self._part_of(payload) if self._structured else None
            if part is not None and part.is_text:
                gone.add(part.number)
        out = self._thin(kept, sorted(gone), None)
        self._usage.next_answer()
        return out

    def next_answer(self, *, foreign: bool) -> None:
        """Begin to splice another answer."""
        self._numbers = {}
        self._allotted = self._next.copy()
        self._may_reason = not (foreign or (self.reasons_once and self._next[self.calls] > self._cut))

    def splice(self, frame: bytes, payload: Payload | None) -> bytes:
        """Rewrite an event of the next answer for this stream; empty if the client must not see it."""
        if payload is None:
            return frame
        part = self._part_of(payload)
        return self._splice_other(frame, payload) if part is None else self._splice_part(frame, payload, part)

    def _splice_part(self, frame: bytes, payload: Payload, part: NumberedPart) -> bytes:
        """Rewrite an event about a part of the next answer; empty if the part is left out."""
        number = self._number(part, is_left_out=part.is_reasoning and not self._may_reason)
        if number is None:
            return b""
        return self._editor.edit(frame, [Edit(part.path, dumps(number))] if number != part.written else [])

    def _number(self, part: NumberedPart, *, is_left_out: bool) -> int | None:
        """Return the number in this stream for a part of the next answer; None if the part is left out."""
        key = part.series, part.number
        if part.begins if self.must_begin else key not in self._numbers:
            self._numbers[key] = None if is_left_out else self._allotted[part.series]
            self._allotted[part.series] += not is_left_out
        return self._numbers.get(key)

    def close(self, blocks: Mapping[int, Block], *, called: bool = False, cut: OpenCall | None = None) -> bytes:
        """Return the blocks' texts, the finish with the usage of all answers, and the end. No text follows a call that
        is cut off: in a turn of these vendors, calls come last."""
        if cut is not None:
            return self._stop(self._next[self.calls] - 1) + self._end(self.finish.cut)
        pieces = [self._text(block.text) for block in blocks.values()]
        reason = self.finish.called if called else self.finish.stopped
        if blocks:
            reason = self._reason_of(next(iter(blocks.values())))
        return b"".join((*pieces, self._end(reason)))


class BlocksWriter(NumberedWriter):
    """A writer for vendors that number all parts in one series, and whose whole answers list them."""

    parts: ClassVar[Path]
    """The path of the list of parts in a whole answer."""
    identity: ClassVar[tuple[str, ...]] = ()
    """Keys that keep the first answer's values when two whole answers are joined."""

    @staticmethod
    @abstractmethod
    def is_call(part: Any, /) -> bool:
        """Whether a part is a call for the client."""

    @staticmethod
    @abstractmethod
    def is_text(part: Any, /) -> bool:
        """Whether a part is text, which may have to fit a schema."""

    @staticmethod
    @abstractmethod
    def is_reasoning(part: Any, /) -> bool:
        """Whether a part is reasoning, which is valid only for the model that wrote it."""

    @staticmethod
    @abstractmethod
    def own_part(text: str, /) -> Payload:
        """Return a part with a text by callfuse."""

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """Return a whole answer without the calls at these (choice, call) places, with the block's text and finish."""
        payload = loads(body)
        calls = [at for at, part in enumerate(self._parts_in(payload)) if self.is_call(part)]
        edits = [Edit((*self.parts, calls[place]), None) for _, place in withheld]
        if block := blocks.get(0):
            edits.append(Edit((*self.parts, END), dumps(self.own_part(block.text))))
            edits += self._finish_edits(payload, block)
        return apply(body, edits)

    def splice_whole(self, first: bytes, second: bytes, *, foreign: bool) -> bytes:
        """Return the second answer with the first one's identity, the first one's parts in front (without texts that
        must fit a schema), and the usage of both. Reasoning of the second is left out as in a stream."""
        one, other = loads(first), loads(second)
        edits = [Edit((key,), dumps(one[key])) for key in self.identity if key in one and key in other]
        before = zip(raw_elements(first, self.parts), self._parts_in(one), strict=True)
        parts = [raw for raw, part in before if not (self._structured and self.is_text(part))]
        may_reason = not (foreign or (self.reasons_once and parts))
        new = zip(raw_elements(second, self.parts), self._parts_in(other), strict=True)
        parts += [raw for raw, part in new if may_reason or not self.is_reasoning(part)]
        edits.append(Edit(self.parts, raw_list(parts)))
        if total := self._usage.of_both(one.get("usage"), other.get("usage")):
            edits.append(Edit(("usage",), dumps(total)))
        return apply(second, edits)

    def _parts_in(self, payload: Payload) -> Sequence[Any]:
        """Return the parts of a whole answer. Raises LookupError or TypeError if it has no list of them."""
        found: Any = payload
        for key in self.parts:
            found = found[key]
        return cast(Sequence[Any], found)
