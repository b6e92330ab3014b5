"""The watcher of an answer of which no call needs holding: it looks at bytes that pass whatever it sees.

It assembles calls for the ledger, and gives the verdicts of rungs that leave the answer alone; without a judge there
are none.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from callfuse.dialects.base import Dialect, OpenCall, Remembered, What, remembering
from callfuse.guard.growth import Growth, growth_in, lengths_of
from callfuse.guard.judge import Judge
from callfuse.guard.record import Record
from callfuse.model import ToolCall
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, Format
from callfuse.wire.jsontext import NotJSON, loads

TRIES: Final = 4
"""So many chunks are looked at for one that the next is like, and no more where none is."""
MOST: Final = 64
"""Calls of one answer among which such chunks are looked for."""


class Asked(Protocol):
    """What of a request counts here, which may have been dropped: how many choices are asked for."""

    choices: int


class StreamTap:
    """Watches one streamed answer.

    While it is `idle` (no call has come, no frame is cut in two) whole frames without the dialect's `call_mark` need
    not be fed.
    """

    __slots__ = (
        "_answer",
        "_broke",
        "_calls",
        "_choices",
        "_cut",
        "_events",
        "_finished",
        "_framer",
        "_frames",
        "_growth",
        "_is_end",
        "_judge",
        "_left",
        "_mark",
        "_payload",
        "_reader",
        "_remembering",
        "_settings",
        "_tries",
        "frame_end",
        "idle",
    )

    def __init__(
        self, dialect: Dialect, request: Asked, settings: LoopSettings, judge: Judge | None, form: Format = EVENTS
    ) -> None:
        self._choices = request.choices
        self._settings = settings
        self._judge = judge
        self._payload = form.payload
        self._framer = form.framer()
        self._frames = self._framer.feed
        self.frame_end = form.frame_end
        self._mark = dialect.call_mark
        self._is_end = dialect.is_end
        self._reader = dialect.reader()
        self._events = self._reader.read
        self._calls = self._reader.calls
        self._remembering = remembering(dialect)
        self._answer = ""
        self.idle = self._framer.empty
        self._left = settings.max_response_bytes
        self._cut: set[OpenCall] = set()
        self._finished = False
        self._broke = False
        self._growth: Growth | None = None
        self._tries = TRIES

    def feed(self, chunk: bytes) -> None:
        """Look at a chunk."""
        if self.idle and self._mark not in chunk and chunk.endswith(self.frame_end) and self._remembering is None:
            return  # a whole answer in one chunk, say: see `idle`
        self._left -= len(chunk)
        if self._left < 0:
            return
        growth = self._growth
        if growth is not None and growth.takes(chunk):
            return
        frames = self._frames(chunk)
        if self._calls:
            self._grow(chunk, frames)
        else:
            self._read(frames)
            self.idle = not self._calls and self._framer.empty

    def _grow(self, chunk: bytes, frames: Sequence[bytes]) -> None:
        """Read a chunk behind the beginning of a call; the next one may be like it."""
        if self._growth is not None and self._growth.has_taken:
            self._tries = TRIES
        self._growth = None
        if self._tries and len(self._calls) <= MOST and frames and frames[0] is chunk:
            self._tries -= 1
            before = lengths_of(self._calls)
            self._read(frames)
            self._growth = growth_in(chunk, self._calls, before, self._payload)
        else:
            self._read(frames)

    def _read(self, frames: Iterable[bytes]) -> None:
        """Read the frames that may matter."""
        for frame in frames:
            if not (self._calls or self._mark in frame or self._remembering is not None):
                continue
            try:
                payload = self._payload(frame)
            except NotJSON:
                continue
            if payload is None:
                events = self._reader.end() if self._is_end(frame) else ()
            else:
                if self._remembering is not None:
                    self._answer = self._answer or self._remembering.answer_id(payload)
                events = self._events(payload)
            for event in events:
                if event.what in (What.FINISHED, What.CUT):
                    self._finished = True
                    if event.call is not None:
                        self._cut.add(event.call)
                elif event.what is What.BROKE:
                    self._broke = True

    def settle(self) -> Record:
        """The answer has been delivered whole: what it has brought, judged."""
        record = Record(self._choices)
        if rest := self._framer.rest():
            self._read((rest,))
        if not self._finished or self._broke or self._left < 0:
            return record
        if self._answer:
            record.answers.append(Remembered(self._answer))
        whole = [call for call in self._calls if call.closed and call.name and call not in self._cut]
        for choice in sorted({call.choice for call in whole}):
            calls = [call.complete() for call in whole if call.choice == choice]
            _settle(record, calls, self._settings, self._judge)
        return record


class WholeTap:
    """Watches one whole answer, as long as it is within `max_response_bytes`."""

    idle = False

    __slots__ = ("_choices", "_chunks", "_dialect", "_judge", "_left", "_settings")

    def __init__(self, dialect: Dialect, request: Asked, settings: LoopSettings, judge: Judge | None) -> None:
        self._choices = request.choices
        self._dialect = dialect
        self._settings = settings
        self._judge = judge
        self._chunks: list[bytes] = []
        self._left = settings.max_response_bytes

    def feed(self, chunk: bytes) -> None:
        """Look at a chunk."""
        self._left -= len(chunk)
        if self._left >= 0:
            self._chunks.append(chunk)

    def settle(self) -> Record:
        """The answer has been delivered whole: what it has brought, judged."""
        record = Record(self._choices)
        body = b"".join(self._chunks)
        follower = remembering(self._dialect)
        if self._left < 0 or (self._dialect.call_mark not in body and follower is None):
            return record
        try:
            payload = loads(body)
        except NotJSON:
            return record
        if follower is not None and isinstance(payload, dict):
            record.answers.append(Remembered(follower.answer_id(payload)))
        for choice in self._dialect.read_whole(payload) if isinstance(payload, dict) else ():
            _settle(record, choice.complete(), self._settings, self._judge)
        return record


def _settle(record: Record, calls: Sequence[ToolCall], settings: LoopSettings, judge: Judge | None) -> None:
    """Keep a delivered round with the verdicts over it, none of which withholds."""
    if calls:
        calls = apply_ignored_arguments(calls, settings)
        record.keep(calls, judge.verdicts(calls) if judge and judge.any_finding else ())
