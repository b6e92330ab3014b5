"""Run one exchange: add texts to results in the request, call the app (`calls.py`), and pass its answer to the driver
(`driver.py`).
"""

from collections.abc import Awaitable
from dataclasses import replace

from callfuse.asgi import headers, off_loop
from callfuse.asgi.body import RequestBody
from callfuse.asgi.calls import GuardedExchange, WatchedCall
from callfuse.asgi.closed import closed_reply
from callfuse.asgi.commands import SyntheticReply
from callfuse.asgi.driver import AnswerDriver
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.keep import Keeper
from callfuse.asgi.opening import Watching
from callfuse.asgi.prepare import Host, Prepared
from callfuse.asgi.recording import record, record_reply
from callfuse.asgi.repair import RepairingApp
from callfuse.asgi.review import Review
from callfuse.asgi.scopes import call
from callfuse.asgi.spending import Spending
from callfuse.asgi.storms import open_storms
from callfuse.asgi.types import Scope, Send
from callfuse.conversations.hints import with_hints
from callfuse.conversations.monologue import NO_MONOLOGUE, read_monologue
from callfuse.conversations.notes import MANY_REPEATS, notes_for
from callfuse.conversations.timeline import LaneEvidence
from callfuse.dialects.cut_reasoning import CUT_MARK, leave_out
from callfuse.policy import texts
from callfuse.policy.holdout import HOLDOUT
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.wire.jsontext import apply


