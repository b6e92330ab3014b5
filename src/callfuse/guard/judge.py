"""What detectors and policy say of one round to come: the one way in which wire, in-process detector and replay judge.

A judge knows the timeline and what this exchange allows: whether the request may be changed (a signed one may not),
and the model, or another one in its place, be asked again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from callfuse.detect import Engine
from callfuse.dialects.base import Manner
from callfuse.guard.record import past_round
from callfuse.model import Finding, Round, Timeline, ToolCall
from callfuse.model.signature import Signature
from callfuse.policy import texts
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.ladder import OnLoopError, Verdict, decide, usable, would_withhold
from callfuse.policy.rungs import Ladder, Rung, cap
from callfuse.policy.settings import NO_OTHER_MODEL, LoopSettings


class Judge:
    """The findings and verdicts over the round that follows a timeline.

    `refused` are signatures that were withheld and had their chance: no new call beside them frees them. `hold_all`:
    whatever could be found is held, for a callback may withhold it.
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
    ) -> None:
        self.timeline = timeline
        self.settings = settings
        self.model = model
        self._may_change = may_change
        self._may_ask = may_ask
        self._may_withhold = may_withhold
        self._hold_all = hold_all
        self._refused = set(refused)
        self._begin_round()

    def _begin_round(self) -> None:
        self._engine = Engine(self.timeline, self.settings)
        self._must_hold: dict[str, bool] = {}
        self._any_hold: bool | None = None

    @property
    def any_finding(self) -> bool:
        """Whether any call could be found to loop, whatever it is."""
        return self._engine.can_fire and next(self._engine.suspects(), None) is not None

    @property
    def any_hold(self) -> bool:
        """Whether any call could be one that would be withheld; worked out once."""
        if self._any_hold is None:
            self._any_hold = any(map(self.must_hold, self._engine.suspects()))
        return self._any_hold

    def apply_ignored_arguments(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """The calls of an answer, told from others only by the arguments that count under these settings."""
        return apply_ignored_arguments(calls, self.settings)

    def could_fire(self, name: str) -> bool:
        """Whether anything could be found in a call of this tool, whatever its arguments."""
        return self._engine.can_fire and self._engine.could_fire(name)

    def must_hold(self, name: str, namespace: str = "") -> bool:
        """Whether a call of this tool could be a loop that would be withheld; a call without a name may be any.

        With its namespace, under which its own settings hold, and without, as rounds without namespaces have it.
        """
        if not name:
            return self.any_hold
        if namespace and self.must_hold(f"{namespace}.{name}"):
            return True
        known = self._must_hold.get(name)
        if known is None:
            known = self._must_hold[name] = self.could_fire(name) and (self._hold_all or self._would_withhold(name))
        return known

    def _would_withhold(self, name: str) -> bool:
        return any(
            would_withhold(self.timeline, [hit], self.ladder(name, hit.kind)) for hit in self._engine.possible(name)
        )

    def finding(self, call: ToolCall, *, news: bool) -> Finding | None:
        """What is found in a call so far; `news`: a new call has come beside it."""
        return self._engine.judge(call, self._refused, news=news)

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is new to the timeline."""
        return self._engine.is_news(call)

    def verdicts(self, calls: Sequence[ToolCall]) -> list[Verdict]:
        """The verdicts over a complete round."""
        found = self._engine.judge_round(calls, self._refused)
        return [
            verdict
            for call, finding in found
            for verdict in decide(self.timeline, [(call, finding)], self.ladder(call.full_name, finding.kind))
        ]

    def hindsight(self) -> Verdict | None:
        """What is to be told of the newest round, whose results show a loop: a warning at most."""
        return next(self.hindsights(), None)

    def hindsights(self) -> Iterator[Verdict | None]:
        """As `hindsight`, for each round as if it were the newest, the newest first."""
        for round_, finding in zip(self._engine.past.rounds, self._engine.hindsights(), strict=True):
            yield self._warning(round_, finding) if finding is not None else None

    def _warning(self, round_: Round, finding: Finding) -> Verdict:
        call = next(one.call for one in round_.calls if one.signature == finding.signature)
        rung = Rung.OBSERVE if self.settings.for_tool(call.full_name).settings.observes else Rung.WARN
        (rung,) = self._usable(cap((rung,), finding.kind))
        return Verdict(call, finding, rung, 0, first=finding.count == finding.threshold)

    def withheld(self, verdicts: Sequence[Verdict]) -> None:
        """Go on to the next answer of the exchange: these verdicts withheld all calls of the last one."""
        calls = [verdict.call for verdict in verdicts]
        self._refused.update([call.signature for call in calls])
        self.timeline = self.timeline.after(past_round(calls, verdicts))
        self._begin_round()

    @property
    def other_model(self) -> str:
        """The model that `escalate` asks; empty where there is none."""
        return self.settings.escalate_model or ""

    def allowed(self, rung: Rung) -> Rung:
        """A rung that a callback wants, or what this exchange allows in its place. Raises OnLoopError where the
        settings lack what it needs."""
        if rung.other_model and not self.other_model:
            raise OnLoopError(NO_OTHER_MODEL)
        return self._usable((rung,))[0]

    def ladder(self, tool: str, kind: str) -> Ladder:
        """The rungs that this exchange allows for a tool, and for findings of a kind."""
        return self._usable(cap(self.settings.for_tool(tool).settings.ladder, kind))

    def _usable(self, ladder: Ladder) -> Ladder:
        return usable(
            ladder,
            may_change=self._may_change,
            may_ask=self._may_ask,
            may_escalate=self.other_model not in ("", self.model),
            may_withhold=self._may_withhold,
        )

    def manner(self, rung: Rung) -> Manner:
        """How the model is asked again on a rung that asks."""
        return Manner(rung.text_only, self.other_model if rung.other_model else "")

    def next_rung(self, verdict: Verdict) -> Verdict:
        """The verdict with the next rung that withholds, where its own has failed: in the end there is the block."""
        ladder = self.ladder(verdict.call.full_name, verdict.finding.kind)
        for place in range(verdict.place + 1, len(ladder) + 1):
            if ladder[place - 1].withholds:
                return Verdict(verdict.call, verdict.finding, ladder[place - 1], place)
        return self.blocked(verdict)

    def blocked(self, verdict: Verdict) -> Verdict:
        """The verdict with the last word."""
        last = len(self.ladder(verdict.call.full_name, verdict.finding.kind))
        return replace(verdict, rung=Rung.BLOCK, place=last)

    def block_text(self, verdict: Verdict) -> str:
        """What the client reads in place of the call."""
        return texts.block(verdict, self.settings, self.model)

    def warning(self, verdict: Verdict) -> str:
        """What the model reads behind the result of the call."""
        return texts.warning(verdict.call, verdict.finding, self.settings, self.model)

    def guidance(self, verdict: Verdict, *, asking: bool = False) -> str:
        """What the model reads in place of a result; `asking`: it is asked again with it, in the way of the rung."""
        return texts.guidance(verdict, self.settings, self.model, asking=asking)
