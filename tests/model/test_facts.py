"""What one walk over a timeline tells: which calls have come before, in how many rounds in a row."""

import pytest

from callfuse.model.facts import Facts
from tests.detect.timelines import timeline


@pytest.mark.parametrize(
    ("texts", "again", "repeated"),
    [
        ((), [], 0),
        (("a=x", "b=x", "c=x"), [0, 0, 0], 0),
        (("a=x", "a=y", "a"), [0, 1, 2], 2),
        (("a=x", "b=x", "a=x", "b=x"), [0, 0, 1, 2], 2),
        (("a=x", "a=x b=x", "c=x", "b=x"), [0, 1, 0, 1], 2),
        (("a=x a=x", "b=x"), [0, 0], 1),
        (("!a", "!a"), [0, 1], 1),
        (("a=x", "=q", "a=x"), [0, 0, 1], 1),
        (("a=x", "a=x", "=q", "a=x"), [0, 1, 0, 2], 2),
    ],
)
def test_what_comes_again(texts: tuple[str, ...], again: list[int], repeated: int) -> None:
    """Rounds in a row count, beyond those whose calls have no name; equal calls of one round are no earlier ones."""
    facts = Facts(timeline(*texts).rounds)
    assert [*facts.again][::-1] == again
    assert (facts.repeated, facts.calls) == (repeated, sum(len(text.split()) for text in texts))
    assert facts.has_nameless is ("=q" in texts)


def test_it_is_worked_out_once() -> None:
    """Whoever asks gets what has been worked out, by the count that is asked for."""
    facts, asked = Facts(timeline("a=x", "a=x").rounds), []

    def work_out(of: Facts, least: int) -> bool:
        asked.append((of, least))
        return of.repeated >= least

    assert [facts.memoized(work_out, least) for least in (1, 2, 1, 2)] == [True, False, True, False]
    assert asked == [(facts, 1), (facts, 2)]


def test_the_facts_of_a_timeline_are_those_of_its_rounds() -> None:
    """The same object however often it is asked for; of a timeline one round on they are others."""
    past = timeline("a=x", "a=x")
    assert past.facts is past.facts
    assert past.after(past.rounds[0].calls).facts.again == [2, 1, 0]
