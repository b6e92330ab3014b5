"""What detectors and policy say of one exchange, for answers of any form.

A judge knows the timeline and what this exchange allows: whether the request may be changed (a signed one may not),
and the model, or another one in its place, be asked again. `any_finding` says whether any call could be found to loop,
`any_hold` whether it would be withheld.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from callfuse.detect import Engine
from callfuse.dialects.base import Manner
from callfuse.model import Finding, Timeline, ToolCall
from callfuse.model.signature import Signature
from callfuse.policy import texts
from callfuse.policy.ignored import ignoring
from callfuse.policy.ladder import OnLoopError, Verdict, decide, usable, would_withhold
from callfuse.policy.settings import NO_OTHER_MODEL, Ladder, LoopSettings, Rung


class Judge:
    """One exchange's findings and verdicts."""

    def __init__(
        self,
        timeline: Timeline,
        settings: LoopSettings,
        *,
        model: str = "",
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
        self._other_model = settings.escalate_model or ""
        self._hold_all = hold_all
        self._refused: set[Signature] = set()
        self._look()

    def _look(self) -> None:
        """Whether any call could be found to loop, and whether any must be held for it."""
        self._engine = Engine(self.timeline, self.settings)
        self._withhold: dict[str, bool] = {}
        self.any_finding = self.any_hold = False
        for name in self._engine.suspects():
            self.any_finding = True
            if self.must_hold(name):
                self.any_hold = True
                break

    def own(self, calls: Iterable[ToolCall]) -> None:
        """Take calls of an answer as this exchange's settings have it, before anything is asked of them."""
        ignoring(calls, self.settings)

    def must_hold(self, name: str, namespace: str = "") -> bool:
        """Whether a call of this tool could be a loop that would be withheld; a call without a name may be any.

        With its namespace, under which its own settings hold, and without, as rounds without namespaces have it.
        """
        if not name:
            return self.any_hold
        if namespace and self.must_hold(f"{namespace}.{name}"):
            return True
        known = self._withhold.get(name)
        if known is None:
            known = self._engine.could_fire(name) and (
                self._hold_all or would_withhold(self.timeline, self._engine.possible(name), self.ladder(name))
            )
            self._withhold[name] = known
        return known

    def finding(self, call: ToolCall, *, news: bool) -> Finding | None:
        """What is found in a call so far; `news`: a new call has come beside it."""
        return self._engine.judge_beside(call, self._refused, news=news)

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is new to the timeline."""
        return self._engine.is_news(call)

    def verdicts(self, calls: Sequence[ToolCall]) -> list[Verdict]:
        """The verdicts over a complete round."""
        found = self._engine.judge_round(calls, self._refused)
        return [one for call, finding in found for one in self._decided(call, finding)]

    def hindsight(self) -> Verdict | None:
        """What is to be told of the newest round, whose results show a loop: a warning at most."""
        finding = self._engine.hindsight()
        newest = self.timeline.at(0)
        if finding is None or newest is None:
            return None
        call = next(call for call in newest.calls if call.signature == finding.signature)
        observes = self.settings.for_tool(call.full_name).settings.observes
        rung = self.allowed(Rung.OBSERVE if observes else Rung.WARN)
        return Verdict(call, finding, rung, 0, first=finding.count == finding.threshold)

    def _decided(self, call: ToolCall, finding: Finding) -> list[Verdict]:
        return decide(self.timeline, [(call, finding)], self.ladder(call.full_name))

    def withheld(self, calls: Sequence[ToolCall]) -> None:
        """Go on to the next answer of the exchange: these calls were the last one's, and the client has none."""
        self._refused.update(call.signature for call in calls)
        self.timeline = self.timeline.after(tuple(calls))
        self._look()

    def allowed(self, rung: Rung) -> Rung:
        """A rung that a callback wants, or what this exchange allows in its place. Raises OnLoopError where the
        settings lack what it needs."""
        if rung is Rung.ESCALATE and not self._other_model:
            raise OnLoopError(NO_OTHER_MODEL)
        return self._usable((rung,))[0]

    def ladder(self, tool: str) -> Ladder:
        """The rungs that this exchange allows for a tool."""
        return self._usable(self.settings.for_tool(tool).settings.ladder)

    def _usable(self, ladder: Ladder) -> Ladder:
        return usable(
            ladder,
            may_change=self._may_change,
            may_ask=self._may_ask,
            may_escalate=self._other_model not in ("", self.model),
            may_withhold=self._may_withhold,
        )

    def manner(self, rung: Rung) -> Manner:
        """How the model is asked again on a rung that asks."""
        manners = {
            Rung.STEER: Manner(),
            Rung.FORCE_TEXT: Manner(text_only=True),
            Rung.ESCALATE: Manner(model=self._other_model),
        }
        return manners[rung]

    def next_rung(self, verdict: Verdict) -> Verdict:
        """The verdict with the next rung that withholds, where its own has failed: in the end there is the block."""
        ladder = self.ladder(verdict.call.full_name)
        for place in range(verdict.place + 1, len(ladder) + 1):
            if ladder[place - 1].withholds:
                return Verdict(verdict.call, verdict.finding, ladder[place - 1], place)
        return self.blocked(verdict)

    def blocked(self, verdict: Verdict) -> Verdict:
        """The verdict with the last word."""
        return replace(verdict, rung=Rung.BLOCK, place=len(self.ladder(verdict.call.full_name)))

    def block_text(self, verdict: Verdict) -> str:
        """What the client reads in place of the call."""
        return texts.block(verdict, self.settings, self.model)

    def warning(self, verdict: Verdict) -> str:
        """What the model reads behind the result of the call."""
        return texts.warning(verdict.call, verdict.finding, self.settings, self.model)

    def guidance(self, verdict: Verdict, *, text_only: bool = False) -> str:
        """What the model reads in place of a result; `text_only`: it cannot call a tool now."""
        return texts.guidance(verdict, self.settings, self.model, text_only=text_only)
