"""A guard that cannot break its exchange.

A guard catches its own errors and knows best what to do about them. Should one come through all the same, the answer
goes on without the guard: until the verdict what waits leaves as it came, and the rest passes (`fail_closed` ends the
answer instead); from the verdict on the call is gone, and the next rung is taken, or the answer ends.
"""

from collections.abc import Awaitable, Callable

from callfuse.asgi.answer import Shape
from callfuse.asgi.fail_open import FailOpen
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.guard import Guard
from callfuse.guard.judge import Judge
from callfuse.guard.queue import Trace
from callfuse.guard.record import Record
from callfuse.guard.step import Step
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import WHOLE

ReviewAll = Callable[[list[Verdict]], Awaitable[list[Verdict]]]
"""Shows verdicts to a callback, which may change what is done about them."""


class SafeGuard:
    """The guard of one client's answer. No method raises.

    `due`: a verdict is wanted. `holding`: a stream waits that the client has seen begin. `pending`: another answer is
    awaited, and nothing of it has gone out. `held_bytes`: so many wait. (See `callfuse.guard.guard.Guard`.)
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
        "due",
        "held_bytes",
        "holding",
        "pending",
        "record",
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
        self.record: Record = self._guard.record
        self.due = self.holding = self.pending = False
        self.held_bytes = 0

    def _look(self) -> None:
        """Note how the guard stands after each thing that it is told."""
        guard = self._guard
        self.due, self.holding, self.pending = guard.due, guard.holding, guard.pending
        self.held_bytes = guard.held_bytes

    def feed(self, chunk: bytes, *, final: bool) -> bytes:
        """What may leave of a part of an answer, and of what waited."""
        if self._broken:
            return chunk if self._is_first and not self._fail_closed else b""
        with self._stage:
            out = self._guard.feed(chunk) if chunk else b""
            if out is chunk and not (final or self.pending):  # it has passed by, and changed nothing
                return out
            if final:
                out += self._guard.finish()
            self._look()
            self._waiting.note(chunk, out, some_wait=self.held_bytes > 0)
            return out
        self._waiting.note(chunk, b"", some_wait=True)
        return self._do_without()

    async def decide(self, review: ReviewAll) -> Step:
        """Get the verdicts that are due, show them to the callback, and carry them out."""
        verdicts: list[Verdict] | None = None
        with self._stage:
            verdicts = self._guard.verdicts()
        if verdicts is None:
            return Step(self._do_without())
        with self._stage:
            verdicts = await review(verdicts)
        self._waiting.clear()
        with self._stage:
            step = self._guard.act(verdicts)
            self._look()
            return step
        with self._stage:
            self._look()
            if self.pending:
                return self.unanswered()
        return self._end()

    def answered(self) -> bool:
        """The model has begun to answer again: what is fed now is that answer. False where that cannot go on."""
        with self._stage:
            self._guard.answered()
            self._look()
            self._broken = self._is_first = False
            return True
        return False

    def unanswered(self) -> Step:
        """The model's other answer has failed: the next rung; the end of the answer where there is none."""
        with self._stage:
            step = self._guard.unanswered()
            self._look()
            return step
        return self._end()

    def fail(self, cause: str) -> bytes:
        """A limit before the verdict: what is held leaves, and everything passes from now on."""
        with self._stage:
            out = self._guard.fail(cause)
            self._look()
            self._waiting.clear()
            return out
        return self._do_without()

    def cut(self) -> bytes:
        """The upstream has broken off: what is held, and not yet judged, leaves as it came."""
        if self._broken:
            return b""
        with self._stage:
            return self._guard.cut()
        return self._waiting.rest() if self._is_first else b""

    def settle(self) -> str:
        """The answer has been delivered whole: keep its calls. What was done about them, in a header's words."""
        if not self._broken:
            with self._stage:
                self._guard.settle()
        with self._stage:
            return texts.header(self.record.verdicts)
        return ""

    def _do_without(self) -> bytes:
        """The guard broke before its verdict. What the client gets of the bytes that wait."""
        pending = self.pending
        self._give_up()
        if self._is_first and not self._fail_closed:
            return self._waiting.rest()
        self._waiting.clear()
        if pending:  # nothing of this answer has gone out: the next rung is taken once the app has ended it
            self.pending = True
            return b""
        with self._stage:
            return self._guard.fail("broken guard")
        return self._last_words()

    def _end(self) -> Step:
        """The guard broke after its verdict, and takes no further rung: the answer ends here."""
        self._give_up()
        self._waiting.clear()
        return Step(self._last_words())

    def _give_up(self) -> None:
        self._broken = True
        self.due = self.holding = self.pending = False
        self.held_bytes = 0

    def _last_words(self) -> bytes:
        """The end of an answer that nothing else can end: callfuse's own text; a stream that has begun breaks off."""
        with self._stage:
            return self._request.own_answer(texts.unchecked_call("")) if self._is_whole else b""
        return b""


class _Waiting:
    """What the app has sent of an answer since something waits in the guard, and what of it the client has."""

    __slots__ = ("_came", "_gone")

    def __init__(self) -> None:
        self._came: list[bytes] = []
        self._gone: list[bytes] = []

    def note(self, chunk: bytes, out: bytes, *, some_wait: bool) -> None:
        """The app has sent a chunk, and the guard has let go `out`; `some_wait`: it has not let go everything."""
        if some_wait:
            self._came.append(chunk)
            self._gone.append(out)
        elif self._came:
            self.clear()

    def clear(self) -> None:
        """Nothing waits any more."""
        self._came.clear()
        self._gone.clear()

    def rest(self) -> bytes:
        """What the client does not have. What has overtaken the rest (a keep-alive) is in it once more."""
        came, gone = b"".join(self._came), b"".join(self._gone)
        self.clear()
        pairs = zip(came, gone, strict=False)
        return came[next((at for at, (one, other) in enumerate(pairs) if one != other), len(gone)) :]