class Exchange:
    """One judged request, and its answer. The constructor reads the whole request, so call it in a thread."""

    __slots__ = (
        "_answer",
        "_evidence",
        "_first",
        "_host",
        "_keeper",
        "_monologue",
        "_prepared",
        "_repairs",
        "_storms",
        "_unpacks",
        "reply",
    )

    def __init__(self, host: Host, prepared: Prepared, spending: Spending | None = None) -> None:
        self._host = host
        self._prepared = prepared
        settings = prepared.settings
        self._answer: AnswerDriver | None = None
        self._unpacks = self._repairs = False
        self._add_hints()
        remembers = prepared.request.continues and self._read_chain()
        self._evidence = ExchangeEvidence(
            prepared.request,
            prepared.lane,
            prepared.state if spending is None else spending.state,
            prepared.now,
            settings,
            may_change=not prepared.signed,
            may_withhold=not (prepared.observed or (remembers and prepared.signed)),
            hold_all=host.on_loop is not None and not prepared.observed and prepared.arm.name != HOLDOUT,
            allowed=prepared.allowed,
        )
        self._keeper = Keeper(host, prepared, self._evidence, spending)
        if spending is not None:
            spending.begin(self._evidence)
        if self._evidence.brings_results:
            self._keeper.tell_results()
        self.reply: SyntheticReply | None = None
        self._storms = open_storms(host, prepared)
        self._monologue = NO_MONOLOGUE
        if settings.enabled and settings.detectors.monologue:
            self._monologue = read_monologue(prepared.request.get(), settings, self._evidence.judge.before)
        self._first: bytes | None = None

    def _read_chain(self) -> bool:
        """Read which steps the request's chain requires. Returns whether the vendor remembers the conversation."""
        prepared, chain = self._prepared, self._prepared.request.get().chain
        if chain is None:
            return False
        remembers = chain.stored or chain.chained
        self._unpacks = chain.chained or chain.begins_chain
        self._repairs = remembers and not prepared.signed
        if prepared.signed and chain.chained and not prepared.observed:
            prepared.tally.unguarded("signed chain")
        return remembers

    @property
    def kept(self) -> LaneEvidence:
        """The part of the conversation that the ledger needs."""
        return self._evidence.kept

    async def review(self) -> None:
        """Add texts to the body, and let the callback decide about findings in the request."""
        timeline, weight = self._evidence.conversation.timeline, self._prepared.weight
        if len(timeline.rounds) > MANY_REPEATS and timeline.facts.repeated > MANY_REPEATS:
            weight += off_loop.LONG_BYTES
        self._first = await off_loop.run(self._content, weight)
        if self._storms is not None:
            async for finding in self._storms.findings():
                if self.reply is None:  # a warning would not change the next request
                    await self._review_before(self._evidence.judge.before(finding), may_warn=False)
        if self._monologue.verdict is not None and self.reply is None:
            await self._review_monologue(self._monologue.verdict)
        host, prepared, found = self._host, self._prepared, self._evidence.hindsight
        if found is None or not self._evidence.asks_callback:
            return
        with self._keeper.fail_open.stage("while adding texts"):
            review = Review(host.on_loop, self._evidence.judge, prepared.where, host.bus)
            (decided,) = await review.review([found])
            if self._evidence.decide(decided):
                self._first = await off_loop.run(self._content, len(prepared.request.body))

    async def _review_monologue(self, found: Verdict) -> None:
        """Review the verdict on a monologue, and rewrite the body if the callback changes whether it warns."""
        decided = await self._review_before(found)
        if decided.warns != found.warns and not decided.blocks:
            self._monologue = self._monologue._replace(verdict=decided)
            self._first = await off_loop.run(self._content, len(self._prepared.request.body))

    async def _review_before(self, found: Verdict, *, may_warn: bool = True) -> Verdict:
        """Let the callback decide about a finding in the request, and report it. A block becomes callfuse's own answer.
        `may_warn`: whether a warning is possible; if not, the finding is only observed."""
        host, prepared = self._host, self._prepared
        decided = found
        if self._evidence.asks_callback:
            review = Review(host.on_loop, self._evidence.judge, prepared.where, host.bus)
            (decided,) = await review.review([found])
        if decided.rung is not None and not decided.blocks and decided.rung is not Rung.OBSERVE:
            decided = replace(decided, rung=Rung.WARN if may_warn else Rung.OBSERVE)
        self._keeper.tell_before(decided)
        if decided.blocks:
            request, detail = prepared.request.get(), texts.header([decided]).removeprefix(Rung.BLOCK)
            text = texts.block(decided, prepared.settings, request.model)
            own = request.synthetic_reply(text)
            self.reply = SyntheticReply(own, Rung.BLOCK.encode(), detail.encode())
            if self._keeper.recording is not None:
                record_reply(self._keeper.recording, own)
        return decided

    def run(self, scope: Scope, body: RequestBody, send: Send) -> Awaitable[None]:
        """Call the app. For a healthy answer this returns the app's own awaitable, so that its chunks cost no extra
        coroutine."""
        app, spending = self._host.app, self._keeper.spending
        stage = self._keeper.fail_open.stage("in a request")
        with stage:
            content, self._first = self._first, None
            recording = self._keeper.recording
            if recording is not None:
                app, send = record(recording, app, send, self._keeper.fail_open.stage("while recording"))
            metered = app if spending is None else spending.metered(app)
            called = RepairingApp(metered, self._repair) if self._repairs else metered
            tally = self._prepared.tally
            if self._evidence.holds:
                tally.mode = "guarded"
                first = headers.for_body(scope, content, identity=True)
                self._answer = AnswerDriver(self._evidence, self._keeper, body, send, review=self._review())
                return GuardedExchange(called, scope, body, self._answer).run(first, content)
            sent = scope
            reads = self._unpacks or metered is not app
            if content is not None or reads:
                sent = headers.for_body(scope, content, identity=reads)
            self._answer = answer = self._watched(body, send)
            tally.mode = "watched"
            receive = body.replay(content)
            body.release()
        if stage.failed:
            return self._run_unread(scope, body, send)
        if self._evidence.may_hold:
            return WatchedCall(answer.delivery, body, scope).run(called, sent, scope, receive, answer.send)
        if sent is scope:
            return called(sent, receive, answer.send)
        return call(called, sent, scope, receive, answer.send)

    def _run_unread(self, scope: Scope, body: RequestBody, send: Send) -> Awaitable[None]:
        """Call the app without reading its answer, because an error prevents it. Under `fail_closed`, block the answer
        if a call may have to be withheld."""
        tally, reply = self._prepared.tally, None
        with self._keeper.fail_open.stage("in a request"):
            reply = closed_reply(self._prepared) if self._evidence.holds else None
        tally.mode = "passed" if reply is None else "answered"
        if reply is None:
            return self._host.app(scope, body.replay(), tally.noting_status(send))
        tally.action = reply.action.decode()
        return reply.run(scope, body, tally.noting_status(send))

    def close(self) -> None:
        """Drop the request and the data of its answer, because the app's own frames may outlive the exchange."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self._evidence.close()
        recording = self._keeper.recording
        if recording is not None:
            with self._keeper.fail_open.stage("while recording"):
                recording.close()

    def _watched(self, body: RequestBody, send: Send) -> AnswerDriver:
        """Return the driver of an answer without suspect calls so far. Drops everything that was parsed."""
        self._evidence.drop()
        watching = Watching(self._revive, unpacks=self._unpacks, reads_all=self._prepared.keeps_place)
        return AnswerDriver(self._evidence, self._keeper, body, send, watching=watching)

    async def _revive(self) -> Review:
        """Read the request again, because a call could be one too many in the answer."""
        await off_loop.run(self._evidence.revive, len(self._prepared.request.body))
        return self._review()

    def _review(self) -> Review:
        """Make the review that shows verdicts to the callback."""
        host, prepared = self._host, self._prepared
        review = Review(host.on_loop, self._evidence.judge, prepared.where, host.bus)
        self._keeper.notes = review.notes
        return review

    def _content(self) -> bytes | None:
        """Return the body with warnings and notes in its results, in a form that a stateful vendor accepts; None if it
        is unchanged."""
        prepared = self._prepared
        if prepared.signed:
            return None
        request = prepared.request.get()
        request.body = prepared.request.body
        with self._keeper.fail_open.stage("while adding texts"):
            if notes := notes_for(self._evidence.conversation):
                request.body = request.with_notes(notes)
            verdict, warning, earlier = self._monologue
            if warning or earlier:
                pending = warning if verdict is not None and verdict.warns else ()
                request.body = apply(request.body, [*earlier, *pending])
            if request.chain is not None:
                request.body = request.chain.resume(prepared.state.continuation)
        return request.body if prepared.request.is_changed or request.body != prepared.request.body else None

    def _leave_out_cut(self) -> None:
        """Remove reasoning that callfuse cut off in an earlier answer, because the vendor would refuse it."""
        kept = self._prepared.request
        with FailOpen(self._host.bus, self._prepared.where.session).stage("while adding texts"):
            body = leave_out(kept.body)
            if body != kept.body:
                kept.replace(body)
                kept.drop()

    def _add_hints(self) -> None:
        """Remove reasoning that was cut off, and add hints for `tool_hint` and `tool_names`, by the settings of server
        and model. A request that is only observed gets no hints."""
        prepared, settings = self._prepared, self._host.settings
        if prepared.signed:
            return
        if CUT_MARK in prepared.request.body:
            self._leave_out_cut()
        if prepared.arm.name == HOLDOUT or not (settings.tool_hint or settings.tool_names):
            return
        where, kept = prepared.where, prepared.request
        with FailOpen(self._host.bus, where.session).stage("while adding texts"):
            body = with_hints(kept.get(), settings.for_exchange(f"{where.backend}:{where.model}"))
            if body != kept.body:
                kept.replace(body)

    def _repair(self, body: bytes, error: bytes) -> bytes | None:
        """Repair a body that the vendor refused; returns None if it cannot be repaired."""
        with self._keeper.fail_open.stage("while repairing"):
            kept = self._prepared.request
            chain = kept.get().chain
            if not self._evidence.holds:
                self._evidence.drop()
            if chain is not None:
                return chain.repair(body, error) or chain.repair(kept.body, error)
        return None
