"""Run the detectors: whether any can fire, whether a tool's call could be a loop, what they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat

from callfuse.detect import facts, registry
from callfuse.detect.detector import (
    ANY_TOOL,
    NAMED,
    Detector,
    Evidence,
    Hindsight,
    Hit,
    RoundDetector,
    any_call,
    on_screen,
)
from callfuse.detect.facts import Finds
from callfuse.detect.known_calls import MOST
from callfuse.detect.pollers import acts_on_screen, have_waited, polls
from callfuse.detect.pre_checks import (
    Limits,
    awake_detectors,
    awake_hindsights,
    enabled_detectors,
    exceeds_room,
    room_of,
    settings_in_force,
)
from callfuse.detect.runaway_call import is_long
from callfuse.detect.settings import Detectors, Settings
from callfuse.detect.siblings import Counted, Room, Siblings
from callfuse.detect.truncated import without_end
from callfuse.model import Finding, PastCall, Timeline, ToolCall
from callfuse.model.finding import Stretch
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.signature import Signature


class Engine:
    """The detectors over one timeline, for the pending round of one exchange."""

    def __init__(self, timeline: Timeline, settings: Settings) -> None:
        self.past = timeline.evidence()
        """The timeline without calls that are not evidence."""
        self.settings = settings_in_force(self.past, settings)
        self.awake = frozenset(awake_detectors(self.past, self.settings, 0))
        """The detectors that could find something in the pending round."""
        self._limits_of: dict[str, Mapping[Detector, Limits]] = {}
        self._counting_of: dict[str, Mapping[RoundDetector, Limits]] = {}
        self._recurring_of: dict[Detector, dict[str, list[ToolCall]] | None] = {}
        self._could_fire: dict[str, bool] = {}
        self._hits: dict[tuple[Detector, ToolCall], Hit | None] = {}
        self._findings: dict[tuple[Hit, tuple[str, ...]], Finding] = {}
        self._never_waited: set[PastCall] = set()
        self._polling: dict[tuple[Signature, bool], bool] = {}

    @property
    def can_fire(self) -> bool:
        """Cheap pre-check: whether any call at all could be a loop. False is certain."""
        return bool(self.awake)

    def suspects(self) -> Iterator[str]:
        """Yield the names of tools whose next call could be a loop, lazily.

        `ANY_TOOL` represents tools that the timeline does not name.
        """
        if not self.can_fire:
            return
        seen = set[str]()
        for name in self._names():
            if name not in seen and self.could_fire(name):
                yield name
            seen.add(name)

    def _names(self) -> Iterator[str]:
        """Candidate tools: those of the newest round, those of recurring calls, and `ANY_TOOL`."""
        newest = self.past.newest
        for call in newest.calls if newest else ():
            yield call.full_name
        for detector in self._limits(ANY_TOOL):
            yield from self._recurring(detector) or ()
        yield ANY_TOOL

    def could_fire(self, name: str) -> bool:
        """Whether a call of this tool could be a loop, whatever its arguments."""
        known = self._could_fire.get(name)
        if known is None:
            known = self._could_fire[name] = next(self.possible(name), None) is not None
        return known

    def possible(self, name: str) -> Iterator[Hit]:
        """Yield the hits that a call of this tool could get, whatever its arguments."""
        if not name:
            return
        for detector in self._limits(ANY_TOOL):
            if detector.needs.finds is Finds.ANY:
                continue  # judged below, once for all calls
            recurring = self._recurring(detector)
            if recurring is None:
                call = any_call(name)
                yield Hit(detector, call, Evidence(1), 1, hard=True, any_count=True)
                continue
            for call in recurring.get(name, ()):
                own = self._limits(call.full_name).get(detector)
                if own is not None and (hit := self._hit_on(call, detector, own)):
                    yield hit
        of_any = [(one, own) for one, own in self._limits(name).items() if one.needs.finds is Finds.ANY]
        if of_any and (name == ANY_TOOL or self.could_fire(ANY_TOOL)):
            call = any_call(name)
            for detector, own in of_any:
                if hit := self._hit_on(call, detector, own):
                    yield hit

    def must_equal(self, name: str, acts: Callable[[Hit], bool]) -> list[ToolCall] | None:
        """Return the calls that matter for this tool: a call equal to none of them has no hit that `acts`.

        `name` is the tool's full name. None: any call may have such a hit, or there are too many calls.
        """
        found = [(one, self._recurring(one)) for one in self.awake if one.needs.finds is Finds.EQUAL]
        equal = {one: by_tool for one, by_tool in found if by_tool is not None}
        if any(acts(hit) for hit in self.possible(name) if hit.detector not in equal):
            return None
        recurring = [call for by_tool in equal.values() for call in by_tool.get(name, ())]
        calls = {call.signature: call for call in recurring if call.full_name == name}
        if len(calls) > MOST:
            return None
        return [call for call in calls.values() if any(map(acts, self._hits_of(call)))]

    def _recurring(self, detector: Detector) -> dict[str, list[ToolCall]] | None:
        """Return the calls of `Detector.recurring`, by tool name (full and bare). None: any call may recur."""
        if detector in self._recurring_of:
            return self._recurring_of[detector]
        calls = detector.recurring(self.past, self.settings)
        by_tool: dict[str, list[ToolCall]] | None = None if calls is None else {}
        for call in calls or ():
            if by_tool is not None:
                if call.namespace:
                    by_tool.setdefault(call.full_name, []).append(call)
                by_tool.setdefault(call.name, []).append(call)
        self._recurring_of[detector] = by_tool
        return by_tool

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is new: it has a name, and the window has no equal call."""
        return bool(call.name) and not self.past.knows(call.signature, self.settings.window)

    def possible_beside(self, name: str, siblings: Siblings) -> Iterator[Hit]:
        """Yield the hits that a call of this tool could get only because of its `siblings`, whatever its arguments.
        `ANY_TOOL`: a call of any tool."""
        if siblings:
            yield from self._hits_beside(any_call(name), siblings.at_most(name))

    def may_find_inside(self, calls: int) -> bool:
        """Cheap pre-check: whether the number of calls in a round could cause a finding that no call has alone. False
        is certain."""
        return exceeds_room(self.past, self.settings, calls)

    @property
    def room(self) -> Room:
        """How many calls the pending round may have before their number could cause a finding."""
        return room_of(self.past, self.settings)

    def judge(
        self,
        call: ToolCall,
        refused: Collection[Signature] = (),
        *,
        news: bool = False,
        siblings: Siblings | None = None,
    ) -> Finding | None:
        """Return the finding of one pending call, judged alone, beside a new call (`news`), or beside these `siblings`;
        see `judge_round`."""
        news = news and call.signature not in refused
        hits = self._hits_of(call, siblings)
        return self._hardest([hit for hit in hits if not (news and hit.ends_on_news)])

    def judge_round(
        self, calls: Sequence[ToolCall], refused: Collection[Signature] = ()
    ) -> list[tuple[ToolCall, Finding]]:
        """Return the hardest finding of each call in a complete round that has any; it names every kind that hit.

        A new call in the round does not excuse the `refused` calls, which were withheld before. Calls after a finding
        that ends the round are skipped.
        """
        calls, hits = self._hits_of_round(calls)
        news = bool(hits) and True in map(self.is_news, calls)
        signatures = {call.signature for call in calls if call.name}
        judged = []
        for call, of_call in hits:
            ended = news and call.signature not in refused
            stands = [hit for hit in of_call if not (ended and hit.ends_on_news)]
            if finding := self._hardest([hit for hit in stands if hit.evidence.whole_round in (None, signatures)]):
                judged.append((call, finding))
        return judged

    def judge_cut_off(self, call: ToolCall) -> Finding | None:
        """Return the finding of a call that a length limit cut off, by the detectors that judge such calls."""
        return self._hardest([hit for hit in self._hits_of(without_end(call)) if hit.detector.of_cut_off])

    @staticmethod
    def ends_round(finding: Finding) -> bool:
        """Whether this finding ends its round: later calls in the round are not judged."""
        return any(registry.KINDS[kind].ends_round for kind in finding.kinds or (finding.kind,))

    def hindsights(self) -> Iterator[Finding | None]:
        """Yield for each round of `past`, newest first, the finding of the detectors that judge results (`Hindsight`),
        or None. Each round is judged as if it were the newest."""
        awake = [*awake_hindsights(self.past, self.settings)]
        if not awake:
            yield from repeat(None, len(self.past.rounds))
            return
        found = [one.evidence(self.past, self.settings) for one in awake]
        for _, *of_round in zip(self.past.rounds, *found, strict=True):
            pairs = zip(awake, of_round, strict=True)
            findings = (self._hindsight_finding(one, evidence) for one, evidence in pairs if evidence is not None)
            yield next(findings, None)

    @property
    def may_find_in_newest(self) -> bool:
        """Cheap pre-check: whether the first of `hindsights` may be a finding. False is certain."""
        return next(awake_hindsights(self.past, self.settings, newest=True), None) is not None

    def _hindsight_finding(self, hindsight: Hindsight, evidence: Evidence) -> Finding:
        name, call = hindsight.kind.name, evidence.calls[0].call
        soft = self.settings.for_tool(call.full_name).settings.limit_of(name)
        return self._finding(Hit(hindsight, call, evidence, soft, hard=False))

    def _hits_of_round(self, calls: Sequence[ToolCall]) -> tuple[Sequence[ToolCall], list[tuple[ToolCall, list[Hit]]]]:
        """Return the judged calls of a round, and each call that has hits; earlier calls count as siblings."""
        if not self.may_find_inside(len(calls)):
            judged = calls if self.can_fire else filter(is_long, calls)
            return calls, [(call, hits) for call in judged if (hits := self._hits_of(call))]
        siblings, found = Siblings(), []
        for at, call in enumerate(calls):
            if hits := self._hits_of(call, siblings):
                found.append((call, hits))
                if any(hit.detector.kind.ends_round for hit in hits):
                    return calls[: at + 1], found
            siblings.add(call)
        return calls, found

    def _hits_of(self, call: ToolCall, siblings: Siblings | None = None) -> list[Hit]:
        """Return the hits of all detectors on a call."""
        if not call.name:
            return []
        limits = self._limits(call.full_name)
        if is_long(call):
            enabled = enabled_detectors(self.settings, call.full_name)
            limits = {**limits, **{one: own for one, own in enabled.items() if one.needs is facts.ALONE}}
        if not (siblings and siblings.calls):
            return [hit for detector, own in limits.items() if (hit := self._hit_on(call, detector, own))]
        alone = [(one, own) for one, own in limits.items() if not isinstance(one, RoundDetector)]
        hits = [hit for detector, own in alone if (hit := self._hit_on(call, detector, own))]
        return [*hits, *self._hits_beside(call, siblings.beside(call))]

    def _hit_on(self, call: ToolCall, detector: Detector, limits: Limits) -> Hit | None:
        """Return the hit of a detector, at these limits, on a pending call; computed once."""
        key = detector, call
        if key not in self._hits:
            evidence = detector.evidence(self.past, call, limits.settings)
            self._hits[key] = None if evidence is None else self._hit(detector, call, evidence, limits)
        return self._hits[key]

    def _hits_beside(self, call: ToolCall, counted: Counted) -> Iterator[Hit]:
        """Yield the hits on a pending call of the detectors that count its siblings."""
        for detector, own in self._counting(call.full_name).items():
            evidence = detector.beside(self.past, call, counted, own.settings)
            if evidence is not None and (hit := self._hit(detector, call, evidence, own)):
                yield hit

    def _hit(self, detector: Detector, call: ToolCall, evidence: Evidence, limits: Limits) -> Hit | None:
        """Return the hit for this evidence; None if its count is below the limit."""
        soft, hard, settings = limits
        needs, count, waits = detector.needs, evidence.count, False
        if evidence.factor > 1:
            soft, hard = soft * evidence.factor, hard * evidence.factor
        if not needs.certain:
            if count < soft:
                return None
            waits = detector.kind.spares_pollers and self._waits(call, evidence.calls)
            if waits:
                soft, hard = soft * settings.poll_factor, hard * settings.poll_factor
            elif detector.kind.spares_pollers and acts_on_screen(evidence.calls, call, self.settings):
                soft, hard, waits = on_screen(soft), on_screen(hard), True
            if count < soft:
                return None
        is_hard = needs.certain or 0 < hard <= count
        return Hit(
            detector,
            call,
            evidence,
            soft,
            is_hard,
            any_signature=needs.finds is not Finds.EQUAL,
            hard_from=hard,
            waits=waits,
            ends_on_news=needs.in_a_row,
        )

    def _limits(self, name: str) -> Mapping[Detector, Limits]:
        """Return the limits of the detectors that could find something in a call of this tool."""
        known = self._limits_of.get(name)
        if known is None:
            enabled, awake = enabled_detectors(self.settings, name), self.awake
            known = self._limits_of[name] = {one: own for one, own in enabled.items() if one in awake}
        return known

    def _counting(self, name: str) -> Mapping[RoundDetector, Limits]:
        """Return the limits, for a tool, of the detectors that count the other calls of a round."""
        known = self._counting_of.get(name)
        if known is None:
            enabled = enabled_detectors(self.settings, name)
            known = {one: own for one, own in enabled.items() if isinstance(one, RoundDetector)}
            self._counting_of[name] = known
        return known

    def _waits(self, call: ToolCall, streak: Sequence[PastCall]) -> bool:
        """Whether a call is a poller, or a call of its streak has waited.

        Calls that have not waited are cached, because streaks share them.
        """
        if not self._never_waited.issuperset(streak):
            new = [one for one in streak if one not in self._never_waited] if self._never_waited else streak
            if have_waited(new, self.settings):
                return True
            self._never_waited.update(new)
        key = (call.signature, call.has_arguments)
        known = self._polling.get(key)
        if known is None:
            known = self._polling[key] = polls(call, self.settings)
        return known

    def _hardest(self, found: Sequence[Hit]) -> Finding | None:
        """Return the hardest of one call's hits as a finding, which names the kinds of all hits."""
        if not found:
            return None
        detectors = self.settings.for_tool(found[0].call.full_name).settings.detectors
        hit = max(found, key=lambda one: _may_act(one, detectors)) if len(found) > 1 else found[0]
        kinds = tuple(dict.fromkeys([one.kind for one in found])) if len(found) > 1 else ()
        return self._finding(hit, kinds if len(kinds) > 1 else ())

    def _finding(self, hit: Hit, kinds: tuple[str, ...] = ()) -> Finding:
        """Return the hit as a finding; created once."""
        known = self._findings.get((hit, kinds))
        if known is None:
            known = self._findings[hit, kinds] = self._make_finding(hit, kinds)
        return known

    def _make_finding(self, hit: Hit, kinds: tuple[str, ...]) -> Finding:
        call, evidence = hit.call, hit.evidence
        newest = evidence.calls[:NAMED]
        previous = self._previous(call, newest)
        found_nothing = previous is not None and previous.kind is OutcomeKind.NO_DATA
        return Finding(
            kind=hit.kind,
            tool=call.name,
            signature=call.signature,
            count=evidence.count,
            threshold=hit.threshold,
            window_s=self.settings.for_tool(call.full_name).settings.ttl_seconds,
            hard=hit.hard,
            confidence=evidence.confidence,
            calls=tuple([one.call.id for one in newest])[::-1],
            previous=None if previous is None else previous.text,
            ends_on_news=hit.ends_on_news,
            whole_round=evidence.whole_round,
            stretch=Stretch(
                evidence.lap,
                hit.hard_from,
                hit.waits,
                evidence.in_answer,
                found_nothing,
                previous.digest if previous else b"",
                _are_compared(hit),
                evidence.returned,
                unit=evidence.unit,
            ),
            kinds=kinds,
        )

    def _previous(self, call: ToolCall, streak: Sequence[PastCall]) -> Outcome | None:
        """Return the call's last outcome; else the newest outcome in the streak; None if no result is known."""
        signature = call.signature
        for one in streak:
            if not one.withheld and one.signature == signature and (outcome := one.outcome):
                return outcome
        window = self.past.rounds_of_window(self.settings.reach)
        earlier = (round_.find(signature) for round_ in window)
        for last in chain(earlier, streak):
            if last and not last.withheld and last.outcome:
                return last.outcome
        return None


def _are_compared(hit: Hit) -> bool:
    """Whether two of a hit's results are known; also True if the kind's sentence does not compare results."""
    if not hit.detector.kind.seen_uncompared:
        return True
    known = (one for one in hit.evidence.calls if not one.withheld and one.outcome is not None)
    return len([*islice(known, 2)]) > 1


def _may_act(hit: Hit, detectors: Detectors) -> tuple[int, bool]:
    """Return the hardest rung that a hit's cap allows, and whether the hit leads to the last rung at once."""
    hardest = detectors.hardest(hit.detector.kind.name, hard=hit.hard, waits=hit.waits)
    return hardest, hit.hard and not hit.detector.kind.climbs
