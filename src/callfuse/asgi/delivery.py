"""Deliver one client's answer: send the bytes that its guard releases, carry out verdicts, and settle the exchange.

`AnswerDriver` (`driver.py`) takes the messages, and detects the form of the body. `AnswerDelivery` decides what is
sent: it feeds the guard plain bytes, gets verdicts and carries them out, counts bytes in memory, and stores the results
of the answer before its last bytes are sent. `calls.py` asks it whether to call the app again.
"""

from functools import partial
from typing import Protocol

from anyio.lowlevel import checkpoint

from callfuse.asgi import off_loop
from callfuse.asgi.answer import Intake, split_blanks
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import GRAIN
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.hold_timer import HoldTimer
from callfuse.asgi.keep import Keeper
from callfuse.asgi.opening import Watching
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.slices import SLICE_BYTES, TEXT_BYTES, slices
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Send
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.step import Ask
from callfuse.observe import log
from callfuse.observe.events import AskFailed


class Runner(Protocol):
    """Calls the app for an answer."""

    def after_message(self) -> None:
        """React to a message: a hold may have begun, or the answer may be complete before the app's call."""
        ...

    async def drop(self) -> None:
        """Drop a message that the app sent after its answer was cut short."""
        ...


class HostCall:
    """The runner of an answer in which nothing is ever held: the host calls the app itself."""

    __slots__ = ()

    def after_message(self) -> None:
        """Do nothing: no bytes are held, and no answer is cut short."""

    async def drop(self) -> None:
        """Do nothing: messages after an exchange are dropped."""


