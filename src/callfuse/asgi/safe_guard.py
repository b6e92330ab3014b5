"""Wrap a guard, so that its bugs cannot break the exchange.

Its boundary is the only one that each chunk passes. An error there goes to the `Guard`, which ends the hold and
continues (`recover`). If it cannot, or if another of its steps raises, the answer continues without a guard. Before the
verdict, the waiting bytes are sent unchanged and the rest passes (with `fail_closed`, a followed answer ends instead).
After the verdict, the call is withheld, so the answer escalates to the next rung, or ends.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from callfuse.asgi import off_loop
from callfuse.asgi.answer import Shape
from callfuse.asgi.fail_open import Stage
from callfuse.boundary import Boundary
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.assembly import Assembly
from callfuse.guard.guard import Guard
from callfuse.guard.judge import Judge
from callfuse.guard.queue import Trace
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.state import NOTHING_WAITS
from callfuse.guard.step import Step
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import WHOLE

ReviewAll = Callable[[list[Verdict]], Awaitable[list[Verdict]]]
"""Passes verdicts to a callback, and returns its changes."""


class SafeGuard:
    """The guard of one client's answer, from its first byte to its last. No method raises.

    `shape`: the form of the answer. `assembly`: reads it while no call need be held; None afterwards. `state`: the
    guard's state after its last step. It does not change while a thread runs a step, because the hold's timer reads it.
    `buffered_bytes`: as in the state, with bytes that passed unread since. `most_held`: the most bytes held, since it
    was last set to 0.

    `_unsettled`: while bytes wait in the guard, each chunk of the app, with the bytes that the client then got.
    """

    __slots__ = (
        "_boundary",
        "_fail_closed",
        "_guard",
        "_is_first",
        "_request",
        "_stage",
        "_unsettled",
        "assembly",
        "buffered_bytes",
        "is_broken",
        "most_held",
        "record",
        "shape",
        "state",
    )

    def __init__(
        self,
        dialect: Dialect,
        shape: Shape,
        choices: int,
        stage: Stage,
        *,
        assembly: Assembly | None = None,
    ) -> None:
        form = shape.stream or WHOLE
        self._guard = Guard(dialect, form, choices=choices)
        self._fail_closed = False
        self._request: Request | None = None
        self._stage = stage
        self._boundary = Boundary()
        self._unsettled: list[tuple[bytes, bytes]] = []
        self._is_first = True
        self.assembly = assembly
        self.is_broken = False
        self.record: ExchangeRecord = self._guard.record
        self.shape = shape
        self.state = NOTHING_WAITS
        self.buffered_bytes = self.most_held = 0

    @property
    def settles_slowly(self) -> bool:
        """Whether `settle` may take long, because there are many calls."""
        with self._stage:
            return self.assembly is not None and self.assembly.settles_slowly
        return False

    def shows_text(self, chunk: bytes) -> bool:
        """Whether a chunk has only text, in an answer without a call, so that even a long one is read at once."""
        return self.assembly is not None and not self.is_broken and self.assembly.shows_text(chunk)

    def begin(self, request: Request, judge: Judge, trace: Trace | None = None) -> None:
        """Follow the answer from its first byte. May raise any error, because no byte has arrived yet."""
        self._request, self._fail_closed = request, judge.settings.fail_closed
        self._guard.follow(request, judge, trace)

    def follow(self, request: Request, judge: Judge, stage: Stage, trace: Trace | None = None) -> bytes:
        """Hold calls from now on, beginning with the one that made the answer suspect. Returns bytes to send."""
        self._request, self._fail_closed, self._stage = request, judge.settings.fail_closed, stage
        assembly, self.assembly = self.assembly, None
        came = bytes(assembly.sent.unsent) if assembly is not None and assembly.sent is not None else b""
        with stage:
            out = self._guard.follow(request, judge, trace, assembly)
            self._copy_state()
            if not self.state.has_all_left:
                self._unsettled = [(came, out)]
            return out
        self._unsettled = [(came, b"")]
        return self._give_up_unjudged()

    @property
    def _request_bytes(self) -> int:
        return len(self._request.body) if self._request is not None else 0

    def _copy_state(self) -> None:
        """Copy the guard's state."""
        self.state = self._guard.state
        self.buffered_bytes = self.state.buffered_bytes

    def feed(self, chunk: bytes, *, final: bool) -> bytes:
        """Feed a part of an answer (`final`: the last one). Returns the bytes that may be sent now."""
        if self.is_broken:
            return chunk if self._is_first and not self._fail_closed else b""
        if self.assembly is not None:
            return self.assemble(self.assembly, chunk, final=final)
        guard, boundary, out = self._guard, self._boundary, b""
        with boundary:
            out = guard.feed(chunk)
            if out is chunk and not (final or self.state.pending):  # passed unread, so no hold has changed
                self.buffered_bytes += len(chunk)  # approximate, see `measure`
                return out
            if final:
                out += guard.finish()
            self.state = guard.state
        if boundary.error is not None:
            out = self._recover(boundary, chunk, final=final)
        state = self.state
        self.buffered_bytes = state.buffered_bytes
        self.most_held = max(self.most_held, state.held_bytes)
        if not state.has_all_left:
            self._unsettled.append((chunk, out))
        elif self._unsettled:
            self._forget()
        return out

    def _recover(self, failed: Boundary, chunk: bytes, *, final: bool) -> bytes:
        """Return the bytes that may be sent after the guard has raised. The guard continues if it can."""
        with self._stage:
            out = self._guard.recover(failed)
            if final:
                out += self._guard.finish()
            self.state = self._guard.state
            failed.error = None
            return out
        failed.error = None
        self._unsettled.append((chunk, b""))
        return self._give_up_unjudged()

    def begin_assembly(self, assembly: Assembly, chunk: bytes) -> None:
        """Read the first chunk of a stream: whole frames without a call, which were sent already."""
        with self._stage:
            assembly.begin(chunk)
            return
        self._give_up()

    def assemble(self, assembly: Assembly, chunk: bytes, *, final: bool) -> bytes:
        """Feed a part of an answer without suspect calls so far. Returns the same as `feed`."""
        out: bytes | None = None
        with self._stage:
            out = assembly.feed(chunk) if chunk else b""
            if final:
                out += assembly.finish()
            self.buffered_bytes = assembly.waiting
            if assembly.texts.found:
                self.record.texts += assembly.texts.take()
            return out
        self._give_up()
        unsent = bytes(assembly.sent.unsent) if assembly.sent is not None else b""
        return unsent + chunk if out is None else out + unsent

    def measure(self) -> int:
        """Return the exact number of kept bytes of the answer. Bytes that passed unread are not kept."""
        if not (self.is_broken or self.assembly is not None):
            with self._stage:
                self._copy_state()
        return self.buffered_bytes

    async def decide(self, review: ReviewAll) -> Step:
        """Get the verdicts, pass them to the callback, and carry them out."""
        verdicts: list[Verdict] | None = None
        with self._stage:
            verdicts = self._guard.verdicts()
        if verdicts is None:
            return Step(self._give_up_unjudged())
        with self._stage:
            verdicts = await review(verdicts)
        self._forget()
        with self._stage:
            weight = self._request_bytes + off_loop.weight_of_answer(self.buffered_bytes)  # it is read again
            step = await off_loop.run(partial(self._guard.apply, verdicts), weight)
            self._copy_state()
            return step
        with self._stage:
            self._copy_state()
            if self.state.pending:
                return await self.escalate()
        return self._end()

    def begin_next_answer(self) -> bool:
        """Begin a new answer of the model. Returns False if that failed."""
        with self._stage:
            self._guard.begin_next_answer()
            self._copy_state()
            self.is_broken = self._is_first = False
            return True
        return False

    async def escalate(self) -> Step:
        """Escalate after the pending answer has failed; if that fails, too, end the client's answer."""
        with self._stage:
            step = await off_loop.run(self._guard.escalate, self._request_bytes + self.buffered_bytes)
            self._copy_state()
            return step
        return self._end()

    def fail(self, cause: str) -> bytes:
        """Give up for this cause: return the held bytes, and let the rest pass."""
        with self._stage:
            out = self._guard.fail(cause)
            self._copy_state()
            self._forget()
            return out
        return self._give_up_unjudged()

    def give_way(self, cause: str) -> bytes:
        """Return the held bytes, and keep no more of this answer, because the memory limit is reached."""
        with self._stage:
            out = self._guard.give_way(cause)
            self._copy_state()
            self._forget()
            return out
        return self._give_up_unjudged()

    def cut(self) -> bytes:
        """Return held bytes that are not judged yet, unchanged, because the upstream broke off."""
        if self.is_broken:
            return b""
        with self._stage:
            return self._guard.cut() if self.assembly is None else self.assembly.release()
        return self._rest() if self._is_first else b""

    def settle(self) -> str:
        """Record the calls of a delivered answer. Returns the value of the header `x-callfuse-action`."""
        with self._stage:
            if self.assembly is not None and not self.is_broken:
                self.assembly.settle(self.record)
            elif not self.is_broken:
                self._guard.settle()
        self.record.is_incomplete |= self._stage.failed or self.is_broken
        if self.assembly is None:
            with self._stage:
                return texts.header(self.record.verdicts)
        return ""

    def close(self) -> None:
        """Drop all bytes and calls, because the exchange is over. `record` stays."""
        self._forget()
        with self._stage:
            self._guard.close()

    def _give_up_unjudged(self) -> bytes:
        """Give up a guard that broke before its verdict. Returns the waiting bytes that the client gets."""
        pending = self.state.pending
        self._give_up()
        if self._is_first and not self._fail_closed:
            return self._rest()
        self._forget()
        if pending:  # no byte of this answer was sent: the next rung follows once the app has ended it
            self.state = NOTHING_WAITS._replace(pending=True)
            return b""
        with self._stage:
            return self._guard.fail("broken guard")
        return self._last_words()

    def _end(self) -> Step:
        """End the answer, because the guard broke after its verdict and cannot escalate."""
        self._give_up()
        self._forget()
        return Step(self._last_words())

    def _forget(self) -> None:
        """Forget the bytes that waited in the guard, because they wait no more."""
        self._unsettled = []

    def _rest(self) -> bytes:
        """Return the bytes that the client has not received. Frames that overtook others (keep-alives) are repeated."""
        came, gone = (b"".join([pair[part] for pair in self._unsettled]) for part in (0, 1))
        self._forget()
        pairs = zip(came, gone, strict=False)
        return came[next((at for at, (one, other) in enumerate(pairs) if one != other), len(gone)) :]

    def _give_up(self) -> None:
        self.is_broken = True
        self.state = NOTHING_WAITS
        self.buffered_bytes = 0

    def _last_words(self) -> bytes:
        """Return the end of an answer without a guard: a whole body with callfuse's own text, or nothing for a stream,
        which breaks off."""
        with self._stage:
            request = self._request if self.shape.stream is None else None
            return request.own_answer(texts.unchecked_call("")) if request is not None else b""
        return b""
