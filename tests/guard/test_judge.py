"""The judge: what must be held, and how it goes on from one answer to the next."""

import pytest

from callfuse.detect.kind import REASONING, TEXT
from callfuse.detect.runaway import Runaway
from callfuse.dialects.ask_again import AskOptions
from callfuse.guard.judge import Judge
from callfuse.model import Finding
from callfuse.policy.settings import LoopSettings, Rung
from tests.detect.timelines import call, calls, timeline

LOOP = ("b=y", "a=x", "a=x")


def judge(
    *texts: str,
    mode: str | list[str] = "block",
    may_change: bool = True,
    may_ask: bool = True,
    hold_all: bool = False,
    other: str | None = None,
) -> Judge:
    """A judge over these rounds, of the model `m`."""
    settings = LoopSettings.model_validate({"mode": mode, "escalate_model": other})
    past = timeline(*texts)
    return Judge(past, settings, model="m", may_change=may_change, may_ask=may_ask, hold_all=hold_all)


@pytest.mark.parametrize(
    ("mode", "finding", "hold"),
    [
        ("observe", True, False),
        ("warn", True, False),
        ("block", True, True),
        ("chance", True, True),
        ("graduated", True, False),
    ],
)
def test_what_is_held(mode: str, finding: bool, hold: bool) -> None:
    """Only a call whose next rung would withhold it."""
    found = judge(*LOOP, mode=mode)
    assert (found.any_finding, found.any_hold) == (finding, hold)
    assert found.must_hold("a") is hold
    assert found.must_hold("") is hold
    assert not found.must_hold("b")
    assert not found.must_hold("never heard of")


def test_a_healthy_timeline_holds_nothing() -> None:
    """Not even a call without a name."""
    found = judge("a=x", "b=y")
    assert not found.any_finding
    assert not found.any_hold
    assert not found.must_hold("")


def test_a_callback_sees_what_would_pass() -> None:
    """With one, every call that could be a finding is held."""
    assert judge(*LOOP, mode="warn", hold_all=True).must_hold("a")
    assert not judge("a=x", mode="warn", hold_all=True).any_hold


def test_a_warning_rung_holds_once_it_is_used_up() -> None:
    """`graduated` lets two findings go and holds for the third."""
    assert not judge("a=x", "a=x", "a=x", mode="graduated").any_hold
    assert judge("a=x", "a=x", "a=x", "a=x", mode="graduated").any_hold


def test_the_next_answer_of_an_exchange() -> None:
    """The withheld call is a round of its own: one more makes the next rung, and no news frees it."""
    found = judge(*LOOP, mode="chance")
    (first,) = found.verdicts(calls("a"))
    assert first.rung is Rung.STEER
    found.begin_next_round([first])
    (second,) = found.verdicts(calls("a c"))
    assert (second.rung, second.finding.count) == (Rung.BLOCK, 4)
    assert found.verdicts(calls("c")) == []


@pytest.mark.parametrize(
    ("mode", "rungs"),
    [
        (["steer", "steer", "block"], [Rung.STEER, Rung.BLOCK, Rung.BLOCK]),
        (["steer", "warn"], [Rung.BLOCK]),
        (["steer", "observe", "steer"], [Rung.STEER, Rung.BLOCK]),
        (["steer"], [Rung.BLOCK]),
    ],
)
def test_the_rung_after_a_failed_one(mode: list[str], rungs: list[Rung]) -> None:
    """Always one that withholds, in the end the block."""
    found = judge(*LOOP, mode=mode)
    (verdict,) = found.verdicts(calls("a"))
    for rung in rungs:
        verdict = found.next_rung(verdict)
        assert verdict.rung is rung


FOUND = Finding("repeat", "a", b"a", 3, 3, 300, hard=False)


def test_signed_and_alone() -> None:
    """A request that must not be changed is not asked again; nor is one with several choices."""
    assert set(judge(*LOOP, mode="chance", may_change=False).ladder("a", FOUND).now) == {Rung.BLOCK}
    assert set(judge(*LOOP, mode="chance", may_ask=False).ladder("a", FOUND).now) == {Rung.BLOCK}


LONG = ["steer", "force_text", "escalate", "block"]


@pytest.mark.parametrize(
    ("other", "rungs"),
    [("x", LONG), ("m", ["steer", "force_text", "block", "block"])],
)
def test_another_model_is_another(other: str, rungs: list[str]) -> None:
    """To escalate to the model that is being asked would be no other answer."""
    assert list(judge(*LOOP, mode=LONG, other=other).ladder("a", FOUND).now) == rungs


def test_how_rungs_ask() -> None:
    """One table; what a callback asks for beyond the settings is refused."""
    found = judge(*LOOP, other="x")
    options = {rung: found.ask_options(rung) for rung in Rung if rung.asks}
    assert options == {
        Rung.STEER: AskOptions(),
        Rung.FORCE_TEXT: AskOptions(text_only=True),
        Rung.ESCALATE: AskOptions(model="x"),
    }
    assert found.allowed(Rung.ESCALATE) is Rung.ESCALATE
    with pytest.raises(ValueError, match="escalate_model"):
        judge(*LOOP).allowed(Rung.ESCALATE)
    assert judge(*LOOP, other="x", may_change=False).allowed(Rung.FORCE_TEXT) is Rung.BLOCK


def test_a_call_is_judged_with_what_came_beside_it() -> None:
    """A new call beside it voids the finding."""
    found = judge(*LOOP)
    assert found.finding(call("a"), news=False) is not None
    assert found.finding(call("a"), news=True) is None
    assert found.finding(call("b"), news=False) is None
    assert found.is_news(call("c"))
    assert not found.is_news(call("b"))


def test_a_text_that_runs_away() -> None:
    """Reasoning is only told where later requests cannot leave it out."""
    found = Runaway(100, 6_244, "Stir it until it is thick. ", True)
    cut = {"detectors": {"runaway": {"text": "block", "reasoning": "block"}}}
    for may_change, rungs in ((True, [Rung.BLOCK, Rung.BLOCK]), (False, [Rung.BLOCK, Rung.OBSERVE])):
        own = Judge(timeline(), LoopSettings.model_validate(cut), model="m", may_change=may_change)
        assert [own.text_verdict(part, found).rung for part in (TEXT, REASONING)] == rungs
