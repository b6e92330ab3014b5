"""Runs the detectors: is any call suspect, could this tool's call be a loop, what do they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from callfuse.detect.budget import Budget, ToolBudget
from callfuse.detect.cycle import Cycle
from callfuse.detect.detector import ANY_TOOL, NAMED, Detector, Evidence, Hit, any_call
from callfuse.detect.no_news import NoNews
from callfuse.detect.pollers import have_waited, polls
from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.returning import Returning
from callfuse.detect.same_error import may_end, same_errors
from callfuse.detect.similar import Similar
from callfuse.detect.stagnation import Stagnation
from callfuse.detect.unknown_tool import UnknownTool
from callfuse.detect.weighted_budget import WeightedBudget, weighed
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.model.signature import Signature
from callfuse.policy.settings import ForTool, LoopSettings

DETECTORS: tuple[Detector, ...] = (
    Returning(),
    Repeat(),
    RepeatChanging(),
    Cycle(),
    NoNews(),
    UnknownTool(),
    Similar(),
    Stagnation(),
    Budget(),
    ToolBudget(),
    WeightedBudget(),
)
"""In the order in which they explain themselves best."""


class Limits(NamedTuple):
    """From which count a detector finds something in a tool, soft and hard, and the settings that hold for the tool."""

    soft: int
    hard: int
    settings: LoopSettings


class Engine:
    """The detectors over one timeline, for the pending round of one exchange."""

    def __init__(self, timeline: Timeline, settings: LoopSettings) -> None:
        self.timeline = timeline
        self.settings = _in_force(timeline, settings)
        self.past = timeline.evidence()
        """What of the timeline is evidence."""
        self._returns: bool | None = None
        self._limits_of: dict[str, Mapping[Detector, Limits]] = {}
        self._that_recur: dict[Detector, dict[str, list[ToolCall]]] = {}
        self._could_fire: dict[str, bool] = {}
        self._awake: set[ToolCall] = set()
        self._polling: dict[tuple[Signature, bool], bool] = {}

    def is_healthy(self) -> bool:
        """Whether no call could be found whatever it is. True is sure."""
        return is_healthy(self.timeline, self.settings)

    def suspects(self) -> Iterator[str]:
        """Every tool of which a call could be found to loop, worked out only as far as one looks; none in a healthy
        timeline.

        `ANY_TOOL` is among them where it may be a tool that the timeline does not name.
        """
        if not self.is_healthy():
            seen = set[str]()
            for name in self._names():
                if name not in seen and self.could_fire(name):
                    yield name
                seen.add(name)

    def _names(self) -> Iterator[str]:
        """The tools of the newest round, those of which a call may come again, and any."""
        newest = self.past.at(0)
        for call in newest.calls if newest else ():
            yield call.full_name
        for detector in self._limits(ANY_TOOL):
            yield from self._recurring(detector)
        yield ANY_TOOL

    def could_fire(self, name: str) -> bool:
        """Whether anything could be found in a call of this tool, whatever its arguments."""
        known = self._could_fire.get(name)
        if known is None:
            known = self._could_fire[name] = next(self.possible(name), None) is not None
        return known

    def possible(self, name: str) -> Iterator[Hit]:
        """What could be found in a call of this tool, whatever its arguments; worked out only as far as one looks."""
        if not name:
            return
        for detector in self._limits(ANY_TOOL):
            if detector.of_any_tool:
                continue  # asked below, of any call
            for call in self._recurring(detector).get(name, ()):
                own = self._limits(call.full_name).get(detector)
                yield from self._hits(call, {detector: own} if own else {})
        if name == ANY_TOOL or self.could_fire(ANY_TOOL):
            of_any = {one: own for one, own in self._limits(name).items() if one.of_any_tool}
            yield from self._hits(any_call(name), of_any)

    def _recurring(self, detector: Detector) -> dict[str, list[ToolCall]]:
        """By their tools the calls that may come again in a loop of this kind; by bare names, too, where tools have
        namespaces."""
        known = self._that_recur.get(detector)
        if known is None:
            known = self._that_recur[detector] = {}
            for call in detector.recurring(self.past, self.settings):
                if call.namespace:
                    known.setdefault(call.full_name, []).append(call)
                known.setdefault(call.name, []).append(call)
        return known

    def judge(self, call: ToolCall, *, news: bool = False) -> Finding | None:
        """The hardest finding for one pending call as if it came alone, or beside a new one; it names every kind that
        hit."""
        return self._hardest([hit for hit in self._hits_of(call) if not (news and hit.detector.ends_on_news)])

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is not among those of the window."""
        return bool(call.name) and not self.past.knows(call.signature, self.settings.window)

    def judge_round(
        self, calls: Sequence[ToolCall], refused: Collection[Signature] = ()
    ) -> list[tuple[ToolCall, Finding]]:
        """What is found in a complete round. No news frees the `refused`: they have had their chance."""
        if not refused and self.is_healthy():
            return []
        hits = [(call, of_call) for call in calls if (of_call := self._hits_of(call))]
        is_open = True in [hit.detector.ends_on_news for _, of_call in hits for hit in of_call]
        news = is_open and True in map(self.is_news, calls)
        signatures = {call.signature for call in calls if call.name}
        judged = []
        for call, of_call in hits:
            found = [hit for hit in of_call if hit.evidence.whole_round in (None, signatures)]
            if news and call.signature not in refused:
                found = [hit for hit in found if not hit.detector.ends_on_news]
            if finding := self._hardest(found):
                judged.append((call, finding))
        return judged

    def judge_beside(self, call: ToolCall, refused: Collection[Signature], *, news: bool) -> Finding | None:
        """What is found in a call of a round that has, so far, brought a new call or not."""
        return self.judge(call, news=news and call.signature not in refused)

    def hindsight(self) -> Finding | None:
        """What only the newest round's results show: the same error again. Judged once they are known."""
        return next(self.hindsights(), None) if may_end(self.timeline, self.settings) else None

    def hindsights(self) -> Iterator[Finding | None]:
        """As `hindsight`, for each round as if it were the newest, the newest first."""
        for evidence in same_errors(self.timeline, self.settings):
            if evidence is None:
                yield None
            else:
                call = evidence.calls[0]
                soft = self.settings.for_tool(call.full_name).settings.detectors.same_error
                yield self._finding(Kind.SAME_ERROR, call, evidence, soft)

    def found(self, detector: Detector, call: ToolCall) -> Finding | None:
        """What one detector finds in a pending call, as if it came alone."""
        own = _limits_of(detector, self.settings.for_tool(call.full_name))
        return self._hardest([*self._hits(call, {detector: own} if own else {})])

    def _hits_of(self, call: ToolCall) -> list[Hit]:
        """What any detector finds in a call."""
        if not call.name:
            return []
        limits = self._limits(call.full_name)
        if self._could_fire.get(ANY_TOOL) is False:  # it may be true, or not known
            limits = {one: own for one, own in limits.items() if not one.of_any_tool}
        return [*self._hits(call, limits)]

    def _hits(self, call: ToolCall, limits: Mapping[Detector, Limits]) -> Iterator[Hit]:
        """What detectors find in a call from these limits on. Nothing that came of it is looked at."""
        for detector, (soft, hard, settings) in limits.items():
            evidence = detector.evidence(self.past, call, settings)
            if evidence is None or (evidence.count < soft and not evidence.certain):
                continue
            if detector.spares_pollers and self._waits(call, evidence.calls):
                soft, hard = soft * settings.poll_factor, hard * settings.poll_factor
                if evidence.count < soft:
                    continue
            yield Hit(detector, call, evidence, soft, evidence.certain or 0 < hard <= evidence.count)

    def _limits(self, name: str) -> Mapping[Detector, Limits]:
        """Of each detector of which a glance does not tell that it finds nothing in a tool, its limits for that."""
        known = self._limits_of.get(name)
        if known is None:
            if self._returns is None:
                self._returns = _returns(self.timeline, self.settings)
            known = self._limits_of[name] = _limits(self.settings, name, returns=self._returns)
        return known

    def _waits(self, call: ToolCall, stretch: Sequence[ToolCall]) -> bool:
        """Whether a call waits for something by what it is, or one of the stretch before it has waited; stretches share
        calls, and one that did not is asked only once."""
        if not self._awake.issuperset(stretch):
            new = [one for one in stretch if one not in self._awake] if self._awake else stretch
            if have_waited(new, self.settings):
                return True
            self._awake.update(new)
        # A call that the client has dropped does not tell whether it waits.
        key = (call.signature, call.dropped)
        known = self._polling.get(key)
        if known is None:
            known = self._polling[key] = polls(call, self.settings)
        return known

    def _hardest(self, found: Sequence[Hit]) -> Finding | None:
        """The hardest of one call's hits as a finding that names all kinds."""
        if not found:
            return None
        hit = ([one for one in found if one.hard] or found)[0]
        kinds = tuple(dict.fromkeys([one.detector.kind for one in found]))
        return self._finding(
            hit.kind,
            hit.call,
            hit.evidence,
            hit.threshold,
            hard=hit.hard,
            ends_on_news=hit.detector.ends_on_news,
            kinds=kinds if len(kinds) > 1 else (),
        )

    def _finding(
        self,
        kind: Kind,
        call: ToolCall,
        evidence: Evidence,
        threshold: int,
        *,
        hard: bool = False,
        ends_on_news: bool = False,
        kinds: tuple[Kind, ...] = (),
    ) -> Finding:
        newest = evidence.calls[:NAMED]
        return Finding(
            kind=kind,
            tool=call.name,
            signature=call.signature,
            count=evidence.count,
            threshold=threshold,
            window_s=self.settings.for_tool(call.full_name).settings.ttl_seconds,
            hard=hard,
            confidence=evidence.confidence,
            calls=tuple([one.id for one in newest])[::-1],
            previous=self._previous(call, newest),
            ends_on_news=ends_on_news,
            whole_round=evidence.whole_round,
            lap=evidence.lap,
            kinds=kinds,
        )

    def _previous(self, call: ToolCall, stretch: Sequence[ToolCall]) -> str:
        """What the call brought last, or else what came last of all."""
        for one in stretch:
            if one.signature == call.signature and not one.withheld and one.outcome:
                return one.outcome.text
        window = self.past.rounds_of_window(self.settings.reach)
        earlier = (round_.find(call.name, call.signature) for round_ in window)
        for last in chain(earlier, stretch):
            if last and not last.withheld and last.outcome:
                return last.outcome.text
        return ""


