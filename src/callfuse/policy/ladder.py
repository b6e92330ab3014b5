"""Choose the rung for a finding: finding n of a streak gets rung n or the last rung, a hard finding the last rung.

A cap lowers the rung of a finding. A lowered finding does not count as a step: the streak and the signature stay at
their steps. If a cap lowers any rung of a kind that climbs, no finding of that kind below the hard limit counts as a
step, so that the kind starts with the first rung at the hard limit.

A streak is the run of consecutive rounds with a finding of any kind. A signature keeps its step for the timeline, and
loses it when its outcome changes. Steps come from the ledger. If it has lost them, earlier findings are inferred from
the count, but only for rungs that let a call through, so that a restarted guard still gives the model its chance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from callfuse.detect.registry import KINDS
from callfuse.model import Finding, Timeline, ToolCall
from callfuse.model.calls import lowered_step
from callfuse.model.outcomes import Outcome, same_outcome
from callfuse.model.signature import Signature
from callfuse.policy import explain
from callfuse.policy.rungs import RUNG_NAMES, Ladder, Rung

ALLOW: Final = "allow"
"""The answer of a callback that lets a call pass; True means the same."""
_RUNGS: Final = tuple(map(str, Rung))
_CLIMBING: Final = frozenset([name for name, kind in KINDS.items() if kind.climbs])
"""Kinds whose hard findings climb the ladder step by step."""


class OnLoopError(ValueError):
    """The `on_loop` callback answered with something invalid, or too late.

    The message has no content of the call, so it may be logged.
    """


class Found(Protocol):
    """The attributes of a finding that the ladder reads; also of a foreseen finding."""

    @property
    def kind(self) -> str:
        """The name of the detector's kind."""
        ...

    @property
    def tool(self) -> str:
        """The name of the tool."""
        ...

    @property
    def signature(self) -> Signature:
        """The signature of the call; equal calls have equal signatures."""
        ...

    @property
    def count(self) -> int:
        """The length of the loop so far, including the pending call: in calls, rounds, or laps of a cycle."""
        ...

    @property
    def threshold(self) -> int:
        """The count from which on there is a finding."""
        ...

    @property
    def hard(self) -> bool:
        """Whether the hard limit is reached: then the finding leads to the last rung at once, unless its kind
        climbs."""
        ...

    @property
    def hard_from(self) -> int:
        """The count from which on the finding is hard; 0 means never."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a call of the stretch waits for something external, or acts on a screen."""
        ...

    @property
    def in_answer(self) -> bool:
        """Whether the finding is based on calls of the pending round alone, so that there was no earlier finding."""
        ...


class Foreseen(Found, Protocol):
    """The attributes that the ladder reads of a finding that is only foreseen."""

    @property
    def any_count(self) -> bool:
        """Whether the count is unknown and may be any."""

    @property
    def any_signature(self) -> bool:
        """Whether a call with another signature, which has its own step, may get this finding."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a pending call: its finding, the rung (None lets it pass), its step on the ladder, from 1.

    `first`: the streak reaches this rung for the first time. `lowered`: a cap has lowered the rung, and `step` is the
    unchanged step of the streak, 0 if it has none. `finding_id`: the finding's name in logs, events and feedback; empty
    if it is not needed. `begins`: a streak, which is one loop, begins with this call: neither the round before nor an
    earlier call of its round has a finding.
    """

    call: ToolCall
    finding: Finding
    rung: Rung | None
    step: int
    first: bool = True
    lowered: bool = False
    finding_id: str = field(default="", compare=False)
    begins: bool = field(default=False, compare=False)

    @property
    def kept_step(self) -> int:
        """The step in the form in which the call keeps it (`PastCall.step`)."""
        return lowered_step(self.step) if self.lowered else self.step

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

    def observed(self) -> "Verdict":
        """Return this verdict as only observed, for a call that was delivered anyway; it does not count as a step."""
        return replace(self, rung=Rung.OBSERVE, step=self.step - 1, lowered=True)

    @property
    def description(self) -> str:
        """What was found, for people: the end of a sentence that begins with 'this is'."""
        return explain.seen(self.finding)

    @property
    def suggestion(self) -> str:
        """What could be tried, for people."""
        return explain.suggestion(self.finding)


