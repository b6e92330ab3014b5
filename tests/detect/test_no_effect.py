"""`no_effect`, rule by rule: the same result of one call, whatever is changed in between."""

from collections.abc import Sequence

import pytest

from callfuse.detect import Engine
from callfuse.model import Finding
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline
from tests.support.work import lines_run

ALONE = {"known_pairs": False, "same_error": False, "failing_tool": False, "no_effect": True}


def found(*texts: str, now: float = 0.0, times: Sequence[float | None] = (), **detectors: object) -> Finding | None:
    """What the results of these rounds show."""
    settings = LoopSettings.model_validate({"detectors": {**ALONE, **detectors}})
    return next(Engine(timeline(*texts, times=times, now=now), settings).hindsights(), None)


def counts(*texts: str) -> list[int]:
    """After each of the rounds; 0 where nothing is found."""
    findings = [found(*texts[: at + 1]) for at in range(len(texts))]
    return [one.count if one else 0 for one in findings]


def laps(result: str, *, of: int = 7, edit: str = "edit") -> list[str]:
    """An edit that is new each time, and the same test after each."""
    return [word for at in range(of) for word in (f"{edit}{at}=ok", f"test={result}")]


@pytest.mark.parametrize("result", ["one_failed", "!one_failed"])
def test_edits_that_change_nothing(result: str) -> None:
    """From the sixth equal result on, be it an error or not."""
    assert counts(*laps(result)) == [0] * 11 + [6, 0, 7]
    finding = found(*laps(result, of=6))
    assert finding is not None
    assert (finding.kind, finding.tool, finding.count, finding.threshold) == ("no_effect", "test", 6, 6)
    assert not finding.hard


def test_another_result_is_progress() -> None:
    """Be it another number in an error only."""
    words = laps("!2_failed", of=5) + laps("!1_failed", of=5)
    assert counts(*words) == [0] * 20


def test_something_must_be_changed() -> None:
    """By a call that succeeds, another one than that, before at least half of the results."""
    assert counts(*laps("one_failed", edit="read")) == [0] * 14
    assert counts(*[word.replace("test", "read") for word in laps("all_there")]) == [0] * 14, "a reader"
    assert counts(*[word.replace("=ok", "=!broken") for word in laps("one_failed")]) == [0] * 14
    assert counts(*["write=done", "test=x"] * 7)[-1] == 7, "a change that is repeated"
    assert counts(*[f"write=done look{at}=x" for at in range(7)]) == [0] * 7
    rare = [word for word in laps("one_failed") if not word.startswith("edit") or word[4] in "12"]
    assert counts(*rare) == [0] * len(rare)


@pytest.mark.parametrize("result", ["~the_build", "^slow"])
def test_what_waits_says_nothing(result: str) -> None:
    """Nor does what will be mended by waiting."""
    assert counts(*laps(result)) == [0] * 14


def test_they_stand_near_one_another() -> None:
    """Within 40 calls."""
    for between, is_near in ((5, True), (6, False)):
        lap = " ".join(f"look{at}=x" for at in range(between))
        words = [word for at in range(6) for word in (f"edit{at}=ok", lap, "test=one_failed")]
        assert bool(found(*words)) is is_near, between


def test_a_pause_ends_it() -> None:
    """Longer than `ttl_seconds`."""
    words = laps("one_failed", of=6)
    assert found(*words, now=12.0, times=[*map(float, range(12))])
    assert not found(*words, now=900.0, times=[*map(float, range(11)), 899.0])


def test_settings() -> None:
    """Off by default, another limit."""
    words = laps("one_failed", of=8)
    assert not any(Engine(timeline(*words), LoopSettings()).hindsights())
    assert found(*words, no_effect=False) is None
    assert found(*words, no_effect=9) is None
    assert found(*words, no_effect=8)


def test_it_is_read_in_linear_time() -> None:
    """However often."""

    def work(size: int) -> int:
        words = laps("one_failed", of=size)
        settings = LoopSettings.model_validate({"detectors": ALONE})
        return lines_run(lambda: [*Engine(timeline(*words), settings).hindsights()])

    work(10)
    assert work(400) < 5 * work(100)
