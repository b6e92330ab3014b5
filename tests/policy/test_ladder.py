"""The ladder, rule by rule: from findings and the steps of the past to rungs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import Engine
from callfuse.detect.detector import Evidence, Hit
from callfuse.detect.registry import KINDS
from callfuse.detect.repeat import Repeat
from callfuse.model import Finding, Timeline
from callfuse.model.finding import Stretch
from callfuse.policy.ladder import CappedLadder, Verdict, capped, decide, restrict_ladder, would_withhold
from callfuse.policy.sections import Detectors
from callfuse.policy.settings import MODES, Ladder, LoopSettings, Rung
from tests.detect.timelines import call, calls, rounds
from tests.support.examples import more_examples

OBSERVE, WARN, STEER, FORCE_TEXT, ESCALATE, BLOCK = Rung
LONG: Ladder = (WARN, STEER, STEER, BLOCK)


def placed(texts: Sequence[str], steps: Sequence[int]) -> Timeline:
    """A timeline, each of whose rounds stands at a step on the ladder (0: nothing was found in it)."""
    made = rounds(*texts)
    for round_, step in zip(made, steps, strict=True):
        for one in round_.calls:
            one.step = step
    return Timeline(made[::-1], declares=frozenset("ab").__contains__)


def free(ladder: Ladder) -> CappedLadder:
    """A ladder that no cap lowers."""
    return CappedLadder(ladder, ladder, ladder)


def finding(word: str = "a", *, count: int = 3, hard: bool = False) -> Finding:
    """A finding of a call of this name."""
    return Finding("repeat", word[0], call(word).signature, count, 3, 300, hard)


def step_of(past: Timeline, found: Finding, ladder: Ladder = LONG) -> int:
    """The step of the verdict, which takes the rung at that step."""
    verdict = decide(past, call(found.tool), found, free(ladder))
    assert verdict.rung is ladder[verdict.step - 1]
    return verdict.step


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([], 1), ([0, 0], 1), ([0, 0, 1], 2), ([0, 0, 1, 2], 3), ([0, 0, 1, 2, 3], 4), ([0, 0, 1, 2, 3, 4], 4)],
)
def test_the_nth_finding_takes_rung_n(steps: list[int], expected: int) -> None:
    """And the last rung repeats."""
    assert step_of(placed(["a=x"] * len(steps), steps), finding()) == expected


def test_a_hard_finding_takes_the_last_rung() -> None:
    """At once, from any step."""
    assert step_of(placed([], []), finding(hard=True)) == 4
    assert step_of(placed(["a=x"], [1]), finding(hard=True)) == 4


def test_a_streak_is_of_findings_of_any_kind() -> None:
    """A finding in another call goes on where the last round stood."""
    assert step_of(placed(["a=x", "a=x", "a=x"], [0, 0, 1]), finding("b")) == 2


def test_a_round_without_a_finding_ends_the_streak() -> None:
    """Another call then begins at the bottom."""
    assert step_of(placed(["a=x", "a=x", "b=y"], [1, 2, 0]), finding("c")) == 1


def test_a_signature_keeps_its_step() -> None:
    """Its streak may end; the same call goes on where it stood."""
    assert step_of(placed(["a=x", "a=x", "b=y"], [1, 2, 0]), finding("a")) == 3
    assert step_of(placed(["a=x", "a=x", "b=y"], [1, 2, 0]), finding("a1")) == 1


def test_the_step_falls_back_when_the_outcome_changes() -> None:
    """What was found under another outcome does not count, nor does a step before that."""
    assert step_of(placed(["a=x", "b=y", "a=z", "b=y"], [2, 0, 0, 0]), finding("a")) == 1
    assert step_of(placed(["a=x", "b=y", "a=x", "b=y"], [2, 0, 0, 0]), finding("a")) == 3
    assert step_of(placed(["a=x", "b=y", "!a", "b=y"], [0, 0, 2, 0]), finding("a")) == 3


def test_each_round_moves_at_most_one_rung_up() -> None:
    """Several findings of one round take the same step."""
    past = placed(["a=x b=y", "a=x b=y"], [0, 1])
    verdicts = [decide(past, call(tool), finding(tool), free(LONG)) for tool in "ab"]
    assert [verdict.step for verdict in verdicts] == [2, 2]


@pytest.mark.parametrize(
    ("ladder", "count", "rung"),
    [
        (MODES["graduated"], 3, WARN),
        (MODES["graduated"], 4, WARN),
        (MODES["graduated"], 5, BLOCK),
        (MODES["chance_then_block"], 3, STEER),
        (MODES["chance_then_block"], 5, STEER),
        ((OBSERVE, STEER, BLOCK), 5, STEER),
    ],
)
def test_a_restarted_guard_knows_what_the_history_shows(ladder: Ladder, count: int, rung: Rung) -> None:
    """Rungs that let the call through have been taken; the chance is still to come."""
    past = placed(["a=x"] * (count - 1), [0] * (count - 1))
    verdict = decide(past, call("a"), finding(count=count), free(ladder))
    assert verdict.rung is rung


def test_a_rung_is_first_once_a_streak() -> None:
    """Repeating the last rung is no news; coming back after other calls is."""
    found = (call("a"), finding())
    assert decide(placed(["a=x"] * 2, [0, 0]), *found, free((BLOCK,))).first
    assert not decide(placed(["a=x"] * 3, [0, 0, 1]), *found, free((BLOCK,))).first
    assert decide(placed(["a=x"] * 3, [0, 0, 1]), *found, free((STEER, BLOCK))).first
    assert decide(placed(["a=x", "a=x", "b=y"], [0, 1, 0]), *found, free((BLOCK,))).first


@pytest.mark.parametrize(
    ("ladder", "signed", "alone"),
    [
        ((OBSERVE,), (OBSERVE,), (OBSERVE,)),
        ((WARN,), (OBSERVE,), (WARN,)),
        ((BLOCK,), (BLOCK,), (BLOCK,)),
        ((STEER, BLOCK), (BLOCK,), (BLOCK,)),
        ((WARN, WARN, BLOCK), (OBSERVE, OBSERVE, BLOCK), (WARN, WARN, BLOCK)),
        ((STEER,), (BLOCK,), (BLOCK,)),
        ((STEER, STEER), (BLOCK,), (BLOCK,)),
        ((WARN, STEER), (OBSERVE, BLOCK), (WARN, BLOCK)),
        ((STEER, FORCE_TEXT, ESCALATE, BLOCK), (BLOCK,), (BLOCK,)),
    ],
)
def test_what_an_exchange_forbids(ladder: Ladder, signed: Ladder, alone: Ladder) -> None:
    """A signed request is neither warned nor asked again; with several choices the model is not asked again."""

    def rungs(found: Ladder) -> list[Rung]:
        return [found[min(at, len(found) - 1)] for at in range(6)]

    assert restrict_ladder(ladder, may_change=True, may_ask=True) == ladder
    assert rungs(restrict_ladder(ladder, may_change=False, may_ask=True)) == rungs(signed)
    assert rungs(restrict_ladder(ladder, may_change=False, may_ask=False)) == rungs(signed)
    assert rungs(restrict_ladder(ladder, may_change=True, may_ask=False)) == rungs(alone)


def test_a_forbidden_steer_moves_no_other_rung() -> None:
    """The second finding takes the second rung, though the first one could not be a steer."""
    assert restrict_ladder((STEER, WARN, BLOCK), may_change=True, may_ask=False) == (WARN, WARN, BLOCK)
    assert restrict_ladder((STEER, STEER, BLOCK), may_change=True, may_ask=False)[0] is BLOCK


@pytest.mark.parametrize(
    ("ladder", "left"),
    [
        ((ESCALATE, BLOCK), (BLOCK, BLOCK)),
        ((STEER, ESCALATE, FORCE_TEXT, BLOCK), (STEER, FORCE_TEXT, FORCE_TEXT, BLOCK)),
        ((STEER, ESCALATE), (STEER, BLOCK)),
    ],
)
def test_where_there_is_no_other_model(ladder: Ladder, left: Ladder) -> None:
    """Only escalating is not possible: it becomes the rung after it."""
    assert restrict_ladder(ladder, may_change=True, may_ask=True, may_escalate=False) == left
    assert restrict_ladder(ladder, may_change=True, may_ask=True) == ladder


WITHHOLDING = (STEER, FORCE_TEXT, ESCALATE, BLOCK)


@pytest.mark.parametrize("rung", [None, *Rung])
def test_which_rungs_withhold(rung: Rung | None) -> None:
    """Those that keep the call from the client; all of them but the block ask a model again."""
    assert Verdict(call("a"), finding(), rung, 1).withholds is (rung in WITHHOLDING)
    assert rung is None or rung.asks is (rung in WITHHOLDING[:-1])


words = st.sampled_from(["a=x", "a=x", "a=y", "a=~x", "a", "!a", "b=y", "a=x b=y", "a1=x", "a2=x", "x=!q", "x1=!q"])


@more_examples(5)
@given(
    past=st.lists(st.tuples(words, st.integers(-3, 4)), max_size=9),
    ladder=st.lists(st.sampled_from(list(Rung)), min_size=1, max_size=4).map(tuple),
    pending=st.sampled_from(["a", "b", "a b", "a1", "x"]),
    caps=st.dictionaries(st.sampled_from(["repeat", "repeat_changing", "no_news"]), st.builds(
        lambda most, hard: {"most": most, "most_hard": hard}, st.sampled_from(Rung), st.sampled_from([None, *Rung]),
    )),
)  # fmt: skip
def test_what_is_withheld_was_foreseen(
    past: list[tuple[str, int]], ladder: Ladder, pending: str, caps: dict[str, Any]
) -> None:
    """Any verdict that withholds a call was among those for which its tool's calls are held, whatever the caps, and on
    whatever step which of its tool's calls stands."""
    timeline = placed([text for text, _ in past], [step for _, step in past])
    chosen = {"max_repeats": 2, "max_repeats_changing": 3, "poll_factor": 2, "detectors": {"no_news": 2} | caps}
    chosen |= {"similarity_threshold": 0.5, "max_calls_of_tool": 3}
    assert all(foreseen for _, foreseen in withheld(timeline, LoopSettings.model_validate(chosen), ladder, pending))


