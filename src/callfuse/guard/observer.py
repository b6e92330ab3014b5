"""Observes an answer in which no call can be held; its bytes pass unchanged.

The observer assembles the calls for the ledger and gives the verdicts of rungs that leave the answer alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from callfuse.detect.siblings import Room
from callfuse.dialects.base import Dialect, Entry, Event, Reader, StoredAnswer
from callfuse.dialects.codec import codec_of
from callfuse.guard.calls import Ending
from callfuse.guard.foresight import Foresight
from callfuse.guard.judge import Judge
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.template import TemplateFinder
from callfuse.model import ToolCall
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, Format, Framer, NotFramed, Payload
from callfuse.wire.jsontext import NotJSON

NO_LIMIT: Final = Room()


class Opening(NamedTuple):
    """The frame that opens a call which could be one too many, as the reader has read it."""

    raw: bytes
    payload: Payload
    events: Sequence[Event]
    entries: tuple[Entry, ...]


class Handover(NamedTuple):
    """What a guard needs to go on with an answer.

    `framer`, `reader`: those of the answer. `before`: the frames that the client has got, as far as a writer must know
    them. `opening`: the frame that the reader has read last. `rest`: the frames behind it that have come. The client
    has got none of these, nor what the framer still has.
    """

    framer: Framer
    reader: Reader
    before: Sequence[bytes]
    opening: Opening
    rest: Sequence[bytes]

    @property
    def size(self) -> int:
        """The bytes that have come and the client has not got."""
        return len(self.opening.raw) + sum(map(len, self.rest)) + self.framer.waiting


class _Judging(NamedTuple):
    """Who judges the calls at the end of the answer. `judge_of` makes a judge where there is none."""

    choices: int
    settings: LoopSettings
    judge: Judge | None
    judge_of: Callable[[], Judge] | None
    room: Room

    def verdicts(self, calls: Sequence[ToolCall]) -> Sequence[Verdict]:
        """The verdicts on a round, none of which withholds: calls that no guard could go on from have left, which uses
        up no rung."""
        judge = self.judge
        if judge is None and self.judge_of is not None and self.room.is_passed_by(calls):
            judge = self.judge_of()
        found = judge.verdicts(calls) if judge else ()
        return [
            replace(one, rung=Rung.OBSERVE, step=one.step - 1, lowered=True) if one.withholds else one for one in found
        ]


class _Relay:
    """What a guard must know of an answer, if it ever has to go on with it.

    `_before`: the first frame that the client has, those that open and close calls, those with the dialect's mark, and
    the newest one, by which a writer knows where the stream is.
    """

    __slots__ = ("_before", "_mark", "_newest", "_reached", "foresight")

    def __init__(self, foresight: Foresight, mark: bytes) -> None:
        self.foresight = foresight
        self._mark = mark
        self._before: list[bytes] = []
        self._newest: bytes | None = None
        self._reached: tuple[Opening, Reader] | None = None

    def keep(self, raw: bytes) -> None:
        """Keep frames that come before any call, as far as it is needed."""
        if (not self._before or self._marks(raw)) and b"{" in raw:
            self._before.append(raw)

    def foresees(self, frame: bytes, payload: Payload | None, events: Sequence[Event], reader: Reader) -> bool:
        """Whether a call that this frame opens could be one too many; then a guard must go on from it."""
        if not events:
            if self._newest is not None and self._newest is self._before[-1]:
                self._before.pop()
            self._newest = frame if self._before and not self._marks(frame) else None
        elif payload is not None and self.foresight.foresees(events):
            self._reached = Opening(frame, payload, events, tuple(reader.entries)), reader
            return True
        self._before.append(frame)
        return False

    def hand_over(self, framer: Framer, rest: Iterable[bytes]) -> Handover | None:
        """What goes on from the frame that was reached; None if none was. `rest`: those behind it."""
        if self._reached is None:
            return None
        opening, reader = self._reached
        return Handover(framer, reader, self._before, opening, tuple(rest))

    def _marks(self, raw: bytes) -> bool:
        return bool(self._mark) and self._mark in raw


class Observer:
    """Reads one answer of `choices` choices, up to `max_response_bytes` bytes from the frame of its first call on: what
    comes before may pass unread, by its chunks.

    `judge` gives the verdicts; without one, that of `judge_of` does where the calls of the answer make it necessary:
    where they are more than there is `room` for. `handover` is set, where `hands_over`, before a call leaves that could
    be one too many: then a guard must go on with it. `buffered_bytes` wait for the rest of their frame; of a whole
    answer all that have come.

    While `idle` (no call so far, no incomplete frame), chunks that end in `frame_end` and do not contain the dialect's
    `call_mark`, nor escaped letters, need not be fed.
    """

    __slots__ = (
        "_answer_id",
        "_calls",
        "_codec",
        "_ending",
        "_finder",
        "_framer",
        "_judging",
        "_left",
        "_reader",
        "_relay",
        "buffered_bytes",
        "frame_end",
        "handover",
        "idle",
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
        hands_over: bool = False,
    ) -> None:
        self._judging = _Judging(choices, settings, judge, judge_of, room)
        self._codec = codec_of(dialect, form)
        self._framer = form.framer()
        self._relay: _Relay | None = None
        if hands_over and room != NO_LIMIT:
            self._relay = _Relay(Foresight(room, settings), self._codec.kept_mark)
        self._reader = self._codec.reader(trace=self._relay is not None)
        self._calls = self._reader.calls
        self._ending = Ending()
        self._answer_id = ""
        self._left = settings.max_response_bytes
        self._finder = TemplateFinder(self._calls, form.payload)
        self.handover: Handover | None = None
        self.buffered_bytes = 0
        self.frame_end = form.frame_end
        self.idle = self._framer.empty

    @property
    def may_judge(self) -> bool:
        """Whether `settle` may have to make a judge, for there are many calls."""
        return self._judging.judge is None and len(self._calls) > min(self._judging.room)

    def grows(self, chunk: bytes) -> bool:
        """Read a chunk that only brings more pieces of a call, as most do behind its beginning; False if it has to be
        fed. Such a chunk changes nothing but the call."""
        if self.buffered_bytes or len(chunk) > self._left or not self._finder.append(chunk):
            return False
        self._left -= len(chunk)
        return True

    def feed(self, chunk: bytes) -> int | None:
        """Read a chunk of the answer. Returns `buffered_bytes`; None if these are none, as before, and no guard has to
        go on."""
        if self.idle and self._is_quiet(chunk):  # the caller may feed all the same, e.g. an answer in one chunk
            if self._relay is not None:
                self._relay.keep(chunk)
            return None
        if self._left < 0:
            return 0
        framer, waited = self._framer, self.buffered_bytes
        self._read(framer.feed(chunk))
        if framer.waiting > self._left and self.handover is None:  # else the framer is the guard's
            self._left = -1
            framer.flush()
        self.idle = framer.empty and not self._calls
        self.buffered_bytes = waits = framer.waiting
        return waits if waited or waits or self.handover is not None else None

    def _is_quiet(self, chunk: bytes) -> bool:
        codec = self._codec
        return not codec.shows_call(chunk) and chunk.endswith(self.frame_end) and not codec.is_stateful

    def _read(self, frames: Iterable[bytes]) -> None:
        """Read the frames that may say something about calls."""
        codec, left = self._codec, iter(frames)
        for frame in left:
            if self._finder.append(frame):
                self._left -= len(frame)
            elif self._calls or codec.is_stateful or codec.shows_call(frame):
                self._left -= len(frame)
                if self._left < 0:  # in pieces it would not have been waited for
                    return
                if not frame.isspace() and self._reaches(frame):
                    if self._relay is not None:
                        self.handover = self._relay.hand_over(self._framer, left)
                    return
            elif self._relay is not None:
                self._relay.keep(frame)

    def _reaches(self, frame: bytes) -> bool:
        """Read a frame. Whether it is the last one that is read here: a guard must go on, or none behind it can be
        told."""
        self._finder.begin()
        try:
            payload = self._codec.form.payload(frame)
        except NotFramed:
            self._ending.broke, self._left = True, -1
            return True
        except NotJSON:
            return False
        events = self._events_of(frame, payload)
        if self._relay is not None and self._relay.foresees(frame, payload, events, self._reader):
            return True
        for event in events:
            self._ending.note(event)
        self._finder.find(frame)
        return False

    def _events_of(self, frame: bytes, payload: Payload | None) -> Sequence[Event]:
        """What a frame says."""
        codec = self._codec
        if payload is None:
            return self._reader.end() if codec.is_end(frame) else ()
        if codec.is_stateful:
            self._answer_id = self._answer_id or codec.answer_id(payload)
        return self._reader.read(payload)

    def read_rest(self) -> None:
        """Read what has come of an incomplete frame, as nothing comes behind it: of a whole answer all."""
        if rest := self._framer.flush():
            self.buffered_bytes = 0
            self._read((rest,))

    def settle(self) -> ExchangeRecord:
        """The record of the delivered answer: its calls and their verdicts. Empty if it broke, or was too long to
        read."""
        record = ExchangeRecord(self._judging.choices)
        self.read_rest()
        if not self._ending.finished or self._ending.broke or self._left < 0:
            record.is_incomplete = bool(self._calls) or self._ending.broke or self._left < 0
            return record
        if self._answer_id:
            record.answers.append(StoredAnswer(self._answer_id))
        whole = [call for call in self._calls if self._ending.is_evidence(call)]
        record.is_incomplete = len(whole) < len(self._calls)
        of_choice: dict[int, list[ToolCall]] = {}
        for call in whole:
            made = call.complete() if self._relay is None else self._relay.foresight.made(call)
            of_choice.setdefault(call.choice, []).append(made)
        for choice in sorted(of_choice):
            self._keep(record, of_choice[choice])
        return record

    def _keep(self, record: ExchangeRecord, calls: Sequence[ToolCall]) -> None:
        """Record a delivered round with its verdicts, none of which withholds."""
        calls = apply_ignored_arguments(calls, self._judging.settings)
        record.keep(calls, self._judging.verdicts(calls))
