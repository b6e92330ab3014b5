"""What would have been found in a recorded run, call by call, as the guard would have judged it on the wire.

A replay cannot know what the model would have done instead: the recorded calls go on as they did, each is judged by
what came before it, and a verdict moves the ladder as on the wire. Times are unknown, so no pause ends a streak.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from callfuse.detect import Engine, is_healthy
from callfuse.detect.same_error import may_be_among
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.offline.runs import Run
from callfuse.policy.ladder import Verdict, decide, would_withhold
from callfuse.policy.settings import LoopSettings, Rung


class Judged(NamedTuple):
    """One call of a run: where it stands, and what was found of it.

    `suspect`: before its arguments were known it could have been found to loop; `held`: it would then have been held.
    """

    turn: int
    round: int
    call: ToolCall
    finding: Finding | None = None
    verdict: Verdict | None = None
    suspect: bool = False
    held: bool = False

    def kinds(self) -> tuple[Kind, ...]:
        """Every kind that hit."""
        return () if self.finding is None else self.finding.kinds or (self.finding.kind,)

    def is_of(self, rules: Collection[str]) -> bool:
        """Whether one of these rules hit."""
        return any(kind in rules for kind in self.kinds())


def judged(run: Run, settings: LoopSettings) -> Iterator[Judged]:
    """Every call of a run, oldest first; a finding that its result brought stands with the last call of the round."""
    for turn in range(len(run.turns)):
        for at, known in enumerate(_hindsights(run, turn, settings)):
            found = _pending(run, turn, at, settings)
            if known and found[-1].finding is None:
                told = Verdict(found[-1].call, known, Rung.WARN, 1, first=known.count == known.threshold)
                found[-1] = found[-1]._replace(finding=known, verdict=told)
            yield from found


def _hindsights(run: Run, turn: int, settings: LoopSettings) -> Sequence[Finding | None]:
    """What the results of each round of a turn show, oldest first: all of them in one look back."""
    rounds = run.turns[turn]
    if not may_be_among(rounds, settings):
        return [None] * len(rounds)
    return [*Engine(_timeline(run, turn, len(rounds)), settings).hindsights()][::-1]


def _pending(run: Run, turn: int, at: int, settings: LoopSettings) -> list[Judged]:
    """The calls of a round as they are judged when they come."""
    round_ = run.turns[turn][at]
    timeline = _timeline(run, turn, at)
    if is_healthy(timeline, settings):
        return [Judged(turn, at, call) for call in round_.calls]
    engine = Engine(timeline, settings)
    found = {id(call): (call, finding) for call, finding in engine.judge_round(round_.calls)}
    of_round = []
    for call in round_.calls:
        ladder = settings.for_tool(call.full_name).settings.ladder
        suspect = engine.could_fire(call.name)
        held = suspect and would_withhold(timeline, engine.possible(call.name), ladder)
        pair = found.get(id(call))
        verdict = decide(timeline, [pair], ladder)[0] if pair else None
        call.place = verdict.place if verdict else 0
        finding = verdict.finding if verdict else None
        of_round.append(Judged(turn, at, call, finding, verdict, suspect, held))
    return of_round


def _timeline(run: Run, turn: int, before: int) -> Timeline:
    """The rounds of a turn before this one."""
    newest_first = run.turns[turn][:before][::-1]
    return Timeline(newest_first, declares=run.known.__contains__ if run.known is not None else None)