def _limits(settings: LoopSettings, name: str, *, returns: bool) -> Mapping[Detector, Limits]:
    """The limits of the detectors that may find something in a tool; `returns`: even of those that want a return."""
    tool = settings.for_tool(name)
    known = tool.limits.get(returns)
    if known is None:
        may_find = [one for one in DETECTORS if returns or not one.wants_return]
        known = tool.limits[returns] = {one: own for one in may_find if (own := _limits_of(one, tool))}
    return known


def _limits_of(detector: Detector, tool: ForTool) -> Limits | None:
    soft, hard = detector.limits(tool)
    return Limits(soft, hard, tool.settings) if soft and tool.settings.enabled else None


def is_healthy(timeline: Timeline, settings: LoopSettings) -> bool:
    """Whether no call could be found whatever it is. True is sure, and what most timelines are at a glance: their
    newest round is new and of known tools."""
    newest = timeline.at(0)
    if newest is None:
        return True
    if settings.no_repeats_after:
        settings = _in_force(timeline, settings)
    if not settings.wants_returns or _returns(timeline, settings):
        return False
    return True not in [timeline.lacks(call.name) for call in newest.calls]


def _returns(timeline: Timeline, settings: LoopSettings) -> bool:
    """Whether a call of the newest round may be one of those before: False is sure, and then it takes more than one
    equal call to make a finding."""
    return timeline.has_blocks or settings.has_twos or timeline.may_return(settings.reach)


def _in_force(timeline: Timeline, settings: LoopSettings) -> LoopSettings:
    """What holds in a timeline of this length."""
    is_late = settings.no_repeats_after and weighed(timeline, settings) > settings.no_repeats_after
    return settings.late if is_late else settings
