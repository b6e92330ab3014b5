"""Assemble the calls of an answer while no call has to be held; the bytes leave unchanged.

The calls are for the ledger, and for verdicts that do not change the answer. If a call could be one too many in its
answer, reading stops at the frame that opens the call, and the guard follows the answer from there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from callfuse.detect.pre_checks import finds_runaways
from callfuse.detect.runaway_call import is_long, runs_away
from callfuse.detect.siblings import Room
from callfuse.dialects.base import Dialect, Entry, Event, OpenCall, Reader
from callfuse.dialects.codec import codec_of
from callfuse.dialects.stateful import StoredAnswer
from callfuse.guard.calls import Ending
from callfuse.guard.foresight import Foresight
from callfuse.guard.growing import GrowingCalls
from callfuse.guard.growing_texts import GrowingTexts
from callfuse.guard.judge import Judge
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.template import TemplateFinder
from callfuse.model import ToolCall
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, Format, Framer, NotFramed, Payload
from callfuse.wire.jsontext import NotJSON

NO_LIMIT: Final = Room()
FEW_FRAMES: Final = 6
"""Fewer frames in one chunk are read one by one: the network joins three or four."""
MANY_CALLS: Final = 32
"""Judging more calls takes 10 ms or more."""


class Opening(NamedTuple):
    """The frame at which the guard takes over, with what the reader has read in it: it opens a call that could be one
    too many, or shows that arguments run away."""

    raw: bytes
    payload: Payload
    events: Sequence[Event]
    entries: tuple[Entry, ...]


class _Judging(NamedTuple):
    """Judges the calls when the answer has ended. `judge_of` creates a judge if `judge` is None. `growing`: calls whose
    arguments run away were already found while they grew."""

    choices: int
    settings: LoopSettings
    judge: Judge | None
    judge_of: Callable[[], Judge] | None
    room: Room
    growing: bool

    def verdicts(self, calls: Sequence[ToolCall]) -> Sequence[Verdict]:
        """Return the verdicts on a round. None of them withholds or counts as a step, because the calls have already
        left."""
        judge = self.judge
        if judge is None and self.judge_of is not None:
            is_due = self.room.is_passed_by(calls) or (not self.growing and True in map(is_long, calls))
            judge = self.judge_of() if is_due else None
        found = judge.verdicts(calls) if judge else ()
        return [one.observed() if one.withholds else one for one in found]

    def cut_off_verdicts(self, calls: Sequence[ToolCall]) -> Sequence[Verdict]:
        """Return the verdicts on calls that were cut off."""
        judge = self.judge
        if judge is None and self.judge_of is not None:
            judge = self.judge_of() if True in map(runs_away, calls) else None
        return judge.cut_off_verdicts(calls) if judge else ()


class Sent:
    """What a guard needs to take over an answer, and the bytes that the client has not received yet.

    `before`: frames that the client has and a writer needs: the first, those that open and close calls, those with the
    dialect's mark, and the newest, which shows where the stream is. `growing` searches the arguments of calls.
    `opening`: the frame at which the guard takes over. `unsent`: the bytes that wait for the end of their frame.
    """

    __slots__ = ("_mark", "_newest", "before", "foresight", "growing", "opening", "unsent")

    def __init__(self, foresight: Foresight, growing: GrowingCalls | None, mark: bytes) -> None:
        self.foresight = foresight
        self.growing = growing
        self.before: list[bytes] = []
        self.opening: Opening | None = None
        self.unsent = bytearray()
        self._mark = mark
        self._newest: bytes | None = None

    def keep(self, frame: bytes) -> None:
        """Keep a frame that comes before any call, if a writer needs it."""
        if (not self.before or self._marks(frame)) and b"{" in frame:
            self.before.append(frame)

    def foresees(self, frame: bytes, payload: Payload | None, events: Sequence[Event], reader: Reader) -> bool:
        """Whether the guard must follow from this frame on: it opens a call that could be one too many, or shows that
        arguments run away."""
        is_endless = self.growing is not None and self.growing.read(events)
        if not (events or is_endless):
            if self._newest is not None and self._newest is self.before[-1]:
                self.before.pop()
            self._newest = frame if self.before and not self._marks(frame) else None
        elif payload is not None and (self.foresight.foresees(events) or is_endless):
            self.opening = Opening(frame, payload, events, tuple(reader.entries))
            return True
        self.before.append(frame)
        return False

    def _marks(self, raw: bytes) -> bool:
        return bool(self._mark) and self._mark in raw


class Assembly:
    """Reads one answer of `choices` choices, up to `max_response_bytes` bytes counted from the frame of its first call.
    Chunks before that frame may pass unread.

    `judge` returns the verdicts; without one, `judge_of` creates a judge if the calls are too many for `room`, or long.
    `may_hold`: frames leave whole, so that a call which could be one too many can be held. `is_suspect`: there is such
    a call, and the guard must follow the answer from the frame that opens it; `rest`: the frames after that one.
    `waiting`: the number of bytes that have come and are not read; of a whole answer, all.

    While `idle` (no call so far, no incomplete frame, and the first frame is kept, if frames are kept), some chunks
    need not be fed: those that end in `frame_end`, do not contain the dialect's `call_mark`, escaped letters, or its
    `repeat_mark`, and fit into the room of `texts`, which searches the model's text.
    """

    __slots__ = (
        "_answer_id",
        "_finder",
        "_judging",
        "_left",
        "codec",
        "ending",
        "framer",
        "idle",
        "is_suspect",
        "reader",
        "rest",
        "sent",
        "texts",
        "waiting",
    )

    def __init__(
        self,
        dialect: Dialect,
        choices: int,
        settings: LoopSettings,
        judge: Judge | None,
        form: Format = EVENTS,
        *,
        room: Room = NO_LIMIT,
        judge_of: Callable[[], Judge] | None = None,
        may_hold: bool = False,
        texts: GrowingTexts | None = None,
    ) -> None:
        self.codec = codec_of(dialect, form)
        self.texts = texts or GrowingTexts(settings)
        self.framer: Framer = form.framer()
        self.sent: Sent | None = None
        growing, finds = GrowingCalls(), may_hold and finds_runaways(settings)
        self._judging = _Judging(choices, settings, judge, judge_of, room, finds)
        if finds or (may_hold and room != NO_LIMIT):
            self.sent = Sent(Foresight(room, settings), growing if finds else None, self.codec.kept_mark)
        self.reader: Reader = self.codec.reader(trace=self.sent is not None)
        self.rest: Sequence[bytes] = ()
        self.ending = Ending()
        self._answer_id = ""
        self._left = settings.max_response_bytes
        self._finder = TemplateFinder(self.reader.calls, form.payload, growing)
        self.idle = self.framer.empty and self.sent is None
        self.is_suspect = False
        self.waiting = 0

    @property
    def settles_slowly(self) -> bool:
        """Whether `settle` may take long: to judge many calls, or to create a judge for many or for long calls."""
        calls, judging = self.reader.calls, self._judging
        if judging.judge is not None:
            return len(calls) > MANY_CALLS
        has_long = not judging.growing and True in [is_long(one.complete()) for one in calls]
        return len(calls) > min(judging.room) or has_long

    def shows_text(self, chunk: bytes) -> bool:
        """Whether a chunk has no part of a call, no call came before, and its frames need not be read one by one."""
        codec = self.codec
        has_mark = codec.shows_call(chunk) or (codec.other_mark and codec.other_mark in chunk)
        must_read = self.reader.calls or codec.is_stateful or has_mark
        return not must_read and len(chunk) <= min(self._left, self.texts.room)

    def grows(self, chunk: bytes) -> bool:
        """Append a chunk that only adds pieces to a call, as most chunks do once a call has begun. Return False if the
        chunk must go to `feed`."""
        template = self._finder.template
        if template is None or self.framer.waiting or len(chunk) > self._left or not template.append(chunk):
            return False
        self._left -= len(chunk)
        self.texts.room -= len(chunk)
        return True

    def begin(self, chunk: bytes) -> None:
        """Read a chunk of whole frames without a call, while nothing before it waits: the chunk leaves unchanged, with
        blank lines at its end."""
        texts, sent = self.texts, self.sent
        room = texts.room
        if not self.idle:
            self._read(self.codec.form.framer().feed(chunk))
            self.idle = sent is None or bool(sent.before)
        texts.room = room - len(chunk)

    def feed(self, chunk: bytes) -> bytes:
        """Read a chunk of the answer; return what may leave. If this raises, the whole chunk is still to be sent."""
        sent, framer = self.sent, self.framer
        if self._is_quiet(chunk):  # the caller may still feed such a chunk, e.g. an answer in one chunk
            self.begin(chunk)
            return chunk
        if self._left >= 0:
            frames = framer.feed(chunk)
            if len(frames) < FEW_FRAMES or not self._passes_over(frames):
                self._read(frames)
            if (framer.broken or framer.waiting > self._left) and not self.is_suspect:  # else the guard uses the framer
                self.ending.broke |= framer.broken
                self._left = -1
                framer.flush()
            self.idle = framer.empty and not self.reader.calls and (sent is None or bool(sent.before))
        self.waiting = framer.waiting
        if sent is None or not (self.waiting or sent.unsent or self.is_suspect):
            return chunk
        return self._leaving(sent, chunk)

    def _leaving(self, sent: Sent, chunk: bytes) -> bytes:
        """Return what may leave with this chunk, while some bytes wait."""
        if sent.opening is not None:
            self.waiting += len(sent.opening.raw) + sum(map(len, self.rest))
        sent.unsent += chunk  # in place: a frame may come in any number of pieces
        end = len(sent.unsent) - self.waiting  # partly sent frames cannot be held
        out = bytes(sent.unsent[:end])
        del sent.unsent[:end]
        return out

    def _is_quiet(self, chunk: bytes) -> bool:
        codec = self.codec
        if self.framer.waiting or self.reader.calls or len(chunk) > self.texts.room:
            return False
        if codec.is_stateful or not chunk.endswith(codec.form.frame_end):
            return False
        return not (codec.shows_call(chunk) or (codec.other_mark and codec.other_mark in chunk))

    def _passes_over(self, frames: Sequence[bytes]) -> bool:
        """Skip many frames at once if none of them has to be read by itself; return whether they were skipped."""
        text = b"".join(frames)
        if not self.shows_text(text):
            return False
        self.texts.room -= len(text)
        if (sent := self.sent) is not None and not sent.before:
            for frame in frames:
                sent.keep(frame)
        return True

    def _read(self, frames: Iterable[bytes]) -> None:
        """Read the frames that may contain calls, and those whose text is searched for repetition."""
        codec, left, texts = self.codec, iter(frames), self.texts
        for frame in left:
            texts.room -= len(frame)
            if self._finder.append(frame):
                self._left -= len(frame)
                continue
            if len(frame) > self._left:  # in pieces, it would have exceeded the limit, too
                self._left = -1
                return
            may_call = bool(self.reader.calls) or codec.shows_call(frame)
            if may_call:
                self._left -= len(frame)
            if may_call or codec.is_stateful:
                if not frame.isspace() and self._reaches(frame):
                    self.rest = tuple(left) if self.is_suspect else ()
                    return
            else:
                if texts.room < 0 or (codec.repeat_mark and codec.repeat_mark in frame):
                    self._read_text(frame)
                if self.sent is not None:
                    self.sent.keep(frame)

    def _read_text(self, frame: bytes) -> None:
        """Search the text of a frame without a call for repetition."""
        try:
            payload = self.codec.form.payload(frame)
        except NotJSON:
            return
        if payload is not None:
            self.texts.read_frame(self.codec.dialect, payload)

    def _reaches(self, frame: bytes) -> bool:
        """Read a frame. Return whether it is the last one to read here: the guard must follow, or no later frame can be
        recognised."""
        codec = self.codec
        self._finder.begin()
        try:
            payload = codec.form.payload(frame)
        except NotFramed:
            self.ending.broke, self._left = True, -1
            return True
        except NotJSON:
            return False
        if payload is not None and (self.texts.room < 0 or (codec.repeat_mark and codec.repeat_mark in frame)):
            self.texts.read_frame(codec.dialect, payload)
        events = self._events_of(frame, payload)
        if self.sent is not None and self.sent.foresees(frame, payload, events, self.reader):
            self.is_suspect = True
            return True
        for event in events:
            self.ending.note(event)
        self._finder.find(frame)
        return False

    def _events_of(self, frame: bytes, payload: Payload | None) -> Sequence[Event]:
        """Return the events of a frame."""
        codec = self.codec
        if payload is None:
            return self.reader.end() if codec.is_end(frame) else ()
        if codec.is_stateful:
            self._answer_id = self._answer_id or codec.answer_id(payload)
        return self.reader.read(payload)

    def finish(self) -> bytes:
        """End the body: read the incomplete frame (of a whole answer, everything) and return what may leave."""
        if not self.is_suspect and (rest := self.framer.flush()):
            self._read((rest,))
        return b"" if self.is_suspect else self.release()

    def release(self) -> bytes:
        """Return the bytes that have come but not left, to be sent now."""
        unsent = bytes(self.sent.unsent) if self.sent is not None else b""
        if self.sent is not None:
            self.sent.unsent.clear()
        return unsent

    def settle(self, record: ExchangeRecord) -> None:
        """Record the calls of the delivered answer, and their verdicts; nothing if it broke or was too long to read."""
        if not self.ending.finished or self.ending.broke or self._left < 0:
            record.is_incomplete = bool(self.reader.calls) or self.ending.broke or self._left < 0
            return
        if self._answer_id:
            record.answers.append(StoredAnswer(self._answer_id))
        whole = [call for call in self.reader.calls if self.ending.is_evidence(call)]
        record.is_incomplete = len(whole) < len(self.reader.calls)
        of_choice: dict[int, list[ToolCall]] = {}
        for call in whole:
            made = call.complete() if self.sent is None else self.sent.foresight.made(call)
            of_choice.setdefault(call.choice, []).append(made)
        for choice in sorted(of_choice):
            self._keep(record, of_choice[choice])
        if record.is_incomplete:
            self._observe(record, set(self.reader.calls).difference(whole))

    def _observe(self, record: ExchangeRecord, cut_off: Iterable[OpenCall]) -> None:
        """Record the findings in calls that were cut off."""
        made = [call.complete() for call in cut_off if call.has_name]
        calls = apply_ignored_arguments(made, self._judging.settings)
        record.observe(calls, self._judging.cut_off_verdicts(calls))

    def _keep(self, record: ExchangeRecord, calls: Sequence[ToolCall]) -> None:
        """Record a delivered round with its verdicts, which withhold nothing."""
        calls = apply_ignored_arguments(calls, self._judging.settings)
        record.keep(calls, self._judging.verdicts(calls))
