"""The observer of an answer, streamed or whole, of which no call needs holding: it reads beside bytes that pass
whatever it sees.

It assembles the calls for the ledger, and gives the verdicts of rungs that leave the answer alone.
"""

from collections.abc import Iterable, Sequence

from callfuse.dialects.base import Dialect, Remembered
from callfuse.dialects.codec import codec_of
from callfuse.guard.calls import Ending
from callfuse.guard.judge import Judge
from callfuse.guard.record import Record
from callfuse.guard.template import ChunkTemplate, TemplateFinder
from callfuse.model import ToolCall
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, Format
from callfuse.wire.jsontext import NotJSON


class Observer:
    """Watches one answer, of so many choices, up to `max_response_bytes`; without a judge it gives no verdicts.

    While it is `idle` (no call has come, no frame is cut in two) chunks that end in `frame_end` and do not contain the
    dialect's `call_mark` need not be fed.
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

    def feed(self, chunk: bytes) -> None:
        """Look at a chunk."""
        if self.idle and self._is_quiet(chunk):  # an answer in one chunk, say: see `idle`
            return
        self._left -= len(chunk)
        if self._left < 0:
            self._framer.flush()
            return
        template = self._template
        if template is not None and template.append(chunk):
            return
        frames = self._framer.feed(chunk)
        if self._calls:
            self._read_growing(chunk, frames)
        else:
            self._read(frames)
            self.idle = not self._calls and self._framer.empty

    def _is_quiet(self, chunk: bytes) -> bool:
        codec = self._codec
        return codec.call_mark not in chunk and chunk.endswith(self.frame_end) and not codec.remembers

    def _read_growing(self, chunk: bytes, frames: Sequence[bytes]) -> None:
        """Read a chunk behind the beginning of a call; it may be a template of the next one."""
        last, self._template = self._template, None
        before = self._finder.begin(last) if frames and frames[0] is chunk else None
        self._read(frames)
        if before is not None:
            self._template = self._finder.find(chunk, before)

    def _read(self, frames: Iterable[bytes]) -> None:
        """Read the frames that may matter."""
        codec = self._codec
        for frame in frames:
            if not (self._calls or codec.call_mark in frame or codec.remembers):
                continue
            try:
                payload = codec.form.payload(frame)
            except NotJSON:
                continue
            if payload is None:
                events = self._reader.end() if codec.is_end(frame) else ()
            else:
                if codec.remembers:
                    self._answer_id = self._answer_id or codec.answer_id(payload)
                events = self._reader.read(payload)
            for event in events:
                self._ending.note(event)

    def settle(self) -> Record:
        """The answer has been delivered whole: what it has brought, judged."""
        record = Record(self._choices)
        if rest := self._framer.flush():
            self._read((rest,))
        if not self._ending.finished or self._ending.broke or self._left < 0:
            return record
        if self._answer_id:
            record.answers.append(Remembered(self._answer_id))
        whole = [call for call in self._calls if self._ending.is_evidence(call)]
        for choice in sorted({call.choice for call in whole}):
            self._keep(record, [call.complete() for call in whole if call.choice == choice])
        return record

    def _keep(self, record: Record, calls: Sequence[ToolCall]) -> None:
        """Keep a delivered round with the verdicts over it, none of which withholds."""
        calls = apply_ignored_arguments(calls, self._settings)
        record.keep(calls, self._judge.verdicts(calls) if self._judge and self._judge.any_finding else ())
