"""Runs the detectors: is any call suspect, could this tool's call be a loop, what do they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from callfuse.calls.signature import Signature
from callfuse.detect.budget import Budget, ToolBudget
from callfuse.detect.cycle import LENGTHS, Cycle
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
from callfuse.policy.settings import LoopSettings

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


class Engine:
    """The detectors over one timeline, for the pending round of one exchange."""

    def __init__(self, timeline: Timeline, settings: LoopSettings) -> None:
        self.timeline = timeline
        self.settings = _in_force(timeline, settings)
        self._evidence: Timeline | None = None
        self._that_are_on: _On | None = None
        self._that_recur: dict[str, list[tuple[Detector, ToolCall]]] | None = None
        self._could_fire: dict[str, bool] = {}
        self._hits: dict[tuple[Detector, Signature, bool], Hit | None] = {}
        self._awake: set[ToolCall] = set()
        self._polling: dict[tuple[Signature, bool], bool] = {}

    @property
    def past(self) -> Timeline:
        """What of the timeline is evidence."""
        if self._evidence is None:
            self._evidence = self.timeline.evidence()
        return self._evidence

    def suspects(self) -> Iterator[str]:
        """Every tool of which a call could be found to loop, worked out only as far as one looks; none in a healthy
        timeline.

        `ANY_TOOL` is among them where it may be a tool that the timeline does not name.
        """
        if self.is_healthy():
            return
        newest = self.past.at(0)
        names = dict.fromkeys([call.full_name for call in newest.calls] if newest else [])
        for name in (*(names | dict.fromkeys(self._recurring)), ANY_TOOL):
            if self.could_fire(name):
                yield name

    @property
    def _on(self) -> "_On":
        """The detectors of which a glance does not tell that they find nothing."""
        if self._that_are_on is None:
            self._that_are_on = _that_are_on(self.settings, returns=_returns(self.timeline, self.settings))
        return self._that_are_on

    @property
    def _recurring(self) -> dict[str, list[tuple[Detector, ToolCall]]]:
        """By their tools the calls that may come again in a loop, each for a detector; and by bare names, where tools
        have namespaces."""
        if self._that_recur is not None:
            return self._that_recur
        found: dict[str, list[tuple[Detector, ToolCall]]] = {}
        for detector in self._on.of_one_tool:
            for call in detector.recurring(self.past, self.settings):
                found.setdefault(call.full_name, []).append((detector, call))
                if call.namespace:
                    found.setdefault(call.name, []).append((detector, call))
        self._that_recur = found
        return found

    def is_healthy(self) -> bool:
        """Whether no call could be found whatever it is. True is sure."""
        return _is_healthy(self.timeline, self.settings)

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
        for detector, call in self._recurring.get(name, ()):
            if hit := self.hit(detector, call):
                yield hit
        if name == ANY_TOOL or self.could_fire(ANY_TOOL):
            any_of_it = any_call(name)
            for detector in self._on.of_any_tool:
                if hit := self.hit(detector, any_of_it):
                    yield hit

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
        is_open = any(hit.detector.ends_on_news for _, of_call in hits for hit in of_call)
        news = is_open and any(self.is_news(call) for call in calls)
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

    def _hits_of(self, call: ToolCall) -> list[Hit]:
        """What is found in a call by the detectors for which one of its tool may come again, and those of any tool."""
        if not call.name:
            return []
        # By its bare name, under which those of all toolsets stand: the evidence goes by signatures.
        may_find = {detector for detector, _ in self._recurring.get(call.name, ())}
        if self._could_fire.get(ANY_TOOL) is not False:  # known or not
            may_find.update(self._on.of_any_tool)
        return [hit for one in self._on.every if one in may_find and (hit := self.hit(one, call))]

    def found(self, detector: Detector, call: ToolCall) -> Finding | None:
        """What one detector finds in a pending call, as if it came alone."""
        hit = self.hit(detector, call)
        return self._hardest([hit]) if hit else None

    def hit(self, detector: Detector, call: ToolCall) -> Hit | None:
        """As `found`, before it is told. Nothing that came of the call is looked at."""
        # A call that the client has dropped does not tell whether it waits.
        key = (detector, call.signature, call.dropped)
        if key not in self._hits:
            self._hits[key] = self._hit(detector, call)
        return self._hits[key]

    def _hit(self, detector: Detector, call: ToolCall) -> Hit | None:
        tool = self.settings.for_tool(call.full_name)
        limits = tool.limits.get(detector)
        if limits is None:
            limits = tool.limits[detector] = detector.limits(tool)
        soft, hard = limits
        if not soft or not tool.settings.enabled:
            return None
        evidence = detector.evidence(self.past, call, tool.settings)
        if evidence is None or (evidence.count < soft and not evidence.certain):
            return None
        if detector.spares_pollers and (self._have_waited(evidence.calls) or self._polls(call)):
            soft, hard = soft * tool.settings.poll_factor, hard * tool.settings.poll_factor
            if evidence.count < soft:
                return None
        return Hit(detector, call, evidence, soft, evidence.certain or 0 < hard <= evidence.count)

    def _have_waited(self, stretch: Sequence[ToolCall]) -> bool:
        """Whether a call of the stretch waited for something outside; stretches share calls, and one that did
        not is asked only once."""
        new = set(stretch) - self._awake
        if new and have_waited(new, self.settings):
            return True
        self._awake |= new
        return False

    def _polls(self, call: ToolCall) -> bool:
        """Whether a call waits for something by what it is."""
        key = (call.signature, call.dropped)
        known = self._polling.get(key)
        if known is None:
            known = self._polling[key] = polls(call, self.settings)
        return known

    def _hardest(self, found: Sequence[Hit]) -> Finding | None:
        """The hardest of one call's hits as a finding that names all kinds."""
        if not found:
            return None
        hit = max(found, key=lambda one: one.hard)
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
            calls=tuple([one.id for one in reversed(newest)]),
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
        earlier: Iterable[ToolCall | None] = ()
        reach = _reach(self.settings)
        if self.past.knows(call.signature, reach):
            earlier = (round_.find(call.name, call.signature) for round_ in self.past.rounds_of_window(reach))
        outcomes = (one.outcome for one in chain(earlier, stretch) if one and not one.withheld)
        return next((outcome.text for outcome in outcomes if outcome), "")


