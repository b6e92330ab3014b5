"""Make the readers of an answer after its start: its intake, its guard, and a test for chunks that need not be read.

They depend only on the request and the start. The driver (`driver.py`) decides what happens to the answer.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from callfuse.asgi.answer import UNDECLARED, Intake, Shape
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import Stage
from callfuse.asgi.keep import Keeper
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.types import Message
from callfuse.guard.assembly import Assembly
from callfuse.guard.growing_texts import GrowingTexts
from callfuse.observe import log
from callfuse.wire import WHOLE
from callfuse.wire.jsontext import BACKSLASH, may_hide_letters


class Watching(NamedTuple):
    """How to read an answer without suspect calls so far.

    `revive`: reads the request again if a call could be one too many. `unpacks`: the answer must be read, even if it is
    compressed. `reads_all`: the answer's id is needed, even without calls.
    """

    revive: Callable[[], Awaitable[Review]]
    unpacks: bool
    reads_all: bool


class Quiet(NamedTuple):
    """Recognizes chunks that need not be read: whole frames without a call. `mark`: occurs in every frame with a call;
    `other_mark`: occurs in other frames that must be read; empty if there are none."""

    mark: bytes
    other_mark: bytes
    frame_end: bytes | tuple[bytes, ...]

    def passes(self, chunk: bytes) -> bool:
        """Whether a chunk need not be read. `AnswerDriver.send` repeats these lines, to save a call."""
        return (
            chunk.find(self.mark) < 0
            and (not self.other_mark or chunk.find(self.other_mark) < 0)
            and (chunk.endswith(self.frame_end) or not chunk)
            and (BACKSLASH not in chunk or not may_hide_letters(chunk))
        )


READ_ALL: Final = Quiet(b"", b"", ())
"""No chunk passes unread."""


class AnswerOpening:
    """Makes the readers of an exchange's answer: intake, guard and `Quiet`.

    `watching`: None if the guard follows the answer from its start, and once the exchange is over. `reads_all`: an
    answer without calls is read, too. `texts`: checks the model's text, each time that its `room` is used up.
    """

    __slots__ = ("_evidence", "_keeper", "reads_all", "texts", "watching")

    def __init__(self, evidence: ExchangeEvidence, keeper: Keeper, watching: Watching | None) -> None:
        self._evidence = evidence
        self._keeper = keeper
        self.reads_all = watching is not None and watching.reads_all
        self.texts = GrowingTexts(evidence.settings)
        self.watching = watching

    def stage(self) -> Stage:
        """Return a new stage for a step of reading the answer."""
        return self._keeper.fail_open.stage("while guarding" if self.watching is None else "while watching")

    def intake_of(self, message: Message) -> Intake | None:
        """Return the intake of an answer that starts with this message; None if it cannot be read, or need not be."""
        evidence, watching = self._evidence, self.watching
        intake = Intake(message, evidence.request.stream_format, streamed=evidence.request.streamed)
        shape = intake.shape
        if watching is not None:
            if intake.packed and not watching.unpacks:
                self._keeper.tally.unwatched("content-encoding")
                return None
            may_hold = evidence.may_hold and not intake.packed
            intake.raw = not may_hold or (intake.has_length and not intake.may_be_whole)
        if shape.unreadable and shape is not UNDECLARED:
            self.tell_unread(shape.unreadable)
            return None
        return intake

    def tell_unread(self, cause: str) -> None:
        """Report why the answer is not read."""
        if self.watching is None:
            self._keeper.tally.unguarded(cause)
        else:
            self._keeper.tally.unwatched(cause)

    def guard_of(self, intake: Intake, stage: Stage) -> SafeGuard:
        """Make a guard for an answer of this form. `stage`: catches errors of making it and of assembling."""
        evidence, shape = self._evidence, intake.shape
        request, assembly = evidence.request, None
        if self.watching is not None:
            whole = shape.stream is None
            texts = GrowingTexts(evidence.settings, whole=True) if whole else self.texts
            assembly = Assembly(
                request.dialect,
                request.choices,
                evidence.settings,
                None if evidence.is_healthy else evidence.judge,
                shape.stream or WHOLE,
                room=evidence.room,
                judge_of=lambda: evidence.judge,
                may_hold=not intake.raw,
                texts=texts,
            )
        guard = SafeGuard(request.dialect, shape, request.choices, stage, assembly=assembly)
        if assembly is None:
            guard.begin(request.get(), evidence.judge, log.tracer(self._keeper.session))
        elif intake.begin:
            self.texts.room += len(intake.begin)
            guard.begin_assembly(assembly, intake.begin)
        intake.direct = shape.stream is not None and not (intake.packed or intake.raw)
        return guard

    def quiet_of(self, shape: Shape) -> Quiet:
        """Return how to recognize chunks of a stream that need not be read."""
        dialect, frame_end = self._evidence.request.dialect, () if shape.stream is None else shape.stream.frame_end
        mark = b"" if self.reads_all else dialect.call_mark
        return Quiet(mark, dialect.kept_mark or dialect.repeats.mark, frame_end)
