"""Judges the next round of a conversation: runs the detectors and applies the policy.

The middleware, the in-process detector and replays all use this class to judge. A judge has the timeline and what the
exchange permits: changing the request (not if it is signed), asking the model again, asking another model.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from callfuse.detect import Engine
from callfuse.detect.comparison import Comparison
from callfuse.detect.detector import Hit
from callfuse.detect.kind import REASONING
from callfuse.detect.known_calls import KnownCalls, read_calls
from callfuse.detect.runaway import Runaway
from callfuse.detect.siblings import Room, Siblings
from callfuse.detect.spending import Near, SpentTokens
from callfuse.dialects.ask_again import AskOptions
from callfuse.guard.record import past_round
from callfuse.model import ANY_TOOL, Finding, Round, Timeline, ToolCall
from callfuse.model.finding import Stretch
from callfuse.model.signature import Signature
from callfuse.policy import texts
from callfuse.policy.allowed import Allowance
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.ladder import (
    CappedLadder,
    Found,
    OnLoopError,
    Verdict,
    capped,
    decide,
    decide_before,
    lower,
    restrict_ladder,
    would_withhold,
)
from callfuse.policy.rungs import Ladder, Rung
from callfuse.policy.said import verdict_on_growing_text, verdict_on_text
from callfuse.policy.settings import NO_OTHER_MODEL, LoopSettings


class Permissions(NamedTuple):
    """What an exchange permits, and which calls a person allows in its lane; the fields are arguments of `Judge`."""

    may_change: bool
    may_ask: bool
    may_withhold: bool
    hold_all: bool
    allowed: Sequence[Allowance]

    def passes_tool(self, name: str) -> bool:
        """Whether a person allows every call of a tool."""
        return any(one.tool == name and not one.signature for one in self.allowed)


class Judge:
    """Returns findings and verdicts for the round that follows a timeline.

    `refused`: signatures already withheld in this exchange; a new call beside them no longer clears them. `may_change`,
    `may_ask`, `may_withhold`: what the exchange permits. `hold_all`: hold every call that could have a finding, because
    a callback may withhold it. `allowed`: the calls that a person allows: they have findings, but no rung. `new_id`
    creates the id of each finding that gets a verdict; None: findings have no ids.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: LoopSettings,
        *,
        model: str = "",
        refused: Collection[Signature] = (),
        may_change: bool = True,
        may_ask: bool = True,
        may_withhold: bool = True,
        hold_all: bool = False,
        allowed: Sequence[Allowance] = (),
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.timeline = timeline
        self.settings = settings
        self.model = model
        self._permits = Permissions(may_change, may_ask, may_withhold, hold_all, allowed)
        self._new_id = new_id
        self._refused = set(refused)
        self._begin_round()

    def _begin_round(self) -> None:
        self._engine = Engine(self.timeline, self.settings)
        self._must_hold: dict[str, bool] = {}
        self._held_names: list[str] | None = None
        self._comparable: dict[str, KnownCalls | None] = {}
        self._acting: dict[tuple[str, Hit], bool] = {}

    @property
    def any_finding(self) -> bool:
        """Whether any call at all could have a finding in the next round."""
        return self._engine.can_fire and next(self._engine.suspects(), None) is not None

    @property
    def any_hold(self) -> bool:
        """Whether any call could be withheld."""
        return self.must_hold("")

    @property
    def room(self) -> Room:
        """How many calls an answer may have before one of them could have a finding because of the others."""
        return self._engine.room

    @property
    def may_withhold_any(self) -> bool:
        """Whether a finding of any kind could keep a call from the client."""
        return self._permits.may_withhold and (self._permits.hold_all or self.settings.blocks)

    def apply_ignored_arguments(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """Return the calls to be compared without their ignored arguments; call it before signatures are computed."""
        return apply_ignored_arguments(calls, self.settings)

    def could_fire(self, name: str) -> bool:
        """Whether a call of this tool could have a finding, whatever its arguments."""
        return self._engine.can_fire and self._engine.could_fire(name)

    def must_hold(self, name: str, namespace: str = "") -> bool:
        """Whether a call of this tool could be withheld, so that its frames must wait; an empty name may be any tool.

        Looks at the name with its namespace, which may have its own settings, and at the bare name, because earlier
        rounds may lack namespaces.
        """
        if name and namespace and self.must_hold(f"{namespace}.{name}"):
            return True
        known = self._must_hold.get(name)
        if known is None:
            known = self._may_be_withheld(name) if name else any(map(self.must_hold, self._engine.suspects()))
            self._must_hold[name] = known
        return known

    def _may_be_withheld(self, name: str) -> bool:
        engine = self._engine
        if self._permits.allowed and self._permits.passes_tool(name):
            return False
        return engine.can_fire and any(self._permits.hold_all or self._acts(name, hit) for hit in engine.possible(name))

    def must_hold_beginning(self, beginning: str) -> bool:
        """Whether a known tool whose name starts with `beginning` must be held: `must_hold` for an incomplete name."""
        if self._held_names is None:
            self._held_names = sorted(filter(self.must_hold, self._engine.suspects()))
        at = bisect_left(self._held_names, beginning)
        return at < len(self._held_names) and self._held_names[at].startswith(beginning)

    def _acts(self, name: str, hit: Hit) -> bool:
        """Whether a hit on a call of this tool would withhold the call; computed once."""
        known = self._acting.get((name, hit))
        if known is None:
            known = self._acting[name, hit] = would_withhold(self.timeline, hit, self.ladder(name, hit))
        return known

    def comparison(self, name: str, namespace: str = "") -> Comparison | None:
        """Return a comparison of the growing arguments of a held call with every call that could be withheld. None if
        only the complete call can be compared."""
        full_name = f"{namespace}.{name}" if namespace else name
        if full_name not in self._comparable:
            calls = self._must_equal(full_name)
            if namespace and self._must_equal(name) is None:  # some detectors use the bare name
                calls = None
            ignore = self.settings.for_tool(full_name).ignore
            self._comparable[full_name] = read_calls(calls, ignore) if calls else None
        known = self._comparable[full_name]
        return Comparison(known) if known else None

    def _must_equal(self, name: str) -> list[ToolCall] | None:
        """Return the calls that a call of this tool is compared with: only an equal one is withheld. None if
        unknown."""
        return self._engine.must_equal(name, lambda hit: self._permits.hold_all or self._acts(name, hit))

    def must_hold_beside(self, name: str, namespace: str, siblings: Siblings) -> bool:
        """Whether a call of this tool could be withheld because of its round's calls so far; empty name: any tool."""
        names = (f"{namespace}.{name}", name) if namespace and name else (name or ANY_TOOL,)
        return any(self._must_hold_beside(one, siblings) for one in names)

    def must_hold_beginning_beside(self, beginning: str, siblings: Siblings) -> bool:
        """Whether a tool that the round has already called, and whose name starts with `beginning`, must be held."""
        return any(self._must_hold_beside(name, siblings) for name in siblings.tools(beginning))

    def _must_hold_beside(self, name: str, siblings: Siblings) -> bool:
        return not self._permits.passes_tool(name) and any(
            self._permits.hold_all or would_withhold(self.timeline, hit, self.ladder(name, hit))
            for hit in self._engine.possible_beside(name, siblings)
        )

    def finding(self, call: ToolCall, *, news: bool, siblings: Siblings | None = None) -> Finding | None:
        """Return the finding for one call of the pending round, or None. `news`: the round also has a new call;
        `siblings`: its other calls."""
        return self._engine.judge(call, self._refused, news=news, siblings=siblings)

    def cuts(self, call: ToolCall, finding: Finding) -> bool:
        """Whether so many calls of an answer would be withheld that it need not be read to its end."""
        return finding.in_answer and finding.hard and self._withholds(call, finding)

    def stops(self, call: ToolCall) -> bool:
        """Whether a finding in an incomplete call would withhold the call. While arguments are incomplete, the only
        finding based on them is that they run away."""
        finding = self.finding(call, news=False)
        return finding is not None and self._withholds(call, finding)

    def _withholds(self, call: ToolCall, finding: Finding) -> bool:
        return self._decide(call, finding).withholds

    def _decide(self, call: ToolCall, finding: Finding) -> Verdict:
        verdict = decide(self.timeline, call, finding, self.ladder(call.full_name, finding))
        return self._unless_allowed(verdict)

    def _unless_allowed(self, verdict: Verdict) -> Verdict:
        """Return the verdict, without a rung if a person allows the call."""
        allowed = self._permits.allowed
        return replace(verdict, rung=None) if any(one.passes(verdict.call) for one in allowed) else verdict

    def ends_round(self, finding: Finding) -> bool:
        """Whether the calls after the one with this finding are not judged, but get the same treatment."""
        return self._engine.ends_round(finding)

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call does not occur in the timeline."""
        return self._engine.is_news(call)

    def verdicts(self, calls: Sequence[ToolCall]) -> list[Verdict]:
        """Return the verdicts for a complete round, in order of its calls; calls without a finding have none."""
        found = self._engine.judge_round(calls, self._refused)
        begins = bool(found) and not self._has_finding(0) and next(self._engine.hindsights(), None) is None
        return [
            self._named(self._decide(call, finding), begins=begins and at == 0)
            for at, (call, finding) in enumerate(found)
        ]

    def before(self, finding: Finding) -> Verdict:
        """Return the verdict on a finding in the request itself, before the model is asked."""
        verdict = decide_before(finding, self.ladder(finding.tool, finding))
        return self._named(verdict, begins=finding.count == finding.threshold)

    def cut_off_verdicts(self, calls: Iterable[ToolCall]) -> list[Verdict]:
        """Return verdicts on calls that a limit has cut off. None of them withholds: clients do not run such calls."""
        found = [(call, finding) for call in calls if (finding := self._engine.judge_cut_off(call))]
        decided = [decide(self.timeline, call, one, self.ladder(call.full_name, one)) for call, one in found]
        return [self._named(one.observed() if one.withholds else one) for one in decided]

    def _has_finding(self, at: int, most: int = 1) -> bool:
        """Whether any of `most` rounds, from number `at` on, had a finding when its calls came."""
        rounds = self._engine.past.rounds[at : at + most]
        return any(call.step for round_ in rounds for call in round_.calls)

    def _named(self, verdict: Verdict, *, begins: bool = False) -> Verdict:
        """Return the verdict with an id for its finding. `begins`: the finding begins a streak."""
        new_id = "" if self._new_id is None else self._new_id()
        return replace(verdict, finding_id=new_id, begins=begins) if begins or new_id else verdict

    def hindsight(self) -> Verdict | None:
        """Return the verdict on the newest round if its results have a loop: at most a warning, as calls have run."""
        return next(self.hindsights(), None) if self._engine.may_find_in_newest else None

    def hindsights(self) -> Iterator[Verdict | None]:
        """Yield what `hindsight` returns, for each round as if it were the newest; newest first."""
        findings = pairwise(chain(self._engine.hindsights(), (None,)))
        for at, (round_, (finding, before)) in enumerate(zip(self._engine.past.rounds, findings, strict=True)):
            is_first = finding is not None and (before is None or before.kind != finding.kind)
            begins = is_first and before is None and not self._has_finding(at, 2)
            yield self._warning(round_, finding, first=is_first, begins=begins) if finding is not None else None

    def _warning(self, round_: Round, finding: Finding, *, first: bool, begins: bool) -> Verdict:
        call = next(one.call for one in round_.calls if one.signature == finding.signature)
        return self._warning_of(call, finding, first=first, begins=begins)

    def text_verdict(self, part: str, found: Runaway) -> Verdict:
        """Return the verdict on a text, or reasoning, that runs away while it grows."""
        may_change = self._permits.may_change
        if part == REASONING and not may_change:  # cut reasoning must be removed from later requests
            return self._named(verdict_on_text(part, found, self.settings, may_change=may_change), begins=True)
        return self._named(verdict_on_growing_text(part, found, self.settings, self._usable), begins=True)

    def near_budget(self, call: ToolCall, near: Near) -> Verdict:
        """Return the verdict on an executed call when a limit of the budget is near: at most a warning."""
        finding = Finding(
            SpentTokens.kind.name,
            call.name,
            call.signature,
            near.spent,
            near.limit,
            self.settings.ttl_seconds,
            hard=False,
            ends_on_news=False,
            stretch=Stretch(unit=near.label),
        )
        return self._warning_of(call, finding, first=True)

    def _warning_of(self, call: ToolCall, finding: Finding, *, first: bool, begins: bool = False) -> Verdict:
        own = self.settings.for_tool(call.full_name).settings
        rung = Rung.OBSERVE if own.observes else Rung.WARN
        (rung,) = self._usable(lower((rung,), own.detectors.cap(finding.kind, hard=finding.hard, waits=finding.waits)))
        verdict = self._unless_allowed(Verdict(call, finding, rung, 0, first=first))
        return self._named(verdict, begins=begins)

    def begin_next_round(self, verdicts: Sequence[Verdict]) -> None:
        """Append a round whose calls were all withheld by these verdicts, and judge the next answer from now on."""
        calls = [verdict.call for verdict in verdicts if not verdict.finding.stretch.part]
        if not calls:  # there is no call if a text was cut off
            return
        self._refused.update([call.signature for call in calls])
        self.timeline = self.timeline.after(past_round(calls, verdicts))
        self._begin_round()

    @property
    def other_model(self) -> str:
        """The model of the rung `escalate`; empty if none is configured."""
        return self.settings.escalate_model or ""

    def allowed(self, rung: Rung) -> Rung:
        """Return the rung that a callback asked for, or the rung that this exchange permits instead. Raises OnLoopError
        if the settings lack something that the rung needs."""
        if rung.other_model and not self.other_model:
            raise OnLoopError(NO_OTHER_MODEL)
        return self._usable((rung,))[0]

    def ladder(self, tool: str, found: Found) -> CappedLadder:
        """Return the rungs that this exchange permits for a tool, lowered by the caps of the finding's kind."""
        own = self.settings.for_tool(tool).settings
        return capped(self._usable(own.ladder), found, own.detectors, lambda rung: self._usable((rung,)) == (rung,))

    def _usable(self, ladder: Ladder) -> Ladder:
        return restrict_ladder(
            ladder,
            may_change=self._permits.may_change,
            may_ask=self._permits.may_ask,
            may_escalate=self.other_model not in ("", self.model),
            may_withhold=self._permits.may_withhold,
        )

    def ask_options(self, rung: Rung) -> AskOptions:
        """Return how a rung that asks again asks the model."""
        return AskOptions(rung.text_only, self.other_model if rung.other_model else "")

    def next_rung(self, verdict: Verdict) -> Verdict:
        """Return the verdict with the next rung that withholds, after its own has failed; the last rung is a block."""
        ladder = self.ladder(verdict.call.full_name, verdict.finding).now
        for step in () if verdict.lowered else range(verdict.step + 1, len(ladder) + 1):
            if ladder[step - 1].withholds:
                return replace(verdict, rung=ladder[step - 1], step=step, first=True)
        return self.to_block(verdict)

    def to_block(self, verdict: Verdict) -> Verdict:
        """Return the verdict with the rung `block`."""
        last = len(self.ladder(verdict.call.full_name, verdict.finding).now)
        return replace(verdict, rung=Rung.BLOCK, step=last, lowered=False)

    def block_text(self, verdict: Verdict) -> str:
        """Return the text that the client gets instead of the call."""
        return texts.block(verdict, self.settings, self.model)

    def warning(self, verdict: Verdict) -> str:
        """Return the text that is appended to the result of the call, for the model."""
        return texts.warning(verdict.call, verdict.finding, self.settings, self.model)

    def guidance(self, verdict: Verdict, *, asking: bool = False) -> str:
        """Return the text that the model gets as a result; `asking`: the rung asks the model again with this text."""
        return texts.guidance(verdict, self.settings, self.model, asking=asking)