class _On(NamedTuple):
    """Detectors that have a limit for some tool: all, and by whether it matters which tool is called."""

    every: tuple[Detector, ...]
    of_one_tool: tuple[Detector, ...]
    of_any_tool: tuple[Detector, ...]


def _that_are_on(settings: LoopSettings, *, returns: bool) -> _On:
    """The detectors that may find something under these settings; `returns`: even those that want a return."""
    known = settings.worked_out.detectors
    key = (DETECTORS, returns)
    if key not in known:
        loosest = settings.for_tool(ANY_TOOL)
        on = [one for one in DETECTORS if loosest.settings.enabled and one.limits(loosest)[0]]
        every = [one for one in on if returns or not one.wants_return]
        of_one, of_any = ([one for one in every if one.of_any_tool is which] for which in (False, True))
        known[key] = _On(tuple(every), tuple(of_one), tuple(of_any))
    found: _On = known[key]
    return found


def is_healthy(timeline: Timeline, settings: LoopSettings) -> bool:
    """Whether no call could be found whatever it is. True is sure, and what most timelines are at a glance: their
    newest round is new and of known tools."""
    return _is_healthy(timeline, _in_force(timeline, settings))


def _is_healthy(timeline: Timeline, settings: LoopSettings) -> bool:
    newest = timeline.at(0)
    if newest is None:
        return True
    if not settings.wants_returns or _returns(timeline, settings):
        return False
    return True not in [timeline.lacks(call.name) for call in newest.calls]


def _returns(timeline: Timeline, settings: LoopSettings) -> bool:
    """Whether a call of the newest round may be one of those before: False is sure, and then it takes more than one
    equal call to make a finding."""
    return timeline.has_blocks or settings.has_twos or timeline.may_return(_reach(settings))


def _reach(settings: LoopSettings) -> int:
    """The rounds of which a call may come again in a loop."""
    return max(settings.window, LENGTHS[-1])


def _in_force(timeline: Timeline, settings: LoopSettings) -> LoopSettings:
    """What holds in a timeline of this length."""
    is_late = settings.no_repeats_after and weighed(timeline, settings) > settings.no_repeats_after
    return settings.late if is_late else settings
