"""Observes an answer in which no call can be held; its bytes pass unchanged.

The observer assembles the calls for the ledger and gives the verdicts of rungs that leave the answer alone.
"""

from collections.abc import Iterable, Sequence

from callfuse.dialects.base import Dialect, StoredAnswer
from callfuse.dialects.codec import codec_of
from callfuse.guard.calls import Ending
from callfuse.guard.judge import Judge
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.template import ChunkTemplate, TemplateFinder
from callfuse.model import ToolCall
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, Format, NotFramed
from callfuse.wire.jsontext import NotJSON


class Observer:
    """Reads one answer of `choices` choices, up to `max_response_bytes` bytes. Without a judge it gives no verdicts.

    While `idle` (no call so far, no incomplete frame), chunks that end in `frame_end` and do not contain the dialect's
    `call_mark`, nor escaped letters, need not be fed.
    """

    __slots__ = (
        "_answer_id",
        "_calls",
        "_choices",
        "_codec",
        "_ending",
        "_finder",
        "_framer",
        "_judge",
        "_left",
        "_reader",
        "_settings",
        "_template",
        "frame_end",
        "idle",
    )

    def __init__(
        self, dialect: Dialect, choices: int, settings: LoopSettings, judge: Judge | None, form: Format = EVENTS
    ) -> None:
        self._choices = choices
        self._settings = settings
        self._judge = judge
        self._codec = codec_of(dialect, form)
        self._framer = form.framer()
        self._reader = self._codec.reader()
        self._calls = self._reader.calls
        self._ending = Ending()
        self._answer_id = ""
        self._left = settings.max_response_bytes
        self._template: ChunkTemplate | None = None
        self._finder = TemplateFinder(self._calls, form.payload)
        self.frame_end = form.frame_end
        self.idle = self._framer.empty

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the rest of their frame; for a whole answer all that have come."""
        return self._framer.waiting

    def feed(self, chunk: bytes) -> int | None:
        """Read a chunk of the answer. Returns `buffered_bytes`; None if it is sure to be as before."""
        if self.idle and self._is_quiet(chunk):  # the caller may feed all the same, e.g. an answer in one chunk
            return None
        self._left -= len(chunk)
        if self._left < 0:
            self._framer.flush()
            return 0
        template = self._template
        if template is not None and template.append(chunk):
            return None
        frames = self._framer.feed(chunk)
        if self._calls:
            self._read_growing(chunk, frames)
        else:
            self._read(frames)
            self.idle = not self._calls and self._framer.empty
        return self._framer.waiting

    def _is_quiet(self, chunk: bytes) -> bool:
        codec = self._codec
        return not codec.shows_call(chunk) and chunk.endswith(self.frame_end) and not codec.is_stateful

    def _read_growing(self, chunk: bytes, frames: Sequence[bytes]) -> None:
        """Read a chunk after a call has begun; it may serve as the template of the next one."""
        last, self._template = self._template, None
        before = self._finder.begin(last) if frames and frames[0] is chunk else None
        self._read(frames)
        if before is not None:
            self._template = self._finder.find(chunk, before)

    def _read(self, frames: Iterable[bytes]) -> None:
        """Read the frames that may say something about calls."""
        codec = self._codec
        for frame in frames:
            if not (self._calls or codec.is_stateful or codec.shows_call(frame)):
                continue
            try:
                payload = codec.form.payload(frame)
            except NotFramed:
                self._ending.broke = True
                continue
            except NotJSON:
                continue
            if payload is None:
                events = self._reader.end() if codec.is_end(frame) else ()
            else:
                if codec.is_stateful:
                    self._answer_id = self._answer_id or codec.answer_id(payload)
                events = self._reader.read(payload)
            for event in events:
                self._ending.note(event)

    def settle(self) -> ExchangeRecord:
        """The record of the delivered answer: its calls and their verdicts. Empty if it broke, or was too long to
        read."""
        record = ExchangeRecord(self._choices)
        if rest := self._framer.flush():
            self._read((rest,))
        if not self._ending.finished or self._ending.broke or self._left < 0:
            return record
        if self._answer_id:
            record.answers.append(StoredAnswer(self._answer_id))
        whole = [call for call in self._calls if self._ending.is_evidence(call)]
        of_choice: dict[int, list[ToolCall]] = {}
        for call in whole:
            of_choice.setdefault(call.choice, []).append(call.complete())
        for choice in sorted(of_choice):
            self._keep(record, of_choice[choice])
        return record

    def _keep(self, record: ExchangeRecord, calls: Sequence[ToolCall]) -> None:
        """Record a delivered round with its verdicts, none of which withholds."""
        calls = apply_ignored_arguments(calls, self._settings)
        record.keep(calls, self._judge.verdicts(calls) if self._judge and self._judge.any_finding else ())
