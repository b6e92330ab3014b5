"""What is found was foreseen, and what is foreseen is found; order inside a round and looking change nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callfuse.calls.signature import Signature
from callfuse.detect import Engine
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.engine import DETECTORS
from callfuse.model import Finding, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.drawn import clocks, made, rounds, settings, timelines, words, written
from tests.detect.timelines import call, calls
from tests.support.examples import more_examples

pendings = st.lists(words, min_size=1, max_size=3)


def of_past(past: Timeline) -> list[ToolCall]:
    """Its calls, as they would be if they came again."""
    return [
        ToolCall("again", one.name, one.arguments, signature=one.signature) for round_ in past for one in round_.calls
    ]


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings, refused=st.sets(words, max_size=2), again=st.booleans())
def test_whatever_is_found_was_foreseen(
    past: Timeline, chosen: LoopSettings, drawn: list[str], refused: set[str], again: bool
) -> None:
    """In any pending round: its tool was a suspect, and something at least as hard was possible in it."""
    engine = Engine(past, chosen)
    suspects = set(engine.suspects())
    healthy = engine.is_healthy()
    newest = next(iter(past), None)
    pending = of_past(Timeline([newest])) if again and newest else calls(" ".join(drawn))
    signatures: list[Signature] = [call(word).signature for word in refused]
    for one, finding in engine.judge_round(pending, signatures):
        assert not healthy
        assert suspects & {one.full_name, ANY_TOOL}
        assert any(found.hard >= finding.hard for found in engine.possible(one.full_name))


@more_examples(5)
@given(past=timelines(), chosen=settings(), drawn=pendings)
def test_each_kind_is_foreseen_for_itself(past: Timeline, chosen: LoopSettings, drawn: list[str]) -> None:
    """With a count as high, in calls of the past that come again and in others; a glance that says healthy is right."""
    engine = Engine(past, chosen)
    for one in [*of_past(past), *calls(" ".join(drawn))]:
        for detector in DETECTORS if one.name else ():
            finding = engine.found(detector, one)
            if finding is not None:
                foreseen = [found for found in engine.possible(one.name) if found.kind is finding.kind]
                assert any(found.hard >= finding.hard and found.count >= finding.count for found in foreseen)
                assert not engine.is_healthy()


@more_examples(5)
@given(past=timelines(), chosen=settings())
def test_no_call_is_held_for_nothing(past: Timeline, chosen: LoopSettings) -> None:
    """What is possible of a tool is found in some call of it: one of the past that comes again, or any other."""
    engine = Engine(past, chosen)
    for name in engine.suspects():
        any_of_it = [ToolCall("new", name, '{"unheard":"of"}'), *(one for one in of_past(past) if one.name == name)]
        if name != ANY_TOOL:
            assert any(engine.judge(one) for one in any_of_it)


def gist(finding: Finding) -> tuple[Any, ...]:
    """What of a finding does not depend on the order of calls."""
    kinds = finding.kinds or (finding.kind,)
    return kinds, finding.signature, finding.count, finding.threshold, finding.hard, finding.confidence, finding.lap


def shuffled(draw: st.DataObject, text: str) -> str:
    """The calls of a round in another order."""
    return " ".join(draw.draw(st.permutations(text.split())))


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings(), drawn=rounds, complete=st.booleans(), data=st.data())
def test_order_inside_a_round_does_not_matter(
    texts: list[str], clock: list[float | None], chosen: LoopSettings, drawn: str, complete: bool, data: st.DataObject
) -> None:
    """In the past or pending."""
    found = []
    for past, pending in ((texts, drawn), ([shuffled(data, text) for text in texts], shuffled(data, drawn))):
        engine = Engine(made(past, clock, complete), chosen)
        pairs = {(one.signature, gist(finding)) for one, finding in engine.judge_round(calls(pending))}
        hindsight = engine.hindsight()
        found.append((pairs, set(engine.suspects()), hindsight and hindsight.count))
    assert found[0] == found[1]


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings(), drawn=rounds, complete=st.booleans())
def test_nor_does_how_much_has_been_read(
    texts: list[str], clock: list[float | None], chosen: LoopSettings, drawn: str, complete: bool
) -> None:
    """A timeline that is read as one looks says the same as one that was read before."""
    found = []
    for is_read in (False, True):
        past = made(texts, clock, complete)
        _ = [*past] if is_read else []
        engine = Engine(past, chosen)
        judged = [(one.id, finding) for one, finding in engine.judge_round(calls(drawn))]
        found.append((judged, set(engine.suspects()), engine.hindsight()))
    assert found[0] == found[1]


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings(), drawn=rounds, complete=st.booleans())
def test_looking_changes_nothing(
    texts: list[str], clock: list[float | None], chosen: LoopSettings, drawn: str, complete: bool
) -> None:
    """The same evidence, read once or twice and asked in any order, says the same."""
    fresh = Engine(made(texts, clock, complete), chosen).judge_round(calls(drawn))
    past = made(texts, clock, complete)
    asked = Engine(past, chosen)
    asked.hindsight()
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
    bare = [ToolCall(one.id, one.name, one.arguments, signature=one.signature) for one in pending]
    known = Engine(made(texts, [None] * 24, outcomes), chosen).judge_round(pending)
    unknown = Engine(made(texts, [None] * 24, outcomes), chosen).judge_round(bare)
    assert [finding for _, finding in known] == [finding for _, finding in unknown]


@more_examples(5)
@given(texts=written(), drawn=words.filter(lambda word: word.isalpha()), tools=st.booleans())
def test_a_new_round_of_known_outcome_is_healthy(texts: list[str], drawn: str, tools: bool) -> None:
    """Under the defaults nothing is possible once the newest round is new, and of tools that there are."""
    past = made([text.replace("!!", "!") for text in texts] + ["b777=fresh"], [None] * 30, tools)
    engine = Engine(past, LoopSettings())
    assert engine.is_healthy()
    assert [*engine.suspects()] == []
    assert not engine.could_fire(drawn.rstrip("0123456789"))
    assert engine.judge_round(calls(drawn)) == []
