"""What ends a streak, whatever it is of. Each kind's own file pins that it listens; here is what there is to hear."""

import pytest

from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.similar import Similar
from callfuse.detect.streak import COUNTED, recent, said_again
from callfuse.model import Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, call, rounds, timeline

REPEAT = Rule(Repeat())


def reach(*texts: str, **settings: object) -> int:
    """How many of the newest rounds a streak may reach into."""
    return len(list(recent(timeline(*texts), LoopSettings.model_validate(settings))))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("w=x", "a=x"), 1),
        (("a=x", "w=x"), 0),
        (("a=x", "w=!failed", "a=x"), 3),
        (("a=x", "w", "a=x"), 1),
        (("a=x", "!w", "a=x"), 3),
        (("a=x", "b=y w=x", "a=x"), 1),
    ],
)
def test_a_successful_change_of_state_ends_it(texts: tuple[str, ...], expected: int) -> None:
    """One that failed or was withheld has changed nothing; one of which nothing is known may have."""
    assert reach(*texts, state_changing=["w"]) == expected
    assert reach(*texts, per_tool={"w": {"changes_state": True}}) == expected
    assert reach(*texts, state_changing=["w"], per_tool={"w": {"changes_state": False}}) == len(texts)
    assert reach(*texts) == len(texts)


def test_but_not_its_own() -> None:
    """A call that changes state may be repeated itself, and nearly so."""
    assert REPEAT.count("a=x", "a=x", state_changing=["a"]) == 3
    assert REPEAT.count("a=x", "a=x a1=x", "a=x", state_changing=["a"]) == 0
    similar = Rule(Similar(), similarity_threshold=0.5)
    assert similar.count("a111=x", "a112=x", pending="a113", state_changing=["a"]) == 3


def test_a_change_between_two_equal_reads_is_progress() -> None:
    """Beside the read or in a round of its own; declared, it is so even where it has come before."""
    for texts in (("w=x", "a=x", "a=x", "w=x"), ("w=x", "a=x", "a=x", "a=x w=x")):
        assert REPEAT.count(*texts, state_changing=["w"]) == 0


def test_the_pause_of_a_tool_is_its_own() -> None:
    """As all of its limits."""
    times = [0.0, 1.0]
    assert REPEAT.count("a=x", "a=x", times=times, now=500) == 0
    assert REPEAT.count("a=x", "a=x", times=times, now=500, per_tool={"a": {"ttl_seconds": 1000}}) == 3
    assert REPEAT.count("a=x", "a=x", times=times, now=50, per_tool={"a": {"ttl_seconds": 10}}) == 0


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("kept", [1, 15, 16, 17, 47, 48, 49, 111, 112, 113])
def test_a_pause_ends_it_wherever_it_is(kept: int, is_read: bool) -> None:
    """However the rounds are read; calls without a name leave no round behind."""
    made = rounds("7", *["a=x"] * 20, *["7", "a=x 7"] * kept, times=[0.0] * 21 + [500.0] * 2 * kept)[::-1]
    past = Timeline(made if is_read else iter(made), 600.0).evidence()
    assert [len(round_.calls) for round_ in recent(past, LoopSettings())] == [1] * kept
    assert len(list(past)) == kept + 20


def test_a_history_is_read_only_as_far_as_one_looks() -> None:
    """Beyond those of the window, which are read at once; one round more tells that a streak is at its end."""
    source = iter(rounds(*["a=x"] * 50)[::-1])
    past = Timeline(source).evidence()
    for _ in zip(range(17), recent(past, LoopSettings()), strict=False):
        pass
    assert len(list(source)) in (32, 33)


def test_streaks_are_counted_so_far() -> None:
    """And as far as the highest limit."""
    assert REPEAT.count(*["a=x"] * 1000) == 1 + COUNTED
    changing = Rule(RepeatChanging(), max_repeats_changing=400)
    assert changing.count(*["a=x"] * 398) == 0
    assert changing.count(*["a=x"] * 399) == 400
    assert changing.found(*["a=x"] * 700).hard  # type: ignore[union-attr]


def test_a_dropped_round_counts_if_somebody_read_its_result() -> None:
    """A live streak survives compaction; rounds of which nobody knows the outcome are no part of one."""
    assert REPEAT.count("-a=x", "-a=x", "a=x") == 4
    assert REPEAT.count("-a", "-a", "a=x") == 0
    assert REPEAT.count("-a=x", "-a", "a=x", "a=x") == 3
    assert call("-a").dropped


@pytest.mark.parametrize(
    ("texts", "length", "expected"),
    [
        ("a=x b=y a=x b=y a=x", 2, 3),
        ("b=y a=x b=x a=x", 2, 1),
        ("b=y a=x b=x a=x", 1, 0),
        ("a=x a=x !a a=x a=x", 1, 1),
        ("a a a", 1, 0),
        ("a=x", 1, 0),
        ("", 1, 0),
    ],
)
def test_how_far_a_loop_goes_on(texts: str, length: int, expected: int) -> None:
    """Without a look at one result beyond its end; what nobody knows is no part of it."""
    past = timeline(*texts.split())
    assert said_again(past, LoopSettings(), length) == expected
    beyond = past.slice(expected + length + 1, 100)
    assert [one.seen_outcome for round_ in beyond for one in round_.calls] == [None] * len(beyond)
