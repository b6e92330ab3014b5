"""Judge a recorded run call by call, as the guard would have done on live traffic.

A replay cannot know how the model would have reacted to a verdict. Each recorded call is judged by the calls before it,
and a verdict moves the ladder as on live traffic. Times are unknown, so no pause ends a streak.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from callfuse.conversations.monologue import verdict_on
from callfuse.detect import can_fire, hindsight_can_fire
from callfuse.detect.runaway_call import RunawayCall
from callfuse.guard.judge import Judge
from callfuse.model import Finding, PastCall, Round, Timeline
from callfuse.model.spent import NOTHING_SPENT, Spent
from callfuse.offline.memory import NOTHING, KnownCall, VerdictMemory
from callfuse.offline.runs import RecordedRun
from callfuse.offline.spending import spent_before
from callfuse.policy.ignored import ignore_in_rounds
from callfuse.policy.ladder import Verdict
from callfuse.policy.said import verdict_on_text
from callfuse.policy.settings import LoopSettings


class Judged(NamedTuple):
    """One call of a run with its finding. `turn`, `round`: their indexes.

    `suspect`: the call could have had a finding, before its arguments were known. `held`: it would have been held to
    its end. A call whose arguments differ early does not count: it is released at the first different character.
    """

    turn: int
    round: int
    call: PastCall
    finding: Finding | None = None
    verdict: Verdict | None = None
    suspect: bool = False
    held: bool = False

    def kinds(self) -> tuple[str, ...]:
        """Return all kinds of the finding; empty if there is none."""
        return () if self.finding is None else self.finding.kinds or (self.finding.kind,)

    def is_of(self, rules: Collection[str]) -> bool:
        """Whether the finding is of one of these kinds."""
        return any(kind in rules for kind in self.kinds())


def judge_run(run: RecordedRun, settings: LoopSettings, memory: VerdictMemory | None = None) -> Iterator[Judged]:
    """Judge every call of a run, oldest first. A finding by results is attached to the last call of its round.

    `memory`: keeps findings, so that known rounds are not judged again. With it, `suspect` and `held` are not set, and
    budgets are not judged.
    """
    spent = spent_before(run, settings.budget) if memory is None else None
    for turn, rounds in enumerate(run.turns):
        ignore_in_rounds(rounds, settings)
        recalled = NOTHING if memory is None else memory.recall(run, rounds, settings)
        before = [NOTHING_SPENT] * (len(rounds) + 1) if spent is None else spent[turn]
        for at, found in enumerate(_judge_turn(run, settings, turn, recalled.rounds, before)):
            if memory is not None and at >= len(recalled.rounds):
                memory.keep(recalled.digests[at], [_known(one, rounds[at]) for one in found])
            yield from found


def judge_texts(run: RecordedRun, settings: LoopSettings) -> list[Judged]:
    """Return the findings in the run's answers other than calls, each as a call `(text)`, `(reasoning)`, `(finish)` or
    `-` (equal answers) after all others."""
    if not settings.enabled:
        return []
    found = [one for one in run.texts if settings.detectors.finds(RunawayCall.kind.name, one.part)]
    verdicts = [verdict_on_text(one.part, one.found, settings) for one in found]
    verdicts += [verdict for equal in run.equal if (verdict := verdict_on(equal, settings)) is not None]
    turn = max(len(run.turns) - 1, 0)
    at = len(run.turns[-1]) if run.turns else 0
    return [Judged(turn, at + n, PastCall(one.call), one.finding, one) for n, one in enumerate(verdicts)]


def _judge_turn(
    run: RecordedRun,
    settings: LoopSettings,
    turn: int,
    known: Sequence[Sequence[KnownCall]],
    spent: Sequence[Spent],
) -> Iterator[list[Judged]]:
    """Judge the rounds of a turn. `known`: the findings in the first ones; `spent`: budget use before each, and at the
    end."""
    rounds, begin = run.turns[turn], len(known)
    whole = _timeline(run, rounds, spent[-1])
    late: list[Verdict | None] = []
    if begin < len(rounds) and hindsight_can_fire(whole, settings):
        late = [*islice(Judge(whole, settings).hindsights(), len(rounds) - begin)][::-1]
    for at, round_ in enumerate(rounds):
        if at < begin:
            yield _recalled(known[at], turn, at, round_)
            continue
        if can_fire(whole, settings, len(rounds) - at, round_):
            found = _pending(Judge(_timeline(run, rounds[:at], spent[at]), settings), turn, at, round_)
        else:
            found = [Judged(turn, at, past) for past in round_.calls]
        hindsight = late[at - begin] if late else None
        if hindsight and found[-1].finding is None:
            found[-1] = found[-1]._replace(finding=hindsight.finding, verdict=hindsight)
        yield found


def _recalled(known: Sequence[KnownCall], turn: int, at: int, round_: Round) -> list[Judged]:
    """Return the calls of a round whose findings are known."""
    found = []
    for past, one in zip(round_.calls, known, strict=True):
        past.step = one.step
        verdict = one.verdict_for(round_)
        found.append(Judged(turn, at, past, verdict.finding if verdict else None, verdict))
    if any(one.step for one in known):
        round_.forget()
    return found


def _known(found: Judged, round_: Round) -> KnownCall:
    """Return a call's finding in the form to keep."""
    verdict = found.verdict
    of = 0 if verdict is None else next(n for n, past in enumerate(round_.calls) if past.call is verdict.call)
    return KnownCall(verdict, of, found.call.step)


def _pending(judge: Judge, turn: int, at: int, round_: Round) -> list[Judged]:
    """Judge the calls of a round in order."""
    verdicts = {verdict.call: verdict for verdict in judge.verdicts([past.call for past in round_.calls])}
    of_round = []
    for past in round_.calls:
        verdict = verdicts.get(past.call)
        past.step = verdict.kept_step if verdict else 0
        finding = verdict.finding if verdict else None
        held = judge.must_hold(past.name) and not _differs(judge, past)
        of_round.append(Judged(turn, at, past, finding, verdict, judge.could_fire(past.name), held))
    if verdicts:
        round_.forget()  # equal calls count once, with the highest step
    return of_round


def _differs(judge: Judge, past: PastCall) -> bool:
    """Whether a held call would be released before its last character, because it differs from all others."""
    comparison = judge.comparison(past.name, past.call.namespace)
    if comparison is None:
        return False
    comparison.feed(past.call.text[:-1])
    return comparison.differs


def _timeline(run: RecordedRun, rounds: Sequence[Round], spent: Spent) -> Timeline:
    """Return the timeline of a turn's rounds, given oldest first. `spent`: the budget use."""
    return Timeline(rounds[::-1], declares=run.known.__contains__ if run.known is not None else None, spent=spent)