def rung_of_answer(answer: object) -> Rung | None:
    """Return the rung that a callback's answer names; None for `allow`. True means `allow`, and False means `block`.
    Raises OnLoopError for any other answer."""
    if answer is True or answer == ALLOW:
        return None
    if answer is False:
        return Rung.BLOCK
    if isinstance(answer, str) and (rung := RUNG_NAMES.get(answer)):
        return rung
    allowed = f"None, True, False, {ALLOW!r} or a rung: {', '.join(_RUNGS)}"
    raise OnLoopError(f"its answer is {type(answer).__name__}; use {allowed}")


def restrict_ladder(
    ladder: Ladder, *, may_change: bool, may_ask: bool, may_escalate: bool = True, may_withhold: bool = True
) -> Ladder:
    """Return the ladder without the rungs that this exchange forbids.

    If the request must not be changed (it is signed), a warning becomes an observation. If no model can be asked again,
    or there is no other model to escalate to, a rung that needs this becomes the next rung. If nothing can replace a
    withheld call (`may_withhold` is False), every rung becomes an observation.
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


class DetectorCaps(Protocol):
    """The settings of single kinds that the ladder reads."""

    def cap(self, kind: str, *, hard: bool, waits: bool) -> Rung:
        """Return the hardest rung for a finding of this kind."""
        ...


@dataclass(frozen=True, slots=True)
class CappedLadder:
    """A ladder for a finding: its rungs, and the rungs under the kind's caps: `below` the hard limit, and `now`."""

    rungs: Ladder
    below: Ladder
    now: Ladder


def capped(
    ladder: Ladder, found: Found, caps: DetectorCaps, permits: Callable[[Rung], bool] = lambda _: True
) -> CappedLadder:
    """Return the ladder for a finding under the caps of its kind. `permits`: whether the exchange permits a rung."""
    below = lower(ladder, caps.cap(found.kind, hard=False, waits=found.waits), permits)
    now = lower(ladder, caps.cap(found.kind, hard=True, waits=found.waits), permits) if found.hard else below
    return CappedLadder(ladder, below, now)


def lower(ladder: Ladder, cap: Rung, permits: Callable[[Rung], bool] = lambda _: True) -> Ladder:
    """Return the ladder with each rung harder than the cap replaced by the hardest permitted rung within the cap."""
    if all(rung.hardness <= cap.hardness for rung in ladder):
        return ladder
    milder_ones = [rung for rung in Rung if rung.hardness <= cap.hardness and permits(rung)]
    least = milder_ones[-1] if milder_ones else Rung.OBSERVE
    return tuple([rung if rung.hardness <= cap.hardness else least for rung in ladder])


def decide(timeline: Timeline, call: ToolCall, finding: Finding, ladder: CappedLadder) -> Verdict:
    """Return the verdict on a finding of a call in the pending round."""
    streak, was_lowered = timeline.memoized(_streak, None)
    step = next_step(timeline, finding, ladder, streak)
    rung = ladder.now[step - 1]
    if rung is not ladder.rungs[step - 1] or (not finding.hard and _begins_at_hard(finding, ladder)):
        return Verdict(call, finding, rung, streak, first=not was_lowered, lowered=True)
    return Verdict(call, finding, rung, step, first=step > streak)


def decide_before(finding: Finding, ladder: CappedLadder) -> Verdict:
    """Return the verdict on a finding in a request, before the model is asked. There is no call to withhold, so a rung
    that asks again becomes a warning. The step depends on the finding's count alone."""
    beyond, last = finding.count - finding.threshold, len(ladder.now)
    rung = ladder.now[min(beyond, last - 1)]
    call = ToolCall("", finding.tool, "", signature=finding.signature)
    return Verdict(call, finding, Rung.WARN if rung.asks else rung, min(beyond + 1, last), first=beyond < last)


