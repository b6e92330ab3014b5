"""The steer loop of one exchange: a verdict, another request to a model, its answer, the next verdict, and so on until
an answer has no loop, or is blocked.

The input is verdicts; the output is requests that ask a model again, and the record of all rounds. Two rules:

- Each request is built from the client's own request and all attempts so far, so that the changes of one rung (no
  tools, another model) end with its answer.
- Each request of an exchange is from a higher step of the ladder than the one before it, or from a harder rung. So the
  loop ends, at the latest in a block.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay, Reply
from callfuse.dialects.base import Block, Dialect, Request
from callfuse.dialects.stateful import StoredAnswer, stateful_vendor
from callfuse.guard.judge import Judge
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.step import Ask
from callfuse.model import ToolCall
from callfuse.policy.explain import names_call
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.wire import Payload


class SteerLoop:
    """Decides which request or block follows a verdict: the policy half of a guard.

    `asked`: the verdicts for which a model is being asked again; empty once part of its answer has left. `record`: the
    record of the exchange. `may_ask`: the driver can ask the model again.
    """

    def __init__(
        self, dialect: Dialect, request: Request, judge: Judge, record: ExchangeRecord, *, may_ask: bool = True
    ) -> None:
        self.record = record
        self.may_ask = may_ask
        self.asked: list[Verdict] = []
        self.judge = judge
        self._stateful = stateful_vendor(dialect)
        self._request = request
        self._attempts: list[Attempt] = []
        self._options = AskOptions()
        self._height = (0, 0)
        self._answered = 0

    @property
    def foreign(self) -> bool:
        """Whether the last request went to another model than the client's."""
        return bool(self._options.model)

    @property
    def may_cut(self) -> bool:
        """Whether an answer may be cut short."""
        return may_cut(self._request)

    def apply_hardest_rung(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return the verdicts for a round that loses all its calls: each gets the hardest of their rungs. If that rung
        asks but would not be harder than the last one asked for, each gets `block`. A round of nameless calls has no
        verdicts."""
        rungs = [verdict.rung for verdict in verdicts if verdict.rung]
        rung = max(rungs, key=lambda one: one.hardness, default=Rung.OBSERVE)
        unified = [replace(verdict, rung=rung) if verdict.withholds else verdict for verdict in verdicts]
        if rung.asks and _height(unified) <= self._height:
            return [replace(verdict, rung=Rung.BLOCK) if verdict.withholds else verdict for verdict in verdicts]
        return unified

    def keep(
        self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict], payloads: Callable[[], Iterable[Payload]]
    ) -> None:
        """Record a round with its verdicts and, for a stateful vendor, the id of the answer (from its payloads)."""
        if self._stateful is not None:
            answer_id = next(filter(None, map(self._stateful.answer_id, payloads())), "")
            replies = [Reply(one.call, self.judge.guidance(one)) for one in verdicts if one.withholds]
            self.record.answers.append(StoredAnswer(answer_id, tuple(replies)))
        if calls:
            self.record.keep(calls, verdicts)

    def note(self, survivors: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Add a note on withheld calls to the result of the first delivered call, if there is any."""
        if survivors:
            self.record.note(survivors[0], [self.judge.guidance(one) for one in _one_each(verdicts)])

    def block(self, verdicts: Iterable[Verdict]) -> Block:
        """Return the text and finish reason that the client gets instead of the withheld calls."""
        said = dict.fromkeys(self.judge.block_text(verdict) for verdict in _one_each(verdicts))
        finish = self.judge.settings.finish_reason
        return Block("\n\n".join(said), finish if finish != "stop" else None)

    def ask(
        self, verdicts: Sequence[Verdict], turn: Callable[[], bytes], said: Callable[[], str] | None = None
    ) -> Ask | None:
        """Return the request that asks a model again after an answer; None if only a block is possible: `stop_asking`
        then returns the verdicts. `turn` rebuilds the model's turn, or raises CannotReplay. `said`, for an answer that
        is cut off in the middle, rebuilds the model's text."""
        self.asked, model = list(verdicts), self._options.model
        try:
            self._attempts.append(Attempt(turn(), (), model) if said is None else Attempt(b"", (), model, said()))
        except CannotReplay as error:
            self._skip_rung(error, [self.judge.to_block(verdict) for verdict in verdicts])
        return self._next_ask()

    def next(self) -> Ask | None:
        """Return the request for the next rung, after the last request has failed. None as in `ask`."""
        self._replace(self._next_rungs())
        return self._next_ask()

    def begin_next_answer(self) -> None:
        """From now on, judge the answer to the last request. Called for each answer that begins, so only the first call
        after a request counts."""
        if self._answered < len(self._attempts):
            self._answered = len(self._attempts)
            self.judge.begin_next_round(self.asked)

    def stop_asking(self) -> list[Verdict]:
        """Stop asking; return the verdicts for which a model was being asked."""
        verdicts, self.asked = self.asked, []
        return verdicts

    def close(self) -> None:
        """Drop the model's turns. No model can be asked after this."""
        self._attempts.clear()
        self.asked = []

    def _next_ask(self) -> Ask | None:
        """Return the request for the current verdicts, or for the first later rung whose request can be built; None if
        none can."""
        while (rung := self.asked[0].rung) is not None and rung.asks:
            options = self.judge.ask_options(rung)
            replies = [Reply(one.call, self.judge.guidance(one, asking=True)) for one in self.asked]
            self._attempts[-1] = self._attempts[-1]._replace(replies=replies)
            try:
                body = self._request.ask_again(self._attempts, options)
            except CannotReplay as error:
                self._skip_rung(error, self._next_rungs())
                continue
            self._options = options
            self._height = _height(self.asked)
            return Ask(body, options.model)
        return None

    def _next_rungs(self) -> list[Verdict]:
        return self.apply_hardest_rung([self.judge.next_rung(verdict) for verdict in self.asked])

    def _skip_rung(self, error: CannotReplay, instead: list[Verdict]) -> None:
        """Record why this rung cannot ask, and use these verdicts instead."""
        self.record.unasked.append(error.part)
        self._replace(instead)

    def _replace(self, verdicts: list[Verdict]) -> None:
        self.record.replace_last(verdicts)
        self.asked = verdicts


def may_cut(request: Request) -> bool:
    """Whether the answer to a request may be cut short: it has no other choice, which would lose its end, and no
    request can continue it by the id under which its vendor stores it."""
    chain = request.chain
    return request.choices == 1 and not (chain is not None and (chain.stored or chain.chained))


def _one_each(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return one withholding verdict for each different text, because hundreds of calls may share a text."""
    said: dict[object, Verdict] = {}
    for verdict in verdicts:
        if verdict.withholds:
            finding = verdict.finding
            said.setdefault((finding.kind, finding.signature if names_call(finding) else None), verdict)
    return list(said.values())


def _height(verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """Return the highest ladder step of the verdicts with the hardness of its rung, for comparison."""
    return max((verdict.step, verdict.rung.hardness) for verdict in verdicts if verdict.rung)


def all_ask(verdicts: Iterable[Verdict]) -> bool:
    """Whether every verdict asks a model again."""
    return all(verdict.rung is not None and verdict.rung.asks for verdict in verdicts)
