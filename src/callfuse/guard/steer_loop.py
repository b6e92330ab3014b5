"""The steer loop of one exchange: verdict, another request to the model, its answer, verdict, up to an innocent answer
or a block.

In: verdicts. Out: the record of rounds and what became of them, and requests that ask a model again. Each request is
made anew from the client's own request and all attempts so far, so that what one rung changes (no tool, another
model) does not outlast its answer. Each time an exchange asks, it stands higher on the ladder than the time before, or
asks in a harder way: so it ends, at the latest in a block.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from callfuse.dialects.base import AskError, Attempt, Block, Dialect, Manner, Remembered, Reply, Request, remembering
from callfuse.guard.judge import Judge
from callfuse.guard.record import Record
from callfuse.guard.step import Ask
from callfuse.model import ToolCall
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.wire import Payload


class SteerLoop:
    """The policy half of a guard.

    `asked` are the verdicts for which a model is being asked again, as long as nothing of its answer has gone out.
    """

    def __init__(self, dialect: Dialect, request: Request, judge: Judge) -> None:
        self.record = Record(request.choices)
        self.asked: list[Verdict] = []
        self._remembering = remembering(dialect)
        self._request = request
        self._judge = judge
        self._attempts: list[Attempt] = []
        self._manner = Manner()
        self._height = (0, 0)
        self._answered = 0

    @property
    def foreign(self) -> bool:
        """Whether the answer that was asked for last is another model's than the client asked."""
        return bool(self._manner.model)

    def as_one(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts over a round that loses all its calls: the hardest of their rungs holds for the whole of it."""
        rung = max((verdict.rung for verdict in verdicts if verdict.rung), key=lambda one: one.hardness)
        as_one = [replace(verdict, rung=rung) if verdict.withholds else verdict for verdict in verdicts]
        if rung.asks and _height(as_one) <= self._height:
            return [replace(verdict, rung=Rung.BLOCK) if verdict.withholds else verdict for verdict in verdicts]
        return as_one

    def keep(
        self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict], payloads: Callable[[], Iterable[Payload]]
    ) -> None:
        """Keep a round with the verdicts over it, and the answer (by its payloads) as one that its vendor may
        remember."""
        if self._remembering is not None:
            answer_id = next(filter(None, map(self._remembering.answer_id, payloads())), "")
            replies = [Reply(one.call, self._judge.guidance(one)) for one in verdicts if one.withholds]
            self.record.answers.append(Remembered(answer_id, tuple(replies)))
        if calls:
            self.record.keep(calls, verdicts)

    def note(self, survivors: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """The first survivor's result will say what became of its siblings."""
        if survivors:
            self.record.note(survivors[0], [self._judge.guidance(one) for one in verdicts if one.withholds])

    def block(self, verdicts: Iterable[Verdict]) -> Block:
        """What the client reads in place of the withheld calls."""
        said = dict.fromkeys(self._judge.block_text(verdict) for verdict in verdicts if verdict.withholds)
        finish = self._judge.settings.finish_reason
        return Block("\n\n".join(said), finish if finish != "stop" else None)

    def ask(self, verdicts: Sequence[Verdict], turn: Callable[[], bytes]) -> Ask | None:
        """Ask a model again after an answer, whose turn may not be one that can be sent back. None where nothing is
        left but to block: `settled` has the verdicts then."""
        self.asked = list(verdicts)
        try:
            self._attempts.append(Attempt(turn(), (), self._manner.model))
        except AskError as error:
            self._unasked(error, [self._judge.blocked(verdict) for verdict in verdicts])
        return self._asking()

    def next(self) -> Ask | None:
        """What was asked for has failed: the next rung. None as for `ask`."""
        self._replace(self._next_rungs())
        return self._asking()

    def answered(self) -> None:
        """What is judged from now on is the answer that was asked for; another one may have begun and failed before."""
        if self._answered < len(self._attempts):
            self._answered = len(self._attempts)
            self._judge.withheld(self.asked)

    def settled(self) -> list[Verdict]:
        """Nothing is being asked for any more: the verdicts for which it was."""
        verdicts, self.asked = self.asked, []
        return verdicts

    def _asking(self) -> Ask | None:
        """The request for the verdicts as they stand, or else for the first rung after theirs that can be taken."""
        while (rung := self.asked[0].rung) is not None and rung.asks:
            manner = self._judge.manner(rung)
            told = [Reply(one.call, self._judge.guidance(one, asking=True)) for one in self.asked]
            self._attempts[-1] = self._attempts[-1]._replace(replies=told)
            try:
                body = self._request.ask_again(self._attempts, manner)
            except AskError as error:
                self._unasked(error, self._next_rungs())
                continue
            self._manner = manner
            self._height = _height(self.asked)
            return Ask(body, manner.model)
        return None

    def _next_rungs(self) -> list[Verdict]:
        return self.as_one([self._judge.next_rung(verdict) for verdict in self.asked])

    def _unasked(self, error: AskError, instead: list[Verdict]) -> None:
        """A model cannot be asked in this way."""
        self.record.unasked.append(error.part)
        self._replace(instead)

    def _replace(self, verdicts: list[Verdict]) -> None:
        self.record.replace_last(verdicts)
        self.asked = verdicts


def _height(verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """How high on the ladder a round stands, and how hard its rung is."""
    return max((verdict.place, verdict.rung.hardness) for verdict in verdicts if verdict.rung)


def all_ask(verdicts: Iterable[Verdict]) -> bool:
    """Whether all that is to be done is to ask a model again."""
    return all(verdict.rung is not None and verdict.rung.asks for verdict in verdicts)
