"""What ends a streak, whatever it is of. Each kind's own file pins that it listens; here is what there is to hear."""

import pytest

from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.similar import Similar
from callfuse.detect.streak import COUNTED, recent
from callfuse.model import Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, past, rounds, timeline

REPEAT = Rule(Repeat())


def reach(*texts: str, **settings: object) -> int:
    """How many of the newest rounds a streak may reach into."""
    return len(list(recent(timeline(*texts), LoopSettings.model_validate(settings))))


def test_a_pause_ends_it_where_times_count() -> None:
    """Of a history whose times are not to count, each round is recent."""
    timed = timeline("a=x", "a=x", "a=x", times=[0, 301, 302], now=303)
    whole = Timeline(timed.rounds, timed.now, timed=False, facts=timed.facts)
    assert [len(recent(one, LoopSettings())) for one in (timed, whole, whole.before(0, 1))] == [2, 3, 1]


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


def test_a_call_that_is_progress_ends_its_own_streak_too() -> None:
    """`changes_state: true` of a tool: whatever it returns, unless it fails."""
    progress = {"per_tool": {"a": {"changes_state": True}}}
    changing = Rule(RepeatChanging(), max_repeats_changing=3)
    similar = Rule(Similar(), similarity_threshold=0.5)
    for rule in (REPEAT, changing):
        assert rule.count(*["a=x"] * 20, **progress) == 0
        assert rule.count(*[f"a={at}" for at in range(20)], **progress) == 0
        assert rule.count("a=x", *["a=!failed"] * 3, **progress) == 4
        assert rule.count(*["a=x"] * 3, state_changing=["a"], per_tool={"a": {"changes_state": False}}) == 4
    assert similar.count("a111=x", "a112=x", pending="a113", **progress) == 0


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


@pytest.mark.parametrize("kept", [1, 15, 16, 17, 47, 48, 49, 111, 112, 113])
def test_a_pause_ends_it_wherever_it_is(kept: int) -> None:
    """Calls without a name leave no round behind."""
    made = rounds("7", *["a=x"] * 20, *["7", "a=x 7"] * kept, times=[0.0] * 21 + [500.0] * 2 * kept)[::-1]
    evidence = Timeline(made, 600.0).evidence()
    assert [len(round_.calls) for round_ in recent(evidence, LoopSettings())] == [1] * kept
    assert len(evidence.rounds) == kept + 20


def test_streaks_are_counted_so_far() -> None:
    """And as far as the highest limit."""
    assert REPEAT.count(*["a=x"] * 1000) == 1 + COUNTED
    changing = Rule(RepeatChanging(), max_repeats_changing=400)
    assert changing.count(*["a=x"] * 398) == 0
    assert changing.count(*["a=x"] * 399) == 400
    assert changing.found(*["a=x"] * 700).hard  # type: ignore[union-attr]


def test_a_dropped_round_counts() -> None:
    """A live streak survives compaction; an outcome that nobody knows counts as equal, as in any round."""
    assert REPEAT.count("-a=x", "-a=x", "a=x") == 4
    assert REPEAT.count("-a", "-a", "a=x") == 4
    assert REPEAT.count("-a=y", "-a", "a=x", "a=x") == 4
    assert not past("-a").call.has_arguments
