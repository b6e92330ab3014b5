"""Record the results of an exchange: its events, and the lane's new state in the ledger."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from callfuse.asgi import off_loop
from callfuse.asgi.changes import change_lanes
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.meter import CHARS_PER_TOKEN
from callfuse.asgi.prepare import Host, Prepared
from callfuse.asgi.spending import BUSY, Spending
from callfuse.asgi.traced import TracedApp
from callfuse.asgi.types import ASGIApp
from callfuse.conversations.identity import Lane, chain_lane
from callfuse.conversations.ledger import LaneState, Told
from callfuse.conversations.mending import Course, taught
from callfuse.conversations.retries import request_digest, with_failure
from callfuse.detect.facts import ends_early
from callfuse.detect.truncated import Truncated
from callfuse.dialects.stateful import ChainedRequest, Continuation
from callfuse.guard.growing_texts import FoundText
from callfuse.guard.record import ExchangeRecord
from callfuse.model import ANY_TOOL, PastCall, ToolCall
from callfuse.model.spent import MICROS, NO_TOKENS, Spent, Tokens
from callfuse.observe import log
from callfuse.observe.bus import Bus
from callfuse.observe.events import (
    ActionTaken,
    CallSeen,
    CourseMended,
    FindingSeen,
    NotAsked,
    ResultSeen,
    action_of,
    new_finding_id,
)
from callfuse.observe.would import would_take
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.said import verdict_on_text


class Keeper:
    """Reports and keeps the results of one exchange. Never raises.

    `notes`: texts for results in later requests, in addition to those of the record. `tally`: the exchange's account.
    `spending`: the cost of its answers; None if costs are not counted. `recording`: keeps its answers for the admin
    page; None if this is off.
    """

    __slots__ = (
        "_evidence",
        "_host",
        "_known",
        "_prepared",
        "_reporting",
        "_told",
        "fail_open",
        "notes",
        "recording",
        "spending",
        "tally",
    )

    def __init__(
        self, host: Host, prepared: Prepared, evidence: ExchangeEvidence, spending: Spending | None = None
    ) -> None:
        self.fail_open = FailOpen(host.bus, prepared.where.session)
        self._reporting = self.fail_open.stage("while reporting")
        self.tally = prepared.tally
        self.spending = spending
        self.recording = host.in_flight.kept.open() if host.in_flight.kept.is_on else None
        self.notes: list[tuple[ToolCall, str]] = []
        self._host = host
        self._prepared = prepared
        self._evidence = evidence
        self._told = (0, 0, 0)
        self._known = set[str]()

    @property
    def bus(self) -> Bus:
        """The bus that takes the events of the exchange."""
        return self._host.bus

    def traced(self, app: ASGIApp) -> ASGIApp:
        """Wrap the app for asking the model again: its calls become part of the exchange's span, if there is one."""
        traces = self._host.traces
        return app if traces is None else TracedApp(app, traces, self.fail_open.stage("while asking"))

    @property
    def session(self) -> str:
        """The session's name in logs."""
        return self._prepared.where.session

    def unguarded(self, cause: str) -> None:
        """Report an answer that passes unguarded, by cause."""
        self.tally.unguarded(cause)

    async def settle(self, record: ExchangeRecord) -> None:
        """Report and keep the record of a delivered answer."""
        course: Course | None = None
        verdicts = tuple(record.verdicts)
        with self._reporting:
            course = self._follow(record, verdicts)
        self._tell_hindsight()
        with self._reporting:
            self._note_texts(record, verdicts)
        self.report(record)
        with self._reporting:
            for told, result in course.take_decided() if course is not None else ():
                self.bus.emit(CourseMended(self._prepared.where, told.finding_id, result, told.arm))
        with self.fail_open.stage("while keeping"):
            cut_off: Sequence[tuple[ToolCall, str]] | None = None
            if record.cut_off or self._evidence.kept.state.cut_off or self._prepared.settings.detectors.truncated:
                cut_off = self._cut_off(record, verdicts)
            await self._keep(record, verdicts, course.waiting if course is not None else (), cut_off)

    def verdict_on_text(self, found: FoundText) -> Verdict:
        """Return the verdict on runaway text of the model."""
        prepared = self._prepared
        part, runaway, _ = found
        may_change = not prepared.signed
        return verdict_on_text(part, runaway, prepared.settings, may_change=may_change, finding_id=new_finding_id())

    def _note_texts(self, record: ExchangeRecord, verdicts: Sequence[Verdict]) -> None:
        """Warn the model of its runaway text, in the result of the first call of the same answer. An answer without
        calls gets no warning."""
        said = [one for one in verdicts if one.finding.part and one.warns]
        delivered = [one.call for one in record.rounds[-1] if not one.withheld] if said and record.rounds else ()
        if delivered:
            prepared = self._prepared
            settings, model = prepared.settings, prepared.request.model
            record.note(delivered[0], [texts.warning(one.call, one.finding, settings, model) for one in said])

    def _follow(self, record: ExchangeRecord, verdicts: Sequence[Verdict]) -> Course:
        """Return how the model reacted to findings that it read about, in earlier exchanges, in this request, and in
        this exchange."""
        kept, hindsight = self._evidence.kept, self._evidence.hindsight
        course = Course(kept.told)
        if self._prepared.request.choices != 1 or not (course.waiting or verdicts or hindsight):
            return course
        if kept.spoken:
            course.speak()
        elif kept.is_new:
            course.see_results(hindsight.finding.kind if hindsight is not None else "")
        if hindsight is not None and kept.rounds:  # its warning is in the newest results
            course.add(self._taught([hindsight], kept.rounds[-1].position))
        course.follow(filter(None, record.rounds), partial(self._taught_with, verdicts))
        if course.is_text and not (record.is_incomplete or record.fail_open):
            course.end()
        return course

    def _taught_with(self, verdicts: Iterable[Verdict], calls: Sequence[PastCall]) -> list[Told]:
        """Return the texts for the model about these calls of an answer, from the last verdict on each."""
        of_call = {verdict.call: verdict for verdict in verdicts}
        return self._taught([of_call[one.call] for one in calls if one.call in of_call], self._evidence.kept.length)

    def _taught(self, verdicts: Iterable[Verdict], position: int) -> list[Told]:
        """Return these verdicts' texts that ask the model to change course; in a holdout, those that it would get."""
        prepared = self._prepared
        arm, may_change = prepared.arm, not prepared.signed
        rungs = [(one, arm.rung_of(one, may_change=may_change)) for one in verdicts]
        return [taught(one, arm.name, position) for one, rung in rungs if rung is not None and rung.teaches]

    def report(self, record: ExchangeRecord) -> None:
        """Report everything in a record, and clear what was reported."""
        self.tell(record)
        with self._reporting:
            for part in record.unasked:
                self._host.bus.emit(NotAsked(part, self._prepared.where))
        with self._reporting:
            record.clear_reported()
            self._told = (0, 0, 0)

    def tell(self, record: ExchangeRecord) -> None:
        """Report the calls, verdicts and failures of a record, each only once."""
        calls, verdicts = record.calls[self._told[0] :], record.verdicts[self._told[1] :]
        failures = [*zip(record.fail_open, record.verdicts_before, strict=True)][self._told[2] :]
        done = self._told[1]
        self._told = (len(record.calls), len(record.verdicts), len(record.fail_open))
        self.tally.calls += len(calls)
        if verdicts or failures:
            self._tell_hindsight()
        with self._reporting:
            actions = {verdict.call: action_of(verdict) for verdict in verdicts}
            for call in calls:
                self._host.bus.emit(CallSeen(self._prepared.where, call, actions.get(call, "none")))
        for cause, before in failures:
            self._report_verdicts(record.verdicts[done:before])
            done = max(done, before)
            with self._reporting:
                self.fail_open.report(cause)
                self.tally.failures += 1
                self.tally.cause = cause
        self._report_verdicts(record.verdicts[done:])

    def _tell_hindsight(self) -> None:
        """Report the verdict on the newest round, only once, and before any report on the answer."""
        hindsight = self._evidence.hindsight
        if hindsight is not None and hindsight.finding_id not in self._known:
            self._report_verdicts([hindsight])

    def _report_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            with self._reporting:
                self._report_verdict(verdict)

    def _report_verdict(self, verdict: Verdict) -> None:
        """Report a finding and its action, again if a rung failed and another follows."""
        where, tally, id_ = self._prepared.where, self.tally, verdict.finding_id
        blocks = self._evidence.kept.blocks.count + verdict.blocks
        tally.action = action_of(verdict)
        tally.withheld += verdict.withholds and not verdict.finding.stretch.part
        arm = self._prepared.arm.name
        would, prepared = "", self._prepared
        if not prepared.observed:
            may_ask = prepared.request.choices == 1
            would = would_take(verdict, prepared.arm, may_change=not prepared.signed, may_ask=may_ask)
        cost = self._cost_of(verdict) if verdict.withholds else NO_TOKENS
        again, tokens, price = id_ in self._known, cost.input + cost.output, cost.money / MICROS
        seen = FindingSeen(where, verdict, blocks, again=again, arm=arm, would=would, tokens=tokens, price=price)
        if self.recording is not None:
            self.recording.note(id_)
        self._host.bus.emit_finding(seen)
        self._known.add(id_)
        if (verdict.warns or verdict.withholds) and self._host.bus.wants(ActionTaken):
            settings, model = self._prepared.settings, self._prepared.request.model
            told = "" if verdict.finding.part else texts.told(verdict, settings, model)
            self._host.bus.emit(ActionTaken(where, id_, tally.action, verdict.first, arm, told))

    def tell_before(self, verdict: Verdict) -> None:
        """Report the verdict on a request, before the model is asked."""
        self._report_verdicts([verdict])

    def _cost_of(self, verdict: Verdict) -> Tokens:
        """Return the cost of a request like this one and its answer: the vendor's count, else an estimate."""
        spending, request = self.spending, len(self._prepared.request.body)
        if spending is not None and spending.last.total:
            return spending.last
        read, total = request // CHARS_PER_TOKEN, (request + len(verdict.call.text)) // CHARS_PER_TOKEN
        used = Tokens(read, 0, total - read)
        return used if spending is None else spending.priced(used)

    def tell_results(self) -> None:
        """Report the results of the newest round, which this request shows for the first time."""
        if not self._host.bus.wants(ResultSeen):
            return
        with self._reporting:
            for call in self._evidence.kept.rounds[-1].delivered if self._evidence.kept.rounds else ():
                if call.outcome is not None:
                    self._host.bus.emit(ResultSeen(self._prepared.where, call.id, call.signature, call.outcome))

    async def keep_failure(self) -> None:
        """Record that the vendor answered with an error, because the client may repeat the request many times."""
        prepared = self._prepared
        settings, now = prepared.settings, self._host.clock()
        if not (settings.enabled and settings.detectors.retry_storm) or prepared.state.last_used is not None:
            return  # do not overwrite the last use of a lane that has expired
        body = prepared.request.body
        digest = await off_loop.run(partial(request_digest, body), len(body))

        async def make(state: LaneState | None) -> dict[Lane, LaneState]:
            there = prepared.state if state is None else state
            return {prepared.lane: replace(there, storm=with_failure(there.storm, digest, now))}

        with self.fail_open.stage("while keeping"):
            await change_lanes(self._host.ledger, prepared.read, make, now)

    async def _keep(
        self,
        record: ExchangeRecord,
        verdicts: Sequence[Verdict],
        told: Sequence[Told],
        cut_off: Sequence[tuple[ToolCall, str]] | None,
    ) -> None:
        """Write new rounds and notes, texts for the model (`told`), and calls that were `cut_off` to the ledger, if
        there are any.

        If another exchange of the lane wrote meanwhile, its results are kept: the request is read again with the new
        state, and the results of this exchange are added to it.
        """
        prepared, evidence = self._prepared, self._evidence
        rounds = [calls for calls in record.rounds if calls]
        goes_on = prepared.keeps_place and bool(record.answers)
        notes = self._notes(record, verdicts)
        now = self._host.clock()
        spent = await self._spend(rounds)
        is_text_blocked = bool(verdicts) and _is_text_blocked(rounds, verdicts)
        is_new = True in (
            evidence.kept.is_new,
            tuple(told) != evidence.kept.state.told,
            spent is not None,
            bool(cut_off),
            is_text_blocked,
        )
        if not (rounds or notes or evidence.hindsight or goes_on or is_new):
            return

        def lanes(state: LaneState | None) -> dict[Lane, LaneState]:
            waiting = told
            if state is not None:
                evidence.reread(state, prepared.state)
                waiting = self._follow(record, verdicts).waiting
            after = partial(evidence.after, rounds, notes, now, waiting, spent, cut_off)
            return self._lanes(record, len(rounds), partial(after, is_text_blocked=is_text_blocked))

        def make(state: LaneState | None) -> Awaitable[dict[Lane, LaneState]]:
            return off_loop.run(partial(lanes, state), prepared.weight)

        if not await change_lanes(self._host.ledger, prepared.read, make, now):
            self.fail_open.report(BUSY)

    def _cut_off(self, record: ExchangeRecord, verdicts: Iterable[Verdict]) -> list[tuple[ToolCall, str]] | None:
        """Return the calls that the client got without their end, each with the text for its result; None if the
        settings do not detect such calls."""
        settings, model = self._prepared.settings, self._prepared.request.model
        if not settings.for_tool(ANY_TOOL).settings.detectors.truncated:
            return None
        delivered = [one.call for calls in record.rounds for one in calls if not one.withheld]
        calls = [*record.cut_off, *filter(ends_early, delivered)]
        warned = {one.call: one.finding for one in verdicts if one.warns and one.finding.kind == Truncated.kind.name}
        told = {call: texts.warning(call, finding, settings, model) for call, finding in warned.items()}
        return [(call, told.get(call, "")) for call in calls]

    async def _spend(self, rounds: Iterable[Sequence[PastCall]]) -> Spent | None:
        """Return the budget use of this exchange to store with the lane, including calls that the client got; None if
        there is none, or if it was added to the account of a session or a credential."""
        spending = self.spending
        if spending is None or not spending.is_kept:
            return None
        spent = spending.take(sum([not one.withheld for calls in rounds for one in calls]))
        return None if await spending.share(spent) else spent

    def _notes(self, record: ExchangeRecord, verdicts: Sequence[Verdict]) -> list[tuple[ToolCall, str]]:
        """Return the texts for results in later requests; empty for a call that passes although the ladder would
        warn."""
        if self._prepared.request.choices != 1:
            return []
        passing = [(one.call, "") for one in verdicts if one.rung is None] if self._prepared.settings.warns else []
        return [*record.notes, *self.notes, *passing]

    def _lanes(
        self, record: ExchangeRecord, rounds: int, state_after: Callable[[], LaneState]
    ) -> dict[Lane, LaneState]:
        """Return the state after this exchange, by lane. May read the request again."""
        prepared = self._prepared
        state = state_after()
        gone = len(self._evidence.kept.state.rounds) + rounds - len(state.rounds)
        log.pruned(gone, kept=len(state.rounds), session=self.session)
        if prepared.request.continues and (chain := prepared.request.get().chain) is not None:
            return self._places(chain, state, record)
        return {prepared.lane: state}

    def _places(self, chain: ChainedRequest, state: LaneState, record: ExchangeRecord) -> dict[Lane, LaneState]:
        """Return the state for each lane that the next request may belong to: the request's own, or the one of the
        answer's id."""
        lane = self._prepared.lane
        before = self._evidence.kept.state
        session = before.session or lane.owner
        known = chain.continuation(before.continuation, record.answers)
        opening = chain.after(record.answers[0].id) if record.answers else ()
        lanes: dict[Lane, LaneState] = {}
        if opening:
            there = replace(state, notes={}, continuation=known, session=session)
            lanes[chain_lane(lane, opening)] = there
        if not (chain.chained and opening):
            here = known if chain.chained else Continuation(known.items)
            lanes[lane] = replace(state, continuation=here)
        return lanes


def _is_text_blocked(rounds: Iterable[Sequence[PastCall]], verdicts: Iterable[Verdict]) -> bool:
    """Whether an answer ends in a block because its text was cut off. If calls are left, it ends with them instead."""
    is_left = any(not one.withheld for calls in rounds for one in calls)
    return not is_left and any(one.finding.part and one.blocks for one in verdicts)