def withheld(
    timeline: Timeline, settings: LoopSettings, ladder: Ladder, pending: str
) -> Iterator[tuple[Finding, bool]]:
    """The findings for which calls of a round are withheld, and whether that was foreseen for the call's tool."""
    engine = Engine(timeline, settings)
    for one, found in engine.judge_round(calls(pending)):
        if decide(timeline, one, found, capped(ladder, found, settings.detectors)).withholds:
            possible = [(hit, capped(ladder, hit, settings.detectors)) for hit in engine.possible(one.name)]
            yield found, any(would_withhold(timeline, hit, own) for hit, own in possible)


@pytest.mark.parametrize(
    ("kind", "texts", "pending", "settings"),
    [
        ("no_news", ["a1=x", "a2=y", "a3=z", "a1=x", "a3=z", "a2=y"], "a1", {}),
        ("unknown_tool", ["x1=!q", "a=x", "x2=!q", "x3=!q"], "x1", {}),
        ("similar", ["a111=x", "b=y", "a112=x", "a113=x"], "a111", {"similarity_threshold": 0.5}),
        ("budget", ["a1=x", "a2=y", "a3=z"], "a1", {"max_calls_of_tool": 2}),
    ],
)
def test_a_signature_on_a_higher_step_is_foreseen(
    kind: str, texts: list[str], pending: str, settings: dict[str, Any]
) -> None:
    """It was warned of twice before; the call by which a finding is foreseen was not."""
    past = placed(texts, [2 if text.startswith(pending) else 0 for text in texts])
    ((found, foreseen),) = withheld(past, LoopSettings.model_validate(settings), (WARN, WARN, BLOCK), pending)
    assert (found.kind, foreseen) == (kind, True)


