"""`stagnation`, rule by rule: different calls in a row bring the same. The pending call is `z` where none is named."""

import pytest

from callfuse.detect.stagnation import Stagnation
from tests.detect.timelines import Rule

RULE = Rule(Stagnation(), detectors={"stagnation": 4})


@pytest.mark.parametrize(
    ("rounds", "count"),
    [
        (("a=x", "b=x", "c=x"), 4),
        (("a1=x", "a2=x", "a3=x"), 4),
        (("a=x", "b=x"), 0),
        (("a=x", "b=y", "c=x"), 0),
        (("a=x", "b=x c=x"), 4),
        (("a=x", "c=x b=x a1=y"), 0),
        (("a=x", "b", "c=x"), 0),
        (("a=x", "b=x", "!b1", "c=x"), 4),
        (("a=x", "b=x", "a=x", "c=x"), 4),
        (("a=x", "b=x", "b=x", "c=x"), 0),
        (("a=!e", "b=!e", "c=!e"), 4),
        (("a=!e", "b=!f", "c=!e"), 0),
        (("z=x", "a=x", "b=x", "c=x"), 4),
        (("a=x", "b=x", "z=x"), 0),
    ],
)
def test_what_counts(rounds: tuple[str, ...], count: int) -> None:
    """Different calls with one known outcome; withheld ones are skipped, and a call that comes again ends it."""
    assert RULE.count(*rounds, pending="z") == count


def test_soft_hard_and_off() -> None:
    """Six and twelve where it is on; off by default."""
    past = [f"a{at}=x" for at in range(12)]
    on = {"detectors": {"stagnation": True}}
    for before in range(12):
        finding = RULE.found(*past[:before], pending="z", **on)  # type: ignore[arg-type]
        assert (finding.count if finding else 0) == (before + 1 if before >= 5 else 0)
        assert finding is None or (finding.threshold, finding.hard) == (6, before >= 11)
    assert RULE.count(*past, pending="z", detectors={}) == 0


def test_nearly_the_same() -> None:
    """Once a threshold is set, for short outcomes; the confidence tells."""
    rounds = ("a=the_file_a.txt_is_there", "b=the_file_b.txt_is_there", "c=the_file_c.txt_is_there")
    assert RULE.count(*rounds, pending="z") == 0
    finding = RULE.found(*rounds, pending="z", similarity_threshold=0.9)
    assert finding is not None
    assert finding.count == 4
    assert 0.9 <= finding.confidence < 1


def test_pollers_are_spared() -> None:
    """A stretch with one in it has five times the limit."""
    assert RULE.count("a=x", "wait=x", "c=x", pending="z") == 0
    assert RULE.count("wait=x", *[f"a{at}=x" for at in range(18)], pending="z") == 20


def test_a_finding_names_what_it_rests_on() -> None:
    """The calls, oldest first, and what they brought."""
    finding = RULE.found("a=x", "b=x", "c=x", pending="z")
    assert finding is not None
    assert (finding.kind, finding.calls, finding.previous) == ("stagnation", ("id0", "id1", "id2"), "came back x")
    assert not finding.ends_on_news
