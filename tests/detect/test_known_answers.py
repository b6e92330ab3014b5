"""What callfuse answers to the runs that other loop detectors are known by; docs/detection.md has the same tables."""

import pytest

from tests.detect.known_answers import ANSWERS, RULES, KnownAnswer

NAMES = [f"{one.project}: {one.case}" for one in ANSWERS]


@pytest.mark.parametrize("known", ANSWERS, ids=NAMES)
def test_known_answers(known: KnownAnswer) -> None:
    """The first finding, and the first that acts, are those that the table says."""
    assert known.found() == known.ours


def test_the_answers_are_of_known_projects() -> None:
    """Each run once; every project has its rule, and all but the one that counts no calls have a run."""
    assert len(set(NAMES)) == len(NAMES)
    projects = dict.fromkeys(one.project for one in ANSWERS)
    assert list(projects) == [name for name in RULES if name != "LoopBrake"]


def test_a_difference_has_its_reason() -> None:
    """Where one of the two finds something and the other nothing, the table says why."""
    nothing = [(one.theirs.split(":")[0] in ("nothing", "never counted"), one.ours == "nothing") for one in ANSWERS]
    differ = [one for one, (theirs, ours) in zip(ANSWERS, nothing, strict=True) if theirs != ours]
    assert [one.case for one in differ if not one.why] == []
