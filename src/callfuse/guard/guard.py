"""Guard one client's answer, streamed or whole: chunks of the model's answer go in, the bytes that may leave come out.

Rules:

1. Until the verdict, every error and every limit releases what is held, unchanged and in order, including the frame at
   fault. With `fail_closed`, a block replaces calls that could not be judged.
2. After the verdict, a withheld call is never delivered. A failure leads to the next rung of the ladder, and finally to
   the block's text. If even that cannot be written, the answer breaks off.
3. `feed` may raise. Its caller catches the error once per chunk, and `recover` returns what leaves. Errors elsewhere
   are caught by `AnswerFrames.attempt`; an error is raised only if even the release fails.
4. Bytes that need no change leave unchanged. Frames wait as raw bytes, and are parsed again only if callfuse acts.
5. Results depend on the order of bytes, never on the chunks: frames are processed one by one, and those after the end
   of an answer wait unread until its verdict is carried out.

Theory of operation. The driver (an ASGI exchange, a test) calls:

    guard.follow(request, judge)               # first, if a call may have to be held; else once assembly.is_suspect
    out = guard.feed(chunk)                    # for each chunk; at the end finish(), or cut() if the upstream broke off
    out = guard.recover(failed)                #   if that raised
    if guard.needs_verdict:
        step = guard.apply(guard.verdicts())   # a callback may change the verdicts in between
        if step.ask:                           # send step.ask.body to the model; then one of
            guard.begin_next_answer()          #   it answers: feed that answer, from the start of this loop
            step = guard.escalate()            #   it fails: the step of the next rung
    guard.settle()                             # the answer is delivered: keep its calls
    guard.close()                              # in any case

Before `follow`, a frame leaves when it is complete, and `assembly.py` assembles the calls. Once a call opens that could
be one too many, the objects that only a suspect answer needs are created, and the frame that opens the call is the
first one to be followed. From there on, the answer's mode (`Mode`) says what happens to a frame (`frames.py`):

- FOLLOWING: `_read` (limits) -> `_splice` (only if it continues an earlier answer) -> `_follow`, which steps the holds
  (`hold.py`) and then sends or queues it. A frame that only adds a piece to a call (`template.py`) is not parsed. This
  mode lasts until the end of the answer, an error or a limit;
- PASSING: it leaves unread, and so does an incomplete one, without waiting for its end;
- SPLICING: like PASSING in an answer that continues an earlier one: it is rewritten as its continuation, and leaves;
- CLOSED: like PASSING or SPLICING after the end of an answer that has lost calls: it leaves unless it may have a call
  or cannot be read, because it may repeat a withheld call;
- SILENT: it is dropped, until another answer begins.

When all choices have finished and a call is condemned, the guard waits for the verdict; `_act` then does one of four
things:

- release: no call is withheld, and the queue leaves unchanged. Then PASSING or SPLICING;
- ask: every call is withheld, and the rung asks. Held text leaves, calls and the finish do not. Then SILENT until the
  next answer, which gets a new framer, queue and reader, but the same writer, which splices its frames into the
  client's answer;
- thin: some calls are withheld, or all are blocked. The writer sends the queue without them, with the block's text.
  Then CLOSED;
- cut short: the answer has not ended, but it was `flooded`, or the arguments of a call or a text run away. Like thin,
  and the writer ends the stream. The step has `ends`: the driver stops reading from the model. Then SILENT. If part of
  the endless call has left, this part stays, and the stream ends like at the vendor's length limit. After a text in an
  answer without calls, the model may be asked to continue instead (ask); the step has `cuts`.

A verdict is also due before the end once an answer is flooded (there are too many calls, whatever comes), or once the
arguments of a call or a text run away, held or not. It is not if the answer has several choices, because the others
would lose their ends, or if the vendor stores the answer, because a request may continue it by its id.

While an asked answer is `pending` (nothing of it has left), an error or a limit drops it (SILENT) and `escalate` goes
to the next rung. Once part of it has left, rule 1 applies again.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from callfuse.boundary import Boundary
from callfuse.dialects.base import Dialect, Request
from callfuse.dialects.codec import codec_of
from callfuse.guard.assembly import Assembly
from callfuse.guard.frames import AnswerFrames
from callfuse.guard.judge import Judge
from callfuse.guard.queue import Trace
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.rewriter import Rewriter
from callfuse.guard.state import GuardState, Mode
from callfuse.guard.steer_loop import SteerLoop
from callfuse.guard.step import Step
from callfuse.policy.ladder import Verdict
from callfuse.wire import EVENTS, Format


class Guard:
    """Guards one client's answer, which may be spliced from several answers of the model.

    `form`: the format of answers, that of a stream or `WHOLE` (default: server-sent events). `record` collects the
    calls, verdicts and failures of the exchange.
    """

    def __init__(self, dialect: Dialect, form: Format = EVENTS, *, choices: int = 1) -> None:
        self.record = ExchangeRecord(choices)
        self._codec = codec_of(dialect, form)
        self._trace: Trace | None = None

    def follow(
        self, request: Request, judge: Judge, trace: Trace | None = None, assembly: Assembly | None = None
    ) -> bytes:
        """Hold calls that could be loops from now on; return what may leave. `assembly`: the object that has read a
        suspect answer so far; the model cannot be asked again then.

        `trace` gets one line for each change of the mode, and one for each transition of a hold (choice, state, input,
        new state, effect, bytes waiting); it must not raise."""
        self._trace = trace
        self._loop = SteerLoop(self._codec.dialect, request, judge, self.record, may_ask=assembly is None)
        self._rewriter = Rewriter(self._codec, request, usage=judge.settings.usage)
        self._begin()
        if assembly is None:
            return b""
        return self._answer.run(partial(self._answer.adopt, assembly), self._answer.read_on)

    def _begin(self) -> None:
        """Begin with the first, or the next, answer."""
        self._answer = AnswerFrames(self._codec, self._loop, self._rewriter, self._trace)

    @property
    def needs_verdict(self) -> bool:
        """Whether the answer waits for its verdict: call `apply(verdicts())` next."""
        return bool(self._answer.queue.to_judge)

    @property
    def complete(self) -> bool:
        """Whether the current answer has ended properly."""
        return self._answer.calls.complete

    @property
    def pending(self) -> bool:
        """Whether the model has been asked again and nothing of its answer has left: `escalate()` is possible."""
        return bool(self._loop.asked)

    @property
    def state(self) -> GuardState:
        """What waits in the guard now."""
        answer, pending, is_whole = self._answer, bool(self._loop.asked), self._codec.whole
        queue, unread = answer.queue, answer.unread.framer.waiting
        if answer.unread.frames:
            unread = answer.unread.size
        held = queue.size + unread if queue.size or pending or is_whole else 0
        return GuardState(
            needs_verdict=bool(queue.to_judge),
            holding=not is_whole and (queue.size > 0 or pending),
            pending=pending,
            held_bytes=held,
            buffered_bytes=max(held, answer.kept.kept_bytes + unread),
            has_all_left=not (queue.size or unread),
        )

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of any size; return the bytes that may leave now, perhaps with some that waited."""
        answer = self._answer
        if answer.mode is Mode.PASSING:
            return chunk
        return answer.feed(chunk) if answer.mode is not Mode.SILENT else b""

    def recover(self, failed: Boundary) -> bytes:
        """Return what leaves after `feed` has raised the error in `failed`. Raise the error again if the guard was not
        processing a chunk."""
        return self._answer.recover(failed)

    def finish(self) -> bytes:
        """Process the end of the body; return the bytes that may leave now."""
        return self._answer.run(self._answer.finish) if self._answer.mode is not Mode.SILENT else b""

    def cut(self) -> bytes:
        """Return what is held and not yet judged, unchanged: the upstream broke off. A pending answer is dropped."""
        if self._answer.mode is Mode.SILENT or self.pending or self.needs_verdict:
            return b""
        return self._answer.run(self._answer.cut)

    def fail(self, cause: str) -> bytes:
        """Stop guarding this answer for a cause, which is logged; return what is held; the rest passes unread."""
        self.record.fail(cause)
        return self._answer.run(self._answer.fail)

    def give_way(self, cause: str) -> bytes:
        """Stop guarding this answer as if it exceeded a limit, and free its memory; return what is held; the rest
        passes unread. A pending answer is dropped instead, and stays `pending`."""
        out = self._answer.run(partial(self._answer.give_way, cause))
        self._answer.kept.clear()
        return out

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on the calls that wait. If judging failed, return none, which releases them (rule 1)."""
        answer = self._answer
        found = answer.attempt(partial(answer.acts.verdicts, answer.queue.to_judge))
        answer.acts.unjudged = found is None
        return found or []

    def apply(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry out the verdicts from `verdicts`, which a callback may have changed."""
        answer = self._answer
        choices = set(answer.queue.to_judge) or {0}
        step = answer.attempt(partial(self._act, verdicts))
        if step is None:
            self._loop.stop_asking()
            answer.attempt(partial(answer.acts.keep_blocked, verdicts))
            step = Step(answer.end(*answer.acts.last_words(choices, verdicts)))
        return replace(step, out=step.out + answer.run(answer.read_on))

    def begin_next_answer(self) -> None:
        """Begin with the answer to the last step's request: `feed` gets it from now on. If the writer cannot continue
        the client's answer, this answer is judged as if it were the first."""
        self._answer.attempt(self._go_on)
        self._begin()

    def escalate(self) -> Step:
        """Go to the next rung, because the last step's request failed, or its answer did before any of it left."""
        answer = self._answer
        answer.acts.recorded = True
        ask = answer.attempt(self._loop.next)
        if ask is not None:
            return Step(b"", ask)
        answer.queue.clear()
        return Step(answer.end(*answer.acts.last_words({0}, self._loop.stop_asking())))

    def settle(self) -> None:
        """Record the calls of a delivered answer, with verdicts that do not change it (a warning), unless `apply` has
        done so."""
        answer = self._answer
        calls, acts = answer.calls, answer.acts
        if acts.cut is not None:
            acts.observe_cut()
        if not acts.recorded:
            self.record.is_incomplete = calls.broke or (calls.any and not calls.complete)
        if not calls.complete or acts.recorded:
            return
        verdicts = answer.attempt(lambda: acts.verdicts(calls.choices)) or []
        answer.attempt(lambda: acts.keep_delivered(verdicts))
        answer.attempt(acts.keep_cut_off)

    def close(self) -> None:
        """Drop all bytes and calls at the end of the exchange, because an exception's traceback could keep them alive.
        Only `record` stays."""
        self._rewriter.close()
        self._begin()
        self._answer.mode = Mode.SILENT
        self._loop.close()

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        """Release, ask or thin (see the theory above)."""
        answer = self._answer
        self._loop.stop_asking()
        if answer.acts.unjudged and self._loop.judge.settings.fail_closed:
            return Step(answer.end_unjudged())
        mode, carry_out = (answer.acts.plan if answer.acts.cut is None else answer.acts.plan_cut)(verdicts)
        if mode is None:
            answer.pass_rest()
        else:
            answer.enter(mode)
        return carry_out()

    def _go_on(self) -> None:
        """Switch the writer and the steer loop to the next answer."""
        self._rewriter.next_answer(foreign=self._loop.foreign)
        self._loop.begin_next_answer()
