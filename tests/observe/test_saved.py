"""The estimate of saved calls: never less than what was withheld, and rather too low."""

from dataclasses import replace

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.model.finding import Stretch
from callfuse.observe.events import FindingSeen, Where
from callfuse.observe.saved import FOLLOW, MOST_LOOPS, Saved, amounts_of, following
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

CALL = ToolCall("call_1", "search", "{}")


def seen(
    count: int = 3,
    kind: str = "repeat",
    rung: Rung | None = Rung.STEER,
    *,
    lane: str = "l",
    again: bool = False,
    tokens: int = 0,
    price: float = 0.0,
) -> FindingSeen:
    """A finding."""
    found = Finding(kind, "search", CALL.signature, count, 3, 300.0, False)
    return FindingSeen(
        Where("s", "", lane, "m", "b", "d"), Verdict(CALL, found, rung, 1), again=again, tokens=tokens, price=price
    )


@pytest.mark.parametrize("rung", [Rung.OBSERVE, Rung.WARN, None])
def test_a_call_that_went_out_is_not_saved(rung: Rung | None) -> None:
    """Whatever it was told."""
    assert Saved().by(seen(rung=rung)) == 0


def test_a_text_that_is_cut_off_is_no_call() -> None:
    """The rest of its answer is saved, which nobody can count."""
    event = seen(kind="runaway")
    finding = replace(event.verdict.finding, stretch=Stretch(part="text"))
    assert Saved().by(replace(event, verdict=replace(event.verdict, finding=finding))) == 0


def test_the_first_of_a_loop_saves_those_that_follow() -> None:
    """As many as followed on average at that count; of a kind that was not measured, itself alone."""
    assert Saved().by(seen(3)) == pytest.approx(1 + 4.8)
    assert Saved().by(seen(4)) == pytest.approx(1 + 8.6)
    assert Saved().by(seen(99)) == pytest.approx(1 + 14.1)
    assert Saved().by(seen(3, "budget")) == 1
    assert following("repeat", -1) == 4.8


@pytest.mark.parametrize("withheld", [1, 2, 5, 6, 20])
def test_a_loop_that_goes_on_counts_once(withheld: int) -> None:
    """What was counted in advance is not counted again when it comes: the sum is the greater of both."""
    saved = Saved()
    total = sum(saved.by(seen(3 + n)) for n in range(withheld))
    assert total == pytest.approx(max(withheld, 1 + FOLLOW["repeat"][0]))


def test_a_rung_that_failed_saves_no_second_call() -> None:
    """The same call is withheld by the next one."""
    saved = Saved()
    saved.by(seen(3))
    assert saved.by(seen(3, rung=Rung.BLOCK, again=True)) == 0


def test_loops_of_other_lanes_and_kinds_count_by_themselves() -> None:
    """Each has what follows it."""
    saved = Saved()
    assert [saved.by(seen(lane=lane)) for lane in "ab"] == [5.8, 5.8]
    assert saved.by(seen(kind="cycle", lane="a")) == 2.5


def test_the_memory_is_bounded() -> None:
    """However many lanes there are."""
    saved = Saved()
    for number in range(2 * MOST_LOOPS):
        saved.by(seen(lane=str(number)))
    assert len(saved._ahead) == MOST_LOOPS


def test_tokens_are_those_of_requests_that_were_not_made() -> None:
    """One for each saved call, each as long as that with the withheld call, and its answer."""
    event = seen(3, tokens=500)
    assert amounts_of(event, Saved().by(event)) == {"saved_calls": 5.8, "saved_tokens": 2900}
    assert amounts_of(seen(tokens=0), 5.8) == {"saved_calls": 5.8, "saved_tokens": 0}


def test_money_is_the_price_of_these_tokens() -> None:
    """If the settings have prices for the model, to a millionth, as what is spent."""
    assert amounts_of(seen(tokens=500, price=0.001), 5.8)["saved_cost"] == 0.0058
    assert amounts_of(seen(tokens=500, price=0.0000004), 1)["saved_cost"] == 0.0
    assert amounts_of(seen(tokens=500, price=0.001), 0) == {}
