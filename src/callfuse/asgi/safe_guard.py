"""A guard whose bugs cannot break the exchange.

`Guard` handles its own errors. If one escapes all the same, the answer goes on without the guard. Before the verdict,
what waits leaves as it came and the rest passes (with `fail_closed` the answer ends instead). After the verdict, the
withheld call is gone, so the next rung is taken, or the answer ends.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from callfuse.asgi import off_loop
from callfuse.asgi.answer import Shape
from callfuse.asgi.fail_open import FailOpen
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.guard import NOTHING_WAITS, Guard
from callfuse.guard.judge import Judge
from callfuse.guard.observer import Handover
from callfuse.guard.queue import Trace
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.step import Step
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import WHOLE

ReviewAll = Callable[[list[Verdict]], Awaitable[list[Verdict]]]
"""Passes verdicts to a callback, which may change them."""


class SafeGuard:
    """The guard of one client's answer. No method raises.

    `state` is the guard's after its last step. While a thread works on a stream's guard it stays as it was: the hold's
    timer reads it meanwhile. `buffered_bytes`: as in the state, with what has passed unread since.
    """

    __slots__ = (
        "_broken",
        "_fail_closed",
        "_guard",
        "_is_first",
        "_is_whole",
        "_request",
        "_stage",
        "_waiting",
        "buffered_bytes",
        "record",
        "state",
    )

    def __init__(
        self,
        dialect: Dialect,
        request: Request,
        judge: Judge,
        shape: Shape,
        fail_open: FailOpen,
        trace: Trace | None = None,
    ) -> None:
        self._guard = Guard(dialect, request, judge, shape.stream or WHOLE, trace=trace)
        self._is_whole = shape.stream is None
        self._fail_closed = judge.settings.fail_closed
        self._request = request
        self._stage = fail_open.stage("while guarding")
        self._waiting = _Waiting()
        self._broken = False
        self._is_first = True
        self.record: ExchangeRecord = self._guard.record
        self.state = NOTHING_WAITS
        self.buffered_bytes = 0

    def _copy_state(self) -> None:
        """Copy the guard's state after each call."""
        self.state = self._guard.state
        self.buffered_bytes = self.state.buffered_bytes

    def feed(self, chunk: bytes, *, final: bool) -> bytes:
        """Feed a part of an answer (`final`: its last); returns the bytes that may leave now."""
        if self._broken:
            return chunk if self._is_first and not self._fail_closed else b""
        with self._stage:
            out = self._guard.feed(chunk) if chunk else b""
            if out is chunk and not (final or self.state.pending):  # it passed unread, so no hold has changed
                self.buffered_bytes += len(chunk)  # about right, see `measure`
                return out
            if final:
                out += self._guard.finish()
            self._copy_state()
            self._waiting.note(chunk, out, some_wait=self.state.held_bytes > 0 or not self.state.has_all_left)
            return out
        self._waiting.note(chunk, b"", some_wait=True)
        return self._give_up_unjudged()

    def take_over(self, handover: Handover, held: bytes) -> bytes:
        """Go on with an answer that was watched; returns what may leave of `held`, which the client has not got."""
        with self._stage:
            out = self._guard.take_over(handover)
            self._copy_state()
            self._waiting.note(held, out, some_wait=self.state.held_bytes > 0 or not self.state.has_all_left)
            return out
        self._waiting.note(held, b"", some_wait=True)
        return self._give_up_unjudged()

    def measure(self) -> int:
        """The bytes of the answer that are kept, exactly: of what passes unread none are."""
        if not self._broken:
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
        self._waiting.clear()
        with self._stage:
            weight = len(self._request.body) + self.buffered_bytes  # the answer so far is read again
            step = await off_loop.run(partial(self._guard.apply, verdicts), weight)
            self._copy_state()
            return step
        with self._stage:
            self._copy_state()
            if self.state.pending:
                return await self.escalate()
        return self._end()

    def begin_next_answer(self) -> bool:
        """The model has begun to answer again; feed that answer from now on. False if that failed."""
        with self._stage:
            self._guard.begin_next_answer()
            self._copy_state()
            self._broken = self._is_first = False
            return True
        return False

    async def escalate(self) -> Step:
        """Take the next rung, after the pending answer has failed; the end of the client's answer if that fails,
        too."""
        with self._stage:
            step = await off_loop.run(self._guard.escalate, len(self._request.body) + self.buffered_bytes)
            self._copy_state()
            return step
        return self._end()

    def fail(self, cause: str) -> bytes:
        """Give up for this cause: returns what is held; the rest passes."""
        with self._stage:
            out = self._guard.fail(cause)
            self._copy_state()
            self._waiting.clear()
            return out
        return self._give_up_unjudged()

    def give_way(self, cause: str) -> bytes:
        """Release what is held, and keep nothing more of this answer: other exchanges need the memory."""
        with self._stage:
            out = self._guard.give_way(cause)
            self._copy_state()
            self._waiting.clear()
            return out
        return self._give_up_unjudged()

    def cut(self) -> bytes:
        """The upstream broke off: returns what is held and not yet judged, as it came."""
        if self._broken:
            return b""
        with self._stage:
            return self._guard.cut()
        return self._waiting.rest() if self._is_first else b""

    def settle(self) -> str:
        """The answer is delivered: record its calls. Returns the value of the header `x-callfuse-action`."""
        if not self._broken:
            with self._stage:
                self._guard.settle()
        with self._stage:
            return texts.header(self.record.verdicts)
        return ""

    def close(self) -> None:
        """The exchange is over, in whatever way: drop all bytes and calls. `record` stays."""
        self._waiting.clear()
        with self._stage:
            self._guard.close()

    def _give_up_unjudged(self) -> bytes:
        """The guard broke before its verdict: returns what the client gets of the bytes that wait."""
        pending = self.state.pending
        self._give_up()
        if self._is_first and not self._fail_closed:
            return self._waiting.rest()
        self._waiting.clear()
        if pending:  # nothing of this answer has gone out: the next rung is taken once the app has ended it
            self.state = NOTHING_WAITS._replace(pending=True)
            return b""
        with self._stage:
            return self._guard.fail("broken guard")
        return self._last_words()

    def _end(self) -> Step:
        """The guard broke after its verdict and cannot take another rung: end the answer."""
        self._give_up()
        self._waiting.clear()
        return Step(self._last_words())

    def _give_up(self) -> None:
        self._broken = True
        self.state = NOTHING_WAITS
        self.buffered_bytes = 0

    def _last_words(self) -> bytes:
        """The end of an answer without a guard: callfuse's own text as a whole body; nothing for a stream, which breaks
        off."""
        with self._stage:
            return self._request.own_answer(texts.unchecked_call("")) if self._is_whole else b""
        return b""


class _Waiting:
    """Bytes that the app has sent since something waits in the guard, and those that the client has got since."""

    __slots__ = ("_came", "_gone")

    def __init__(self) -> None:
        self._came: list[bytes] = []
        self._gone: list[bytes] = []

    def note(self, chunk: bytes, out: bytes, *, some_wait: bool) -> None:
        """Note a chunk of the app and the bytes `out` that the guard released. `some_wait`: it still holds some."""
        if some_wait:
            self._came.append(chunk)
            self._gone.append(out)
        elif self._came:
            self.clear()

    def clear(self) -> None:
        """Forget everything: nothing waits any more."""
        self._came.clear()
        self._gone.clear()

    def rest(self) -> bytes:
        """The bytes that the client has not got. Frames that overtook others (keep-alives) are repeated in it."""
        came, gone = b"".join(self._came), b"".join(self._gone)
        self.clear()
        pairs = zip(came, gone, strict=False)
        return came[next((at for at, (one, other) in enumerate(pairs) if one != other), len(gone)) :]