def test_what_may_be_found_at_any_count_is_withheld_on_every_ladder_that_withholds() -> None:
    """A hard finding would take the last rung, but it may come as the first one."""
    found = Hit(Repeat(), call("a"), Evidence(1), 1, hard=True, any_count=True)
    assert would_withhold(placed([], []), found, free((STEER, WARN)))
    assert not would_withhold(placed([], []), found, free((OBSERVE, WARN)))


def test_a_signature_on_a_lower_step_may_stand_on_a_harder_rung() -> None:
    """What is foreseen is the finding of the strongest call; another call has not been told yet."""
    past = placed(["a=x", "a=x", "b=y"], [0, 1, 0])
    assert step_of(past, finding("a"), (STEER, WARN)) == 2
    assert would_withhold(past, Hit(Repeat(), call("a"), Evidence(3), 3, hard=False), free((STEER, WARN)))
    assert not would_withhold(past, Hit(Repeat(), call("a"), Evidence(3), 3, hard=False), free((WARN, WARN)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cap_holds_at_every_step(kind: str) -> None:
    """Of a ladder for findings of this kind; milder rungs stay, and from the hard limit on it may be another."""
    caps = Detectors.model_validate({kind: {"most": "steer", "most_hard": "none"}})
    rungs = (OBSERVE, WARN, STEER, FORCE_TEXT, BLOCK)
    soft, hard = Finding(kind, "a", b"a", 3, 3, 300, hard=False), Finding(kind, "a", b"a", 9, 3, 300, hard=True)
    assert capped(rungs, soft, caps).now == (OBSERVE, WARN, STEER, STEER, STEER)
    assert capped(rungs, hard, caps).now == rungs
    assert capped(rungs, hard, caps).below == (OBSERVE, WARN, STEER, STEER, STEER)


CAPPED = CappedLadder((STEER, BLOCK), (WARN, WARN), (WARN, WARN))
CHANGING = Finding("repeat_changing", "a", call("a").signature, 10, 6, 300, hard=True, stretch=Stretch(hard_from=10))


def test_what_a_cap_has_lowered_uses_up_no_rung() -> None:
    """The streak stays where it stood, and so does the signature: the rungs are still to come."""
    lowered = decide(placed(["a=x"] * 2, [0, 0]), call("a"), finding(), CAPPED)
    assert (lowered.rung, lowered.step, lowered.lowered, lowered.first) == (WARN, 0, True, True)
    past = placed(["a=x"] * 3, [0, 0, lowered.kept_step])
    again = decide(past, call("a"), finding(count=4), CAPPED)
    assert (again.rung, again.step, again.first) == (WARN, 0, False)
    assert decide(past, call("a"), finding(count=4), free((STEER, BLOCK))).rung is STEER


def test_a_lowered_finding_does_not_end_a_streak() -> None:
    """Another call of the streak goes on where that stood; the lowered signature itself has taken no rung."""
    past = placed(["b=x", "a=x", "a=x"], [1, 0, 0])
    assert decide(past, call("a"), finding(), CAPPED).step == 0
    past = placed(["b=x", "a=x"], [1, decide(placed(["b=x"], [1]), call("a"), finding(), CAPPED).kept_step])
    assert step_of(past, finding("c"), (STEER, STEER, BLOCK)) == 2
    past = placed(["b=x", "a=x", "c=x"], [1, past.rounds[0].calls[0].step, 0])
    assert step_of(past, finding("a"), (STEER, STEER, BLOCK)) == 1


@pytest.mark.parametrize(
    ("ladder", "count", "rungs"),
    [
        ((STEER, BLOCK), 10, [STEER, BLOCK, BLOCK]),
        ((STEER, BLOCK), 6, [WARN, WARN, WARN, WARN, STEER, BLOCK, BLOCK]),
        ((WARN, WARN, BLOCK), 6, [WARN, WARN, WARN, WARN, WARN, WARN, BLOCK, BLOCK]),
        ((WARN, WARN, BLOCK), 10, [WARN, WARN, BLOCK, BLOCK]),
        ((OBSERVE, STEER, FORCE_TEXT, BLOCK), 10, [OBSERVE, STEER, FORCE_TEXT, BLOCK, BLOCK]),
        ((WARN,), 6, [WARN] * 6),
    ],
)
def test_a_kind_that_climbs_begins_at_its_hard_limit(ladder: Ladder, count: int, rungs: list[Rung]) -> None:
    """There it goes up the ladder from the first rung: its findings below have used up none, also where their cap let
    one stand. Where the ladder only warns before it blocks, each verdict is the same if the steps have been lost."""
    caps = Detectors.model_validate({"repeat_changing": {"most_hard": "none"}})
    step = 0
    for at, rung in enumerate(rungs):
        hard = count + at >= 10
        found = replace(CHANGING, count=count + at, hard=hard)
        lost = placed(["a=x"] * (count + at - 1), [0] * (count + at - 1))
        if WARN in ladder:
            assert decide(lost, call("a"), found, capped(ladder, found, caps)).rung is rung
        past = placed(["a=x"] * (count + at - 1), [0] * (count + at - 2) + [step])
        verdict = decide(past, call("a"), found, capped(ladder, found, caps))
        assert verdict.rung is rung
        step = verdict.kept_step


def test_what_an_exchange_does_not_permit_is_no_cap_either() -> None:
    """Where the model cannot be asked, a kind that may be steered at most is warned of."""
    caps = Detectors.model_validate({"repeat": {"most": "steer"}})
    usable = restrict_ladder((STEER, BLOCK), may_change=True, may_ask=False)
    assert capped(usable, finding(), caps, lambda rung: not rung.asks).now == (WARN, WARN)


def test_a_milder_cap_for_hard_findings_is_none() -> None:
    """What may be blocked before its hard limit may be blocked from there on."""
    caps = Detectors.model_validate({"repeat": {"most": "block", "most_hard": "warn"}})
    assert caps.cap("repeat", hard=True, waits=False) is BLOCK
    assert caps.cap("repeat", hard=False, waits=True) is WARN
    assert caps.cap("repeat", hard=True, waits=True) is BLOCK
