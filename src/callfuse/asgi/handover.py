"""Guards the rest of an answer that was only watched, from the first call on that could be one too many of its answer.

The answer has begun, so the app's call goes on as it is: in the host's own task, without one of its own. Its messages
are taken here, and its `receive` tells of a disconnect once the answer is cut short.
"""

from functools import partial

from callfuse.asgi.answer import Shape
from callfuse.asgi.beside import Beside
from callfuse.asgi.body import RequestBody
from callfuse.asgi.calls import Unheeded
from callfuse.asgi.guarded import GuardedAnswer
from callfuse.asgi.hold_timer import HoldTimer
from callfuse.asgi.types import Message
from callfuse.guard.observer import Handover


class TakenOver:
    """The guarded rest of one answer. `unheeded`: what the app sends after its answer was cut short; `beside`: where
    heartbeats run."""

    __slots__ = ("_answer", "_beside", "_body", "_timer", "_unheeded")

    def __init__(
        self, answer: GuardedAnswer, shape: Shape, body: RequestBody, unheeded: Unheeded, beside: Beside
    ) -> None:
        self._answer = answer
        self._body = body
        self._unheeded = unheeded
        self._beside = beside
        self._timer: HoldTimer | None = None
        guard = answer.guard_rest(shape)
        if guard is not None:
            tally = answer.keeper.tally
            tally.mode = "guarded"
            meter = tally.measure_holds(guard, answer.tell)
            self._timer = HoldTimer(guard, answer.client, answer.settings, answer.dialect.heartbeat, meter)
            answer.before_verdict = self._after_message

    @property
    def is_cut(self) -> bool:
        """Whether the answer is complete before the app's call is."""
        return self._answer.is_cut

    async def begin(self, handover: Handover, held: bytes) -> None:
        """Take what the client has not got of what came. `held`: the same as bytes."""
        await self._answer.take_over(handover, held)
        self._after_message()

    async def begin_whole(self, handover: Handover, start: Message | None) -> None:
        """Take a whole answer, of which the client has got nothing of the body: its start, unless that has left, too,
        and its body."""
        if start is not None:
            await self._answer.client.start(start, at_once=False)
        await self._answer.take_over(handover, handover.opening.raw, final=True)
        self._after_message()

    async def take(self, message: Message) -> None:
        """Take a message of the app."""
        if self.is_cut:
            await self._unheeded.note()
        else:
            await self._answer.take_first(message)
            self._after_message()

    def _after_message(self) -> None:
        """After each message: begin with heartbeats if a hold began, and hang up if the answer has been cut short."""
        if self.is_cut:
            self._body.hang_up()
        if self._timer is not None and self._timer.update():
            self._beside.start(partial(self._timer.run, _nothing))

    async def end(self) -> None:
        """The app's call is over."""
        self.stop()
        await self._answer.cut()
        self._answer.report()

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._timer is not None:
            self._timer.stop()

    def close(self) -> None:
        """The exchange is over: drop what is kept of the answer."""
        self.stop()
        self._answer.report()
        self._answer.close()


def _nothing() -> None:
    """No model is asked again, so there is no call to be cancelled."""