def would_withhold(timeline: Timeline, finding: Foreseen, ladder: CappedLadder) -> bool:
    """Whether the finding, if it came now, could withhold a call. The finding is that of the strongest call; another
    call may have a lower count, whose rung may be harder."""
    rungs = ladder.now
    if finding.any_count:
        return any(rung.withholds for rung in rungs)
    streak, _ = timeline.memoized(_streak, None)
    if not finding.any_signature:
        lowest, end = max(streak, _implied_step(finding, ladder)), next_step(timeline, finding, ladder, streak)
    elif _takes_last(finding):
        lowest, end = streak, len(rungs)
    else:
        lowest, end = streak, 1 + max(streak, timeline.memoized(_highest_step, None), _implied_step(finding, ladder))
    return any(rung.withholds for rung in rungs[min(lowest, len(rungs) - 1) : end])


def next_step(timeline: Timeline, finding: Found, ladder: CappedLadder, streak: int) -> int:
    """Return the step on the ladder, from 1, of a finding whose streak has reached the step `streak`."""
    last = len(ladder.rungs)
    if _takes_last(finding):
        return last
    before = max(streak, timeline.memoized(_signature_step, None, finding.signature), _implied_step(finding, ladder))
    return min(before + 1, last)


def would_have_warned(finding: Finding, ladder: CappedLadder) -> bool:
    """Whether the history alone shows that this executed call got a warning.

    True if the ladder under the kind's caps has a rung that warns, and the finding's own rung warns or withholds.
    """
    last = len(ladder.now)
    step = last if _takes_last(finding) else min(_implied_step(finding, ladder) + 1, last)
    rung = ladder.now[step - 1]
    return (rung.warns or rung.withholds) and any(one.warns for one in ladder.now)


def _takes_last(finding: Found) -> bool:
    """Whether a finding leads to the last rung at once."""
    return finding.hard and finding.kind not in _CLIMBING


def _begins_at_hard(finding: Found, ladder: CappedLadder) -> bool:
    """Whether the finding's kind climbs the ladder only from its hard limit on."""
    return finding.kind in _CLIMBING and ladder.below != ladder.rungs


def _streak(timeline: Timeline, _: None) -> tuple[int, bool]:
    """Return the highest step in the newest consecutive rounds with a finding, and whether a cap lowered any step."""
    step, was_lowered = 0, False
    for round_ in timeline:
        steps = [call.step for call in round_.calls]
        if not any(steps):
            break
        step = max([step, *[call.stands for call in round_.calls]])
        was_lowered |= min(steps) < 0
    return step, was_lowered


def _highest_step(timeline: Timeline, _: None) -> int:
    """Return the highest step of any call."""
    return max((call.step for round_ in timeline for call in round_.calls), default=0)


def _signature_step(timeline: Timeline, _: None, signature: Signature) -> int:
    """Return the highest step of this signature since its outcome last changed."""
    step = 0
    outcome: Outcome | None = None
    for round_ in timeline:
        mine = round_.find(signature)
        if mine is None:
            continue
        if not mine.withheld and (came := mine.outcome) is not None:
            if not same_outcome(outcome, came):
                break
            outcome = came
        step = max(step, mine.step)
    return step


def _implied_step(finding: Found, ladder: CappedLadder) -> int:
    """Return how many earlier findings the count implies: at most one for each leading rung that lets the call through,
    and none for rungs that a cap has lowered."""
    if finding.in_answer:
        return 0
    since = max(0, finding.count - finding.hard_from) if finding.hard and finding.hard_from else 0
    before = 0
    if not _begins_at_hard(finding, ladder):
        before = min(finding.count - since - finding.threshold, _open_rungs(ladder.rungs, ladder.below))
    return min(before + since, _open_rungs(ladder.rungs, ladder.now)) if since else before


def _open_rungs(rungs: Ladder, capped_rungs: Ladder) -> int:
    """Count the leading rungs that let a call through and are not lowered by a cap."""
    count = 0
    for rung, taken in zip(rungs, capped_rungs, strict=True):
        if rung.withholds or taken is not rung:
            break
        count += 1
    return count
