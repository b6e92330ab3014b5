"""From findings to rungs: the n-th finding of a streak takes rung n, the last repeats, a hard one takes the last.

A streak is the run of consecutive rounds with a finding of any kind. A signature keeps its step for the timeline, and
falls back when its outcome changes. Steps come from the ledger; where it has lost them, findings that must have come
before count for the rungs that let a call through, so that a restarted guard still gives the model its chance.
"""

from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Protocol

from callfuse.model import Finding, Timeline, ToolCall
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature
from callfuse.policy import explain
from callfuse.policy.rungs import Ladder, Rung

ALLOW: Final = "allow"
"""What a callback answers to let a call go."""
_RUNGS: Final = tuple(map(str, Rung))


class OnLoopError(ValueError):
    """The `on_loop` callback answered with something invalid, or too late.

    The message has no content of the call, so it may be logged.
    """


class Found(Protocol):
    """What the ladder asks of a finding, or of one that is only foreseen."""

    @property
    def tool(self) -> str:
        """The name of the tool."""
        ...

    @property
    def signature(self) -> Signature:
        """What makes the call the same as another."""
        ...

    @property
    def count(self) -> int:
        """Calls, rounds or laps so far, the pending one included."""
        ...

    @property
    def threshold(self) -> int:
        """The count from which on it is a finding."""
        ...

    @property
    def hard(self) -> bool:
        """Whether it takes the last rung at once."""
        ...

    @property
    def in_answer(self) -> bool:
        """Whether it rests on calls of the pending round alone, so that no finding can have come before."""
        ...


class Foreseen(Found, Protocol):
    """What the ladder asks of a finding that is only foreseen."""

    @property
    def any_count(self) -> bool:
        """Whether its count may be any."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done about a pending call: its finding, the rung (None lets it go), its step on the ladder, from 1.

    `first` says whether the streak takes this rung for the first time.
    """

    call: ToolCall
    finding: Finding
    rung: Rung | None
    step: int
    first: bool = True

    @property
    def withholds(self) -> bool:
        """Whether the call is kept from the client."""
        return self.rung is not None and self.rung.withholds

    @property
    def warns(self) -> bool:
        """Whether the call's result carries a warning."""
        return self.rung is not None and self.rung.warns

    @property
    def blocks(self) -> bool:
        """Whether the call is withheld for good."""
        return self.rung is not None and self.rung.blocks

    @property
    def description(self) -> str:
        """What was found, for people: the end of a sentence that begins with 'this is'."""
        return explain.seen(self.finding)

    @property
    def suggestion(self) -> str:
        """What could be tried, for people."""
        return explain.suggestion(self.finding)


def rung_of_answer(answer: object) -> Rung | None:
    """The rung that a callback's answer names; None for `allow`. Raises OnLoopError for any other."""
    if answer == ALLOW:
        return None
    if isinstance(answer, str) and answer in _RUNGS:
        return Rung(answer)
    raise OnLoopError(f"its answer is {type(answer).__name__}; use None, {ALLOW!r} or a rung: {', '.join(_RUNGS)}")


def restrict_ladder(
    ladder: Ladder, *, may_change: bool, may_ask: bool, may_escalate: bool = True, may_withhold: bool = True
) -> Ladder:
    """The ladder without what this exchange forbids.

    Where the request must not be changed (it is signed), a warning is only observed; where no model can be asked
    again, or there is no other to escalate to, such a rung becomes the one after it. Where a call that is withheld
    could never be made good for, all is only observed.
    """
    if not may_withhold:
        return (Rung.OBSERVE,) * len(ladder)
    rungs: list[Rung] = []
    after = Rung.BLOCK
    for rung in reversed(ladder):
        may = may_ask and may_change and (may_escalate or not rung.other_model)
        if may or not rung.asks:
            after = Rung.OBSERVE if rung.warns and not may_change else rung
        rungs.append(after)
    return tuple(reversed(rungs))


def decide(timeline: Timeline, call: ToolCall, finding: Finding, ladder: Ladder) -> Verdict:
    """The verdict for the finding of a call of the pending round."""
    streak = timeline.memoized(_streak_step, None)
    step = next_step(timeline, finding, ladder, streak)
    return Verdict(call, finding, ladder[step - 1], step, first=step > streak)


def would_withhold(timeline: Timeline, finding: Foreseen, ladder: Ladder) -> bool:
    """Whether the finding, were it made now, would keep a call from the client. It is that of the strongest call; the
    signature of another one may stand on a lower step, whose rung may be harder."""
    if finding.any_count:
        return any(rung.withholds for rung in ladder)
    streak = timeline.memoized(_streak_step, None)
    lowest = min(max(streak, _implied_step(finding, ladder)), len(ladder) - 1)
    return any(rung.withholds for rung in ladder[lowest : next_step(timeline, finding, ladder, streak)])


def would_withhold_beside(timeline: Timeline, finding: Foreseen, ladder: Ladder) -> bool:
    """As `would_withhold`, for a finding that is as high as that of any call of its tool may be in this round: the
    signature may be one that stands on any step."""
    lowest = min(timeline.memoized(_streak_step, None), len(ladder) - 1)
    highest = (
        len(ladder) if finding.hard else max(timeline.memoized(_highest_step, None), _implied_step(finding, ladder))
    )
    return any(rung.withholds for rung in ladder[lowest : highest + 1])


def next_step(timeline: Timeline, finding: Found, ladder: Ladder, streak: int) -> int:
    """The step on the ladder, from 1, of a finding whose streak has reached the step `streak`."""
    if finding.hard:
        return len(ladder)
    before = max(streak, _signature_step(timeline, finding), _implied_step(finding, ladder))
    return min(before + 1, len(ladder))


def would_have_warned(finding: Finding, ladder: Ladder) -> bool:
    """Whether the history alone shows that this executed call got a warning.

    True if the ladder has a rung that warns, and the finding's step does not only observe. `ladder` is the one for
    findings of this kind (`cap`).
    """
    step = len(ladder) if finding.hard else min(_implied_step(finding, ladder) + 1, len(ladder))
    rung = ladder[step - 1]
    return (rung.warns or rung.withholds) and any(one.warns for one in ladder)


def _streak_step(timeline: Timeline, _: None) -> int:
    """The highest step in the consecutive rounds with a finding up to now."""
    step = 0
    for round_ in timeline:
        here = max([call.step for call in round_.calls])
        if not here:
            break
        step = max(step, here)
    return step


def _highest_step(timeline: Timeline, _: None) -> int:
    """The highest step of any call."""
    return max((call.step for round_ in timeline for call in round_.calls), default=0)


def _signature_step(timeline: Timeline, finding: Found) -> int:
    """The highest step of this signature since its outcome last changed."""
    step = 0
    outcome: Outcome | None = None
    for round_ in timeline:
        mine = round_.find(finding.signature)
        if mine is None:
            continue
        if not mine.withheld:
            if not same_outcome(outcome, mine.outcome):
                break
            outcome = mine.outcome or outcome
        step = max(step, mine.step)
    return step


def _implied_step(finding: Found, ladder: Ladder) -> int:
    """Findings that must have come before, judging by the count: at most one for each leading rung that lets the call
    through."""
    if finding.in_answer:
        return 0
    open_rungs = len(list(takewhile(lambda rung: not rung.withholds, ladder)))
    return min(finding.count - finding.threshold, open_rungs)
