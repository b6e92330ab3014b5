"""What is found was foreseen, and what is foreseen is found; the pre-check is sound; order inside a round and looking
change nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import Engine, can_fire
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.facts import Finds
from callfuse.detect.registry import DETECTORS, HINDSIGHTS
from callfuse.detect.siblings import Siblings
from callfuse.model import Finding, PastCall, Round, Timeline, ToolCall
from callfuse.model.facts import Facts
from callfuse.model.signature import Signature
from callfuse.policy.settings import LoopSettings
from tests.detect.drawn import TOOLS, clocks, made, rounds, settings, timelines, words, written
from tests.detect.timelines import call, calls, found
from tests.support.examples import more_examples

pendings = st.lists(words, min_size=1, max_size=6)


_DRAWN = [call(f"{tool}{waits}{number}") for tool in TOOLS for waits in ("", "@") for number in ("", "1", "2", "7")]
_ARGUMENTS = {one.signature: one.arguments for one in _DRAWN}


def of_past(past: Timeline) -> list[ToolCall]:
    """Its calls, as they would be if they came again: with their arguments, also where those of the past are gone."""
    return [
        ToolCall("again", one.name, _ARGUMENTS[one.signature], signature=one.signature)
        for round_ in past
        for one in round_.calls
    ]


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings, refused=st.sets(words, max_size=2), again=st.booleans())
def test_whatever_is_found_was_foreseen(
    past: Timeline, chosen: LoopSettings, drawn: list[str], refused: set[str], again: bool
) -> None:
    """In any pending round: its tool was a suspect, and something at least as hard was possible in it."""
    engine = Engine(past, chosen)
    suspects = set(engine.suspects())
    newest = next(iter(past), None)
    pending = of_past(Timeline([newest])) if again and newest else calls(" ".join(drawn))
    signatures: list[Signature] = [call(word).signature for word in refused]
    findings = dict(engine.judge_round(pending, signatures))
    siblings = Siblings()
    for one in pending:
        finding = findings.get(one)
        if finding is not None:
            beside = [*engine.possible_beside(one.full_name, siblings)]
            assert beside or (engine.can_fire and suspects & {one.full_name, ANY_TOOL})
            possible = [*beside, *engine.possible(one.full_name)]
            assert any(found.hard >= finding.hard for found in possible)
            assert any(found.count >= finding.count or found.any_count for found in possible)
        siblings.add(one)


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings)
def test_each_kind_is_foreseen_for_itself(past: Timeline, chosen: LoopSettings, drawn: list[str]) -> None:
    """With a count as high, in recurring calls and in others; a pre-check that says healthy is right."""
    engine = Engine(past, chosen)
    for one in [*of_past(past), *calls(" ".join(drawn))]:
        for detector in DETECTORS if one.name else ():
            finding = found(detector, past, chosen, one)
            if finding is not None:
                foreseen = [found for found in engine.possible(one.name) if found.kind == finding.kind]
                assert any(
                    found.hard >= finding.hard and (found.any_count or found.count >= finding.count)
                    for found in foreseen
                )
                assert detector in engine.awake


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings)
def test_a_call_that_is_none_of_the_suspects_has_no_finding(
    past: Timeline, chosen: LoopSettings, drawn: list[str]
) -> None:
    """Where a fact says that a pending call equals one that recurs, its detector finds nothing in any other; and where
    the engine says so, neither does any detector."""
    engine = Engine(past, chosen)
    for one in [*of_past(past), *calls(" ".join(drawn))]:
        for detector in DETECTORS if one.name else ():
            equal = detector.recurring(engine.past, engine.settings) if detector.needs.finds is Finds.EQUAL else None
            if equal is not None and found(detector, past, chosen, one):
                assert (one.full_name, one.signature) in [(other.full_name, other.signature) for other in equal]
        suspects = engine.must_equal(one.full_name, lambda _: True) if one.name else None
        if suspects is not None and one.signature not in [other.signature for other in suspects]:
            assert engine.judge(one) is None


@more_examples(5)
@given(past=timelines(), chosen=settings())
def test_what_goes_round_has_come_before(past: Timeline, chosen: LoopSettings) -> None:
    """Such a finding is never in fewer rounds in a row, each with a call that has come before, than its count says."""
    for one in of_past(past):
        again = Facts([Round((PastCall(one),), 0), *past.rounds]).again[0]
        for detector in (one_ for one_ in DETECTORS if one_.needs.in_a_row and one.name):
            finding = found(detector, past, chosen, one)
            assert finding is None or again >= finding.count - 1


@more_examples(5)
@given(past=timelines(), chosen=settings())
def test_no_call_is_held_for_nothing(past: Timeline, chosen: LoopSettings) -> None:
    """What is possible of a tool is found in some call of it: any other, or one of the past that comes again, as far as
    its arguments are known."""
    engine = Engine(past, chosen)
    known = [*of_past(past), *[one.call for round_ in past for one in round_.calls]]
    for name in engine.suspects():
        any_of_it = [ToolCall("new", name, '{"unheard":"of"}'), *(one for one in known if one.name == name)]
        if name != ANY_TOOL:
            assert any(engine.judge(one) for one in any_of_it)


def gist(finding: Finding) -> tuple[Any, ...]:
    """What of a finding does not depend on the order of calls."""
    kinds = finding.kinds or (finding.kind,)
    return kinds, finding.signature, finding.count, finding.threshold, finding.hard, finding.confidence, finding.pattern


def shuffled(draw: st.DataObject, text: str) -> str:
    """The calls of a round in another order."""
    return " ".join(draw.draw(st.permutations(text.split())))


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings(), drawn=rounds, complete=st.booleans(), data=st.data())
def test_order_inside_a_round_does_not_matter(
    texts: list[str], clock: list[float | None], chosen: LoopSettings, drawn: str, complete: bool, data: st.DataObject
) -> None:
    """In the past or pending. Where the calls before one in its round count, the order of equal ones does not."""
    off = dict.fromkeys(("max_calls", "max_calls_of_tool", "max_weighted_calls", "max_calls_per_answer"), 0)
    chosen = chosen.model_copy(update={**off, "per_tool": {}})
    found = []
    for past, pending in ((texts, drawn), ([shuffled(data, text) for text in texts], shuffled(data, drawn))):
        engine = Engine(made(past, clock, complete), chosen)
        pairs = {(one.signature, gist(finding)) for one, finding in engine.judge_round(calls(pending))}
        hindsight = next(engine.hindsights(), None)
        found.append((pairs, set(engine.suspects()), hindsight and hindsight.count))
    assert found[0] == found[1]


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings, at=st.integers(0, 24), data=st.data())
def test_the_pre_check_is_sound(
    past: Timeline, chosen: LoopSettings, drawn: list[str], at: int, data: st.DataObject
) -> None:
    """Where it says that nothing can fire after a round, no detector finds anything, in calls of the past that come
    again and in others: all detectors are asked, whatever the pre-check says of each."""
    whole = past.evidence()
    if can_fire(whole, chosen, at):
        return
    declares = (lambda name: not past.lacks(name)) if past.lists_tools else None
    before = Timeline(whole.rounds[at:], past.now, has_blocks=past.has_blocks, declares=declares)
    again = of_past(before)
    more = data.draw(st.lists(st.sampled_from(again), max_size=3)) if again else []
    for one in (*more, *calls(" ".join(drawn))) if before.rounds else ():
        assert not one.name or not any(found(detector, before, chosen, one) for detector in DETECTORS)


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings(), drawn=rounds, complete=st.booleans())
def test_looking_changes_nothing(
    texts: list[str], clock: list[float | None], chosen: LoopSettings, drawn: str, complete: bool
) -> None:
    """The same evidence, read once or twice and asked in any order, says the same."""
    fresh = Engine(made(texts, clock, complete), chosen).judge_round(calls(drawn))
    past = made(texts, clock, complete)
    asked = Engine(past, chosen)
    list(asked.hindsights())
    list(asked.suspects())
    assert [finding for _, finding in asked.judge_round(calls(drawn))] == [finding for _, finding in fresh]
    assert [finding for _, finding in Engine(past, chosen).judge_round(calls(drawn))] == [found for _, found in fresh]


@more_examples(5)
@given(texts=written(), chosen=settings(), drawn=rounds, outcomes=st.booleans())
def test_a_pending_round_says_nothing_of_itself(
    texts: list[str], chosen: LoopSettings, drawn: str, outcomes: bool
) -> None:
    """What came of its calls later, where a recording knows it, changes nothing."""
    pending = calls(drawn)
    bare = [
        ToolCall(one.id, one.name, one.arguments, signature=one.signature, has_arguments=one.has_arguments)
        for one in pending
    ]
    known = Engine(made(texts, [None] * 24, outcomes), chosen).judge_round(pending)
    unknown = Engine(made(texts, [None] * 24, outcomes), chosen).judge_round(bare)
    assert [finding for _, finding in known] == [finding for _, finding in unknown]


@more_examples(5)
@given(texts=written(), drawn=words.filter(lambda word: word.isalpha()), tools=st.booleans())
def test_a_new_round_of_known_outcome_is_healthy(texts: list[str], drawn: str, tools: bool) -> None:
    """Under the defaults nothing is possible once the newest round is new, and of tools that there are. Only where one
    call has come in nine rounds it is looked whether this one takes a note."""
    past = made([text.replace("!!", "!") for text in texts] + ["b777=fresh"], [None] * 30, tools)
    assert not Engine(past, LoopSettings.model_validate({"detectors": {"repeat_with_notes": False}})).can_fire
    engine = Engine(past, LoopSettings())
    assert [*engine.suspects()] == []
    assert not engine.could_fire(drawn.rstrip("0123456789"))
    assert engine.judge_round(calls(drawn)) == []


@more_examples(5)
@given(past=timelines(), chosen=settings())
def test_the_pre_check_of_results_is_sound(past: Timeline, chosen: LoopSettings) -> None:
    """Where it says that results show nothing, they show nothing; and each round is judged as it was when it came."""
    whole = past.evidence()
    loosest = chosen.for_tool(ANY_TOOL).settings
    for hindsight in HINDSIGHTS:
        found = list(hindsight.evidence(whole, chosen))
        assert len(found) == len(whole.rounds)
        least = loosest.limit_of(hindsight.kind.name) if loosest.enabled else 0
        assert not any(found) or hindsight.needs.may_show(whole, least)
        assert not any(found[:1]) or hindsight.needs.may_show(whole, least, newest=True)
        for at, evidence in enumerate(found):
            if evidence:
                assert evidence.calls[0] in whole.rounds[at].distinct or evidence.calls[0] in whole.rounds[at].calls
                assert evidence.count >= chosen.limit_of(hindsight.kind.name) or chosen.per_tool
            later = whole.rounds[at - 1].time if at else past.now
            declares = whole._declares if whole.lists_tools else None
            then = Timeline(whole.rounds[at:], later or 0.0, declares=declares)
            known = next(hindsight.evidence(then, chosen))
            assert (evidence and evidence.count) == (known and known.count)
