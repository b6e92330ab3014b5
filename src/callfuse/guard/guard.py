"""The guard of one client's stream: chunks in, the bytes that may leave out, at an answer's end what is to be done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from callfuse.dialects.base import AskError, Block, Dialect, OpenCall, Request, Writer
from callfuse.guard.answer import Answer, BrokenStreamError, payloads_of
from callfuse.guard.course import Course, all_ask
from callfuse.guard.judge import Judge
from callfuse.guard.step import Step
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import EVENTS, Format, Payload
from callfuse.wire.jsontext import NotJSON


class StreamGuard:
    """Guards one client's stream, over as many answers as it takes."""

    def __init__(self, dialect: Dialect, request: Request, judge: Judge, form: Format = EVENTS) -> None:
        self._course = Course(dialect, request, judge)
        self.record = self._course.record
        self._dialect = dialect
        self._format = form
        self._request = request
        self._judge = judge
        self._settings = judge.settings
        self._writer: Writer | None = None
        self._silent = False
        self._begin()

    def _begin(self) -> None:
        """Ready for the first, or the next, answer."""
        self._answer = Answer(self._dialect, self._format, self._judge, self._writer)
        self._raw: list[bytes] = []
        self._raw_bytes = 0
        self._recorded = False
        self._unjudged = False

    @property
    def due(self) -> bool:
        """Whether a verdict is wanted."""
        return bool(self._answer.due)

    @property
    def holding(self) -> bool:
        """Whether something waits that the client does not have."""
        return bool(self._answer.queue) or self.pending

    @property
    def complete(self) -> bool:
        """Whether the current answer has come to its proper end."""
        return self._answer.complete

    @property
    def pending(self) -> bool:
        """Whether another answer is awaited, or nothing of it has gone out."""
        return bool(self._course.asked)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait in the stream buffer."""
        return self._answer.waiting

    def feed(self, chunk: bytes) -> bytes:
        """What may leave of this chunk and of what waited."""
        answer = self._answer
        if self._silent:
            return b""
        if answer.passes:
            return chunk
        if answer.is_quiet(chunk):
            if self._raw_bytes + len(chunk) > self._settings.max_response_bytes:
                return self.fail("max_response_bytes") + chunk
            self._keep(chunk)
            return chunk
        out = self._read(answer.frames(chunk))
        if answer.waiting > self._settings.max_held_bytes and not answer.is_open and not answer.due:
            out += self.fail("max_held_bytes")
        return self._out(out)

    def finish(self) -> bytes:
        """The upstream has ended its body."""
        if self._silent:
            return b""
        rest = self._answer.last_frame()
        out = self._read([rest]) if rest else b""
        if not self.pending or self._answer.spoke or self._answer.would_complete:
            self._answer.finish()
        return self._out(out + self._answer.drain())

    def cut(self) -> bytes:
        """The upstream has broken off. What continues an answer, and of which nothing has gone out, is dropped."""
        return b"" if self._silent or self.pending else self._answer.cut()

    def _out(self, out: bytes) -> bytes:
        """Bytes go out: once an answer has spoken, or ended, there is no other way than to go on with it."""
        if self._answer.spoke or (self._answer.complete and not self._answer.due):
            self._course.settled()
        return out

    def fail(self, cause: str) -> bytes:
        """An error or a limit before the verdict: everything leaves, and passes from now on."""
        out = self._let_go(cause)
        return out if self._silent or not self._answer.passes else out + self._answer.last_frame()

    def _let_go(self, cause: str, raw: bytes | None = None) -> bytes:
        """The frames that wait leave, and the one at fault. Under `fail_closed` no call leaves unjudged: held calls end
        in a block, and a frame at fault passes only if it speaks of none."""
        self.record.fail_open.append(cause)
        held = self._answer.held
        self._answer.spoke |= bool(raw)
        if not self._settings.fail_closed:
            self._answer.open()
            return self._answer.drain() + (raw or b"")
        if raw is not None and not held and self._dialect.call_mark not in raw:
            return self._answer.drain() + raw
        names = {call.choice: call.name for call in held} or {0: ""}
        out = self._answer.drain()
        self._raw = [kept for kept in self._raw if kept is not raw]  # the client does not get it
        return out + self._close({choice: Block(texts.unjudged(name)) for choice, name in names.items()})

    def verdicts(self) -> list[Verdict]:
        """What policy says about the calls that wait; nothing, which lets them go, where that cannot be known."""
        try:
            return self._verdicts(self._answer.due)
        except Exception as error:  # noqa: BLE001 - before the verdict an error lets the call go
            self.record.fail_open.append(_cause(error))
            self._unjudged = True
            return []

    def _verdicts(self, choices: Iterable[int]) -> list[Verdict]:
        """The verdicts over choices, but those that would withhold what has gone out."""
        found: list[Verdict] = []
        for choice in sorted(choices):
            calls = self._answer.calls(choice)
            gone = {complete for call, complete in calls.items() if call not in self._answer.held}
            verdicts = self._judge.verdicts(list(calls.values()))
            found += [verdict for verdict in verdicts if not (verdict.withholds and verdict.call in gone)]
        return found

    def act(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry the verdicts out, as policy gave them or a callback changed them."""
        try:
            return self._act(verdicts)
        except Exception as error:  # noqa: BLE001 - from the verdict on the call is gone, whatever goes wrong
            self._course.settled()
            self.record.fail_open.append(f"{_cause(error)} (while acting)")
            return Step(self._close_somehow(self._answer.due or {0}, verdicts))

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        answer = self._answer
        self._course.settled()
        if self._unjudged and self._settings.fail_closed:
            names = {call.choice: call.name for call in answer.held}
            return Step(self._close({choice: Block(texts.unjudged(name)) for choice, name in names.items()}))
        calls = {call: whole for choice in sorted(answer.choices()) for call, whole in answer.calls(choice).items()}
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        withheld = {call for call, whole in calls.items() if whole in guilty}
        lost = [choice for choice in sorted(answer.due) if not answer.has_others(choice, withheld)]
        if lost:
            verdicts = self._course.as_one(verdicts)
        if lost and not self._may_lose(verdicts):
            verdicts = [replace(verdict, rung=None) for verdict in verdicts]
            withheld = set()
        self._recorded = True
        self._course.keep(list(calls.values()), verdicts, partial(self._payloads, lenient=True))
        if not withheld:
            answer.release_all()
            return Step(answer.drain())
        if lost and all_ask(verdicts):
            return self._ask(verdicts, withheld)
        self._course.note([whole for call, whole in calls.items() if call not in withheld], verdicts)
        where = {whole: call.choice for call, whole in calls.items()}
        blocks = {choice: self._course.block(one for one in verdicts if where[one.call] == choice) for choice in lost}
        out = self._writing().thin(answer.waiting_frames(), withheld, blocks)
        answer.clear()
        return Step(out)

    def answered(self) -> None:
        """The model has begun to answer the request of the last step: what is fed now is that answer."""
        try:
            self._writing().next_answer(foreign=self._course.foreign)
            self._course.answered()
        except Exception as error:  # noqa: BLE001 - the answer is then judged as if it were the first
            self.record.fail_open.append(_cause(error))
        self._silent = False
        self._begin()

    def unanswered(self) -> Step:
        """The request of the last step has failed: the next rung."""
        self._recorded = True
        try:
            if ask := self._course.next():
                return Step(b"", ask)
        except Exception as error:  # noqa: BLE001 - see `act`
            self.record.fail_open.append(f"{_cause(error)} (while asking)")
        self._answer.clear()
        return Step(self._close_somehow({0}, self._course.settled()))

    def settle(self) -> None:
        """The answer has been delivered whole: keep its calls, with the verdicts of rungs that leave it alone, unless
        a verdict has done so."""
        if not self.complete or self._recorded:
            return
        try:
            verdicts = self._verdicts(self._answer.choices())
        except Exception as error:  # noqa: BLE001 - the client has its answer
            self.record.fail_open.append(_cause(error))
            verdicts = []
        calls = list(self._answer.calls(0).values())
        self._course.keep(calls, verdicts, partial(self._payloads, lenient=True))

    def _ask(self, verdicts: Sequence[Verdict], withheld: set[OpenCall]) -> Step:
        """Ask the model again, or take the next rung where its turn cannot be put together."""
        answer = self._answer
        writer = self._writing()
        ask = self._course.ask(verdicts, partial(self._turn, writer))
        if ask:
            out = writer.before_asking(answer.waiting_frames(behind_end=False), withheld)
            self._silent = True
        else:
            out = writer.thin(answer.waiting_frames(), withheld, {0: self._course.block(self._course.settled())})
        answer.clear()
        return Step(out, ask)

    def _turn(self, writer: Writer) -> bytes:
        """The model's turn; raises AskError where it cannot be put together, or no other answer can go on from it."""
        if not writer.may_continue:
            raise AskError("structured text")
        return self._dialect.turn(self._payloads())

    def _may_lose(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer may lose all its calls: not to a block while a server-side tool waits for its result, and
        to another answer only while the client has not seen that tool's call."""
        payloads = self._payloads(lenient=True)
        if not self._dialect.is_unfinished(payloads):
            return True
        held = {id(frame.raw) for frame, _ in self._answer.queue}
        sent = payloads_of(self._format, [raw for raw in self._raw if id(raw) not in held])
        return all_ask(verdicts) and not self._dialect.is_unfinished(sent)

    def _close(self, blocks: Mapping[int, Block]) -> bytes:
        """End the client's stream with these texts; of what waits go out the parts that are no calls."""
        writer = self._writing()
        frames = self._answer.waiting_frames()
        out = writer.before_asking(frames, self._answer.held) if frames else b""
        self._silent = True
        self._answer.clear()
        return out + writer.close(blocks)

    def _close_somehow(self, choices: set[int], verdicts: Sequence[Verdict]) -> bytes:
        """End the stream with the block's text, whatever is broken; if nothing can be written, it breaks off."""
        for text in (self._course.block, lambda _: Block(texts.unjudged(""))):
            try:
                return self._close({choice: text(verdicts) for choice in sorted(choices)})
            except Exception as error:  # noqa: BLE001 - see `act`
                self.record.fail_open.append(f"{_cause(error)} (while closing)")
        self._silent = True
        return b""

    def _writing(self) -> Writer:
        """The writer, told of everything that the client has."""
        if self._writer is None:
            self._writer = self._request.writer(usage=self._settings.usage)
            held = {id(frame.raw) for frame, _ in self._answer.queue}
            for payload in payloads_of(self._format, [raw for raw in self._raw if id(raw) not in held]):
                self._writer.sent(payload)
        return self._writer

    def _payloads(self, *, lenient: bool = False) -> list[Payload]:
        """Everything in the current answer, as it came; raises AskError where it was too long to keep."""
        if self._raw_bytes > self._settings.max_response_bytes and not lenient:
            raise AskError("length")
        return payloads_of(self._format, self._raw)

    def _read(self, frames: Sequence[bytes]) -> bytes:
        """What may leave of these frames; an error lets everything go, the frame at fault too."""
        answer = self._answer
        out = bytearray()
        for raw in frames:
            if answer.queue and not answer.over and answer.held_bytes + len(raw) > self._settings.max_held_bytes:
                out += self._let_go("max_held_bytes")
            elif self._raw_bytes + len(raw) > self._settings.max_response_bytes and not (answer.is_open or answer.over):
                out += self._let_go("max_response_bytes")
            if self._silent:
                return bytes(out)
            if answer.passes:
                out += raw
            else:
                self._keep(raw)
                out += self._read_one(raw)
        return bytes(out + answer.last_frame() if answer.passes else out)

    def _read_one(self, raw: bytes) -> bytes:
        """What may leave now that a frame has come."""
        answer = self._answer
        try:
            frame = answer.spliced(raw)
        except NotJSON:
            if answer.queue:
                return self._let_go("malformed frame", raw)
            return b"" if self.pending else raw  # what another answer begins with must be of it
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not notice
            return self._let_go(_cause(error), b"" if self._writer else raw)
        try:
            answer.take(frame)
        except Exception as error:  # noqa: BLE001 - see above
            if self.pending and not answer.spoke:
                self._silent = True  # the next rung is taken once the app has ended this answer
                return b""
            return self._let_go(_cause(error), frame.raw)
        return answer.drain()

    def _keep(self, raw: bytes) -> None:
        """Keep what came, for the model's turn and for the writer; not more than an answer may be long."""
        self._raw_bytes += len(raw)
        if self._raw_bytes <= self._settings.max_response_bytes:
            self._raw.append(raw)


def _cause(error: Exception) -> str:
    """An error as a cause for failing open."""
    return str(error) if isinstance(error, BrokenStreamError) else f"{type(error).__name__}: {error}"
