"""The engine: what a whole round brings, and that whatever could be found was foreseen."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import Engine
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.engine import DETECTORS
from callfuse.model import Finding, Kind, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, calls, rounds, timeline

LOOP = ("b=y", "a=x", "a=x")
BLOCKED = (*LOOP, "!!a")


def judged(pending: str, *texts: str, refused: str = "") -> list[str]:
    """The ids of the calls in which something is found."""
    engine = Engine(timeline(*texts), LoopSettings())
    signatures = [call(word).signature for word in refused.split()]
    return [one.id for one, _ in engine.judge_round(calls(pending), signatures)]


@pytest.mark.parametrize(
    ("pending", "found"),
    [
        ("a", ["pending0"]),
        ("a a", ["pending0", "pending1"]),
        ("b a", ["pending1"]),
        ("a b", ["pending0"]),
        ("a c", []),
        ("c a", []),
        ("a a1", []),
        ("b", []),
        ("c", []),
        ("", []),
    ],
)
def test_a_round_is_judged_as_a_whole(pending: str, found: list[str]) -> None:
    """A new call beside the loop, before or after it, is progress; a known one is not."""
    assert judged(pending, *LOOP) == found


def test_two_loops_of_one_round() -> None:
    """Each is found by itself."""
    assert judged("b a", "a=x b=y", "b=y a=x") == ["pending0", "pending1"]


def test_news_does_not_free_what_was_refused() -> None:
    """In a steered answer the loop has had its chance; nor does it free a call that was blocked."""
    assert judged("a c", *LOOP, refused="a") == ["pending0"]
    assert judged("a c", *BLOCKED) == ["pending0"]


def test_a_call_without_a_name_is_no_evidence() -> None:
    """Neither found nor news."""
    engine = Engine(timeline("=x", "=x", "=x"), LoopSettings())
    assert engine.judge(call("")) is None
    assert not engine.is_news(call(""))
    assert judged("a ", *LOOP) == ["pending0"]


def test_the_hardest_finding_wins() -> None:
    """Six equal calls are soft as `repeat_changing` and hard as `repeat`."""
    finding = Engine(timeline(*["a=x"] * 5), LoopSettings()).judge(call("a"))
    assert finding is not None
    assert (finding.kind, finding.hard) == (Kind.REPEAT, True)


@pytest.mark.parametrize(
    ("texts", "suspects"),
    [((), []), (("a=x",), []), (("a=x", "a=x"), ["a"]), (("a=x", "a1=x"), []), (("a=x b=y", "b=y a=x"), ["a", "b"])],
)
def test_suspects(texts: tuple[str, ...], suspects: list[str]) -> None:
    """In a healthy timeline none; else the tools of which some call could be found."""
    assert sorted(Engine(timeline(*texts), LoopSettings()).suspects()) == suspects


def test_a_healthy_timeline_is_read_only_as_far_as_the_window_reaches() -> None:
    """Rounds are read from the request backwards, and no further than somebody looks."""
    read: list[int] = []

    def newest_first() -> Iterator[Round]:
        for at, round_ in enumerate(reversed(rounds(*[f"a{at}=x" for at in range(50)]))):
            read.append(at)
            yield round_

    assert Engine(Timeline(newest_first()), LoopSettings(window=12)).suspects() == []
    assert len(read) <= 14


words = st.builds(
    lambda marks, tool, number, outcome: f"{marks}{tool}{number}{outcome if not marks else ''}",
    st.sampled_from(["", "", "", "", "!", "!!"]),
    st.sampled_from("aab"),
    st.sampled_from(["", "", "1"]),
    st.sampled_from(["", "=x", "=x", "=y"]),
)
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)
steps = st.lists(st.sampled_from([1.0, 1.0, 200.0, 301.0]), min_size=12, max_size=12)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Short timelines of few calls, in which loops are common."""
    written = draw(
        st.lists(texts, max_size=9) | st.lists(st.sampled_from(["a=x", "!!a", "a=x b=y", "b=y"]), max_size=12)
    )
    clock = 0.0
    times: list[float | None] = []
    for step in draw(steps):
        clock += step
        times.append(draw(st.sampled_from([clock, clock, None])))
    return timeline(*written, times=times, now=clock)


@st.composite
def settings(draw: st.DrawFn) -> LoopSettings:
    """Settings under which findings are common."""
    return LoopSettings(
        max_repeats=draw(st.sampled_from([0, 2, 2, 3, 4])),
        max_repeats_changing=draw(st.sampled_from([0, 2, 3, 6])),
        window=draw(st.sampled_from([2, 10])),
    )


@given(past=timelines(), chosen=settings(), pending=st.lists(words, min_size=1, max_size=3))
def test_whatever_is_found_was_possible(past: Timeline, chosen: LoopSettings, pending: list[str]) -> None:
    """Each detector that finds something in a call has named its tool and a finding at least as hard beforehand."""
    engine = Engine(past, chosen)
    suspects = engine.suspects()
    for one in calls(" ".join(pending)):
        for detector in DETECTORS:
            finding = engine.found(detector, one)
            if finding is not None:
                foreseen = [found for found in engine.possible(one.name) if found.kind is finding.kind]
                assert any(found.hard >= finding.hard and found.count >= finding.count for found in foreseen)
                assert {one.name, ANY_TOOL} & set(suspects)


@given(past=timelines(), chosen=settings())
def test_whatever_is_possible_can_be_found(past: Timeline, chosen: LoopSettings) -> None:
    """No call is held for nothing: what is possible is found in a call of the past that comes again."""

    def comes(finding: Finding) -> bool:
        engine = Engine(past, chosen)
        again = [one for round_ in past for one in round_.calls]
        return any(engine.found(detector, one) == finding for detector in DETECTORS for one in again)

    engine = Engine(past, chosen)
    for name in engine.suspects():
        assert any(comes(finding) for finding in engine.possible(name))


@given(past=timelines(), chosen=settings(), pending=texts)
def test_order_inside_a_round_does_not_matter(past: Timeline, chosen: LoopSettings, pending: str) -> None:
    """The same calls in another order bring the same findings."""
    engine = Engine(past, chosen)
    one = calls(pending)
    forward = {found.id: finding for found, finding in engine.judge_round(one)}
    backward = {found.id: finding for found, finding in engine.judge_round(one[::-1])}
    assert forward == backward


values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, 1.0, -0.0, 2**60, 2**70, math.nan, math.inf, "é", "\ud800", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
arguments = values | values.map(json.dumps) | st.sampled_from(["", "  ", "{", '{"a":1e400}', '{"a": 1}', '{"a":1.0}'])


@given(one=arguments, other=arguments)
def test_calls_that_cannot_be_equal_have_other_signatures(one: Any, other: Any) -> None:
    """The quick look at two calls never tells apart what is equal, in whatever form their arguments come."""
    mine, theirs = ToolCall("1", "a", one), ToolCall("2", "a", other)
    assert mine.may_equal(theirs) or mine.signature != theirs.signature