class AnswerDelivery:
    """Writes one client's answer, which may consist of several answers of the app, and settles the exchange.

    `intake`: reads the body of the current answer; None before its start, and if the answer is not read. `guard`: None
    until a readable answer has begun, and once the rest need not be read. `ask`: the request to make after the current
    call of the app; None if there is none. `runner`: calls the app. `review`: shows verdicts to a callback; `timer`:
    ends holds that take too long. `body`: that of the request, which knows whether the client is still connected.
    """

    __slots__ = (
        "_watching",
        "ask",
        "body",
        "client",
        "evidence",
        "guard",
        "intake",
        "keeper",
        "review",
        "runner",
        "timer",
    )

    def __init__(
        self,
        evidence: ExchangeEvidence,
        keeper: Keeper,
        body: RequestBody,
        send: Send,
        review: Review | None,
        watching: Watching | None,
    ) -> None:
        self.body = body
        self.evidence = evidence
        self.keeper = keeper
        self.review = review
        self.ask: Ask | None = None
        self.client = ClientStream(send)
        self.guard: SafeGuard | None = None
        self.intake: Intake | None = None
        self.runner: Runner = HostCall()
        self.timer: HoldTimer | None = None
        self._watching = watching

    async def take_direct(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> bool:
        """Take a chunk of a plain stream. Returns True if it only joins a running hold, so that nothing more need be
        done."""
        if final or len(chunk) > SLICE_BYTES or self.client.closed:
            await self.take(guard, chunk, final=final)
            return False
        out, timer = guard.feed(chunk, final=False), self.timer
        is_counted = 0 <= guard.buffered_bytes - self.body.share.answer < GRAIN
        holds = timer is not None and timer.is_running and timer.held_since is not None and guard.state.holding
        if holds and is_counted and not (out or guard.state.needs_verdict or guard.record.texts):
            return True
        await self.carry_out(guard, out, final=False)
        return False

    async def take(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Feed the guard plain bytes of the answer, and act on the result."""
        if self.client.closed:
            return
        is_whole = guard.shape.stream is None
        if not is_whole and len(chunk) > SLICE_BYTES and (len(chunk) > TEXT_BYTES or not guard.shows_text(chunk)):
            await self._take_slices(guard, chunk, final=final)
            return
        if is_whole and not (final or guard.buffered_bytes or self.client.has_said):
            chunk = await self._lead(chunk)
        if is_whole and final:  # it is parsed at its end
            weight = off_loop.weight_of_answer(guard.buffered_bytes + len(chunk))
            out = await off_loop.run(partial(guard.feed, chunk, final=True), weight)
        else:
            out = guard.feed(chunk, final=final)
        await self.carry_out(guard, out, final=final)

    async def _lead(self, chunk: bytes) -> bytes:
        """Send the start of a whole answer and its leading white space; return the rest. Not done if the answer
        declares its length."""
        if self.intake is not None and self.intake.has_length:
            return chunk
        blanks, rest = split_blanks(chunk)
        if blanks:
            await self.client.lead(blanks)
        return rest

    async def _take_slices(self, guard: SafeGuard, chunk: bytes, *, final: bool) -> None:
        """Take a long chunk of a stream in slices, because it may have many frames, and other exchanges would wait."""
        end = len(chunk)
        for piece in slices(chunk):
            end -= len(piece)
            if self.guard is None:
                await self.client.write(piece, final=final and not end)
            else:
                await self.take(guard, piece, final=final and not end)
            if self.ask is not None or self.client.is_cut:
                return
            if end:
                await checkpoint()

    async def carry_out(self, guard: SafeGuard, out: bytes, *, final: bool) -> None:
        """Get and carry out verdicts if they are needed, and write the bytes that may be sent."""
        if guard.assembly is not None and (guard.is_broken or guard.assembly.is_suspect):
            out += await self._follow(guard, final=final)
        if not 0 <= guard.buffered_bytes - self.body.share.answer < GRAIN:
            out += self.count(guard)
        if asked := guard.state.needs_verdict:
            if guard.shape.stream is not None:  # a callback may be slow: send released bytes first
                await self.client.write(out)
                out = b""
                self.runner.after_message()
            out += await self._decide(guard)
        if self.guard is None:
            await self.client.write(out, final=final)
        elif (final or self.client.is_cut) and not guard.state.pending:
            if guard.record.texts:
                await self.tell_texts(guard)
            await self._finish(guard, out)
        else:
            if out:
                await self.client.write(out)
            if guard.record.texts:
                await self.tell_texts(guard)
            if asked:
                self.keeper.tell(guard.record)  # the answer may continue for minutes

    async def _follow(self, guard: SafeGuard, *, final: bool) -> bytes:
        """Make the guard hold calls from now on, because the next could be one too many. Returns the bytes that may be
        sent. If that or assembling failed, all waiting bytes are sent, and the rest passes."""
        evidence, fail_open = self.evidence, self.keeper.fail_open
        if not guard.is_broken:
            with fail_open.stage("while watching"):
                if self._watching is not None:
                    self.review = await self._watching.revive()
                request, stage = evidence.request.get(), fail_open.stage("while guarding")
                out = guard.follow(request, evidence.judge, stage, log.tracer(self.keeper.session))
                self.keeper.tally.mode = "guarded"
                return out + guard.feed(b"", final=True) if final else out
        out = guard.cut()
        self.stop()
        return out

    async def _decide(self, guard: SafeGuard) -> bytes:
        """Get the verdicts and carry them out. Returns the bytes that may be sent."""
        review = self.review
        if review is None:  # cannot happen once a guard follows the answer
            return guard.fail("no review")
        step = await self.keeper.tally.time_decision(guard.decide(review.review))
        self.ask, self.client.is_cut = step.ask, step.ends
        return step.out

    async def tell_texts(self, guard: SafeGuard) -> None:
        """Report runaway text of the model at once, because the answer may continue for minutes, or the client may stop
        it. A callback decides about the text, too."""
        evidence, record, keeper = self.evidence, guard.record, self.keeper
        found, record.texts = record.texts, []
        with keeper.fail_open.stage("while reporting"):
            verdicts = [keeper.verdict_on_text(one) for one in found]
            if evidence.asks_callback:
                review = self.review
                if review is None and self._watching is not None:
                    review = await self._watching.revive()
                verdicts = verdicts if review is None else await review.review_texts(verdicts)
            record.verdicts += verdicts
            keeper.tell(record)

    def count(self, guard: SafeGuard) -> bytes:
        """Count the bytes kept of the answer. Returns the bytes that the guard releases if there are too many."""
        share = self.body.share
        if share.hold(guard.measure()) or guard.state.needs_verdict or not guard.buffered_bytes:
            return b""
        if guard.assembly is not None:
            out = guard.cut()
            self.give_up("max_total_bytes")
            share.hold(0)
            return out
        out = guard.give_way("max_total_bytes")
        share.hold(guard.measure())
        return out

    async def escalate(self, cause: str) -> None:
        """Escalate to the next rung, because the model could not be asked again (`cause`)."""
        if self.guard is None:
            return
        self.keeper.bus.emit(AskFailed(cause, self.keeper.tally.where))
        step = await self.guard.escalate()
        self.ask = step.ask
        if step.ask is None:
            await self._finish(self.guard, step.out)
        else:
            await self.client.write(step.out)
            self.keeper.tell(self.guard.record)

    def hold_began(self) -> bool:
        """Note whether a hold has begun or ended. Returns True if the timer's `run` must be started."""
        guard = self.guard
        if guard is None or guard.assembly is not None:
            return False
        if self.timer is None:
            meter = self.keeper.tally.measure_holds(guard, partial(self.keeper.tell, guard.record))
            heartbeat = self.evidence.request.dialect.heartbeat
            self.timer = HoldTimer(guard, self.client, self.evidence.settings, heartbeat, meter)
        return self.timer.update()

    async def settle(self, guard: SafeGuard | None) -> str:
        """Store the results of the answer (without a guard: of the request) before its last bytes are sent, because the
        next request may follow at once. Returns the value of the header `x-callfuse-action`."""
        action, record = "", ExchangeRecord(self.evidence.request.choices)
        if guard is not None:
            weight = off_loop.LONG_BYTES + 1 if guard.settles_slowly else 0
            action, record = await off_loop.run(guard.settle, weight), guard.record
        if not self.body.gone:
            await self.keeper.settle(record)
        self.body.answered = True
        return action

    async def _finish(self, guard: SafeGuard, out: bytes) -> None:
        """Settle the exchange, and write the last bytes."""
        action = await self.settle(guard)
        await self.client.write(out, final=True, action=action)
        if guard.assembly is not None:
            self.stop()

    async def cut(self) -> None:
        """End an answer that the app's call left incomplete: send held bytes, but no end."""
        guard = self.guard
        if guard is not None and not self.client.closed:
            self.keeper.tally.broke_off = guard.assembly is None
            await self.client.abandon(guard.cut())
        await self.pass_delayed()

    async def break_off(self) -> None:
        """End an answer whose end cannot be unpacked: it breaks off for the client, and the app gets a disconnect."""
        await self.cut()
        self.client.is_cut = self.client.closed = True

    async def pass_delayed(self) -> None:
        """Send the messages that waited for the form of the answer, unchanged."""
        while self.intake is not None and self.intake.delayed:
            await self.client.pass_on(self.intake.delayed.pop(0))

    async def stop_assembling(self) -> None:
        """Stop reading an answer without suspect calls so far, and send the waiting bytes."""
        guard = self.guard
        if guard is not None and guard.assembly is not None and not self.client.closed:
            out = guard.cut()
            self.stop()
            await self.client.write(out)

    def give_up(self, cause: str) -> None:
        """Stop reading an answer without suspect calls, and report why."""
        self.keeper.tally.unwatched(cause)
        self.stop()

    def stop(self) -> None:
        """Stop reading: the rest of the answer passes unchanged."""
        if self.guard is not None and self.guard.assembly is None:
            self.guard.close()
        self.guard = self.intake = None

    def report(self) -> None:
        """Report everything that was not reported yet, for example after an answer that broke off."""
        if self.guard is not None and self.guard.assembly is None:
            self.keeper.report(self.guard.record)

    def close(self) -> None:
        """Drop kept data of the answers, and references to it, because the exchange is over. If the answer was cut
        short, further messages of the app are dropped."""
        if self.timer is not None:
            self.timer.stop()
        self.report()
        if self.client.is_cut or (self.guard is not None and self.guard.assembly is None):
            self.client.drop()
        self.stop()
        self.runner, self.timer, self.review, self._watching = HostCall(), None, None, None
