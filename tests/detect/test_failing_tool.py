"""`failing_tool`, rule by rule: one tool fails with the same error each time, whatever succeeds in between."""

from collections.abc import Sequence

import pytest

from callfuse.detect import Engine
from callfuse.model import Finding
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline
from tests.support.work import lines_run

ALONE = {"same_error": False, "known_pairs": False}


def found(*texts: str, now: float = 0.0, times: Sequence[float | None] = (), **detectors: object) -> Finding | None:
    """What the results of these rounds show."""
    settings = LoopSettings.model_validate({"detectors": {**ALONE, **detectors}})
    return next(Engine(timeline(*texts, times=times, now=now), settings).hindsights(), None)


def counts(*texts: str) -> list[int]:
    """After each of the rounds; 0 where nothing is found."""
    findings = [found(*texts[: at + 1]) for at in range(len(texts))]
    return [one.count if one else 0 for one in findings]


def laps(error: str, *between: str, of: int = 6, tool: str = "edit") -> list[str]:
    """A tool that fails with other arguments each time, and a new call of another tool after each."""
    return [word for at in range(of) for word in (f"{tool}{at}=!{error}", *[f"{one}{at}=ok" for one in between])]


def test_a_tool_that_fails_each_time() -> None:
    """From the fifth failure on, whatever other tools bring."""
    assert counts(*laps("broken", "look")) == [0] * 8 + [5, 0, 6, 0]
    finding = found(*laps("broken", "look", of=5)[:-1])
    assert finding is not None
    assert (finding.kind, finding.tool, finding.count, finding.threshold) == ("failing_tool", "edit", 5, 5)
    assert not finding.hard
    assert finding.calls == ("id0", "id2", "id4", "id6", "id8")


@pytest.mark.parametrize("ends", ["edit9=done", "edit9=!other_words"])
def test_its_own_success_ends_it(ends: str) -> None:
    """So does another error of its own."""
    assert counts(*laps("broken", "look", of=4), ends, *laps("broken", "look", of=4)) == [0] * 17


@pytest.mark.parametrize("says_nothing", ["edit9=^slow", "!edit9"])
def test_what_says_nothing_ends_nothing(says_nothing: str) -> None:
    """An error that waiting mends, a withheld call."""
    words = [*laps("broken", "look", of=4), says_nothing, *laps("broken", "look", of=1)]
    assert counts(*words) == [0] * 9 + [5, 0]


def test_what_is_changed_ends_it() -> None:
    """A test that fails after each edit is no broken tool; an edit that fails changes nothing."""
    assert counts(*laps("failed", "write", tool="test")) == [0] * 12
    assert counts(*[word for at in range(5) for word in (f"edit{at}=!broken", f"write{at}=!denied")])[8] == 5


def test_a_shell_is_no_such_tool() -> None:
    """What fails in it is the command."""
    assert counts(*laps("broken", "look", tool="bash")) == [0] * 12


def test_guesses_take_twice_as_many() -> None:
    """An error that names something new each time is news of a kind."""
    names = "bcdefghijklm"
    words = [word for at, name in enumerate(names) for word in (f"open{at}=!no_file_'{name}'", f"look{at}=ok")]
    assert counts(*words) == [0] * 18 + [10, 0, 11, 0, 12, 0]


def test_parallel_failures_are_one() -> None:
    """Those of one round count once, and a success among them ends it."""
    failed = [f"edit{2 * at}=!broken edit{2 * at + 1}=!broken look{at}=ok" for at in range(6)]
    assert counts(*failed) == [0] * 4 + [5, 6]
    assert counts(*[f"{one} edit99=done" for one in failed]) == [0] * 6


def test_a_pause_ends_it() -> None:
    """Longer than `ttl_seconds`."""
    words = laps("broken", "look", of=5)[:-1]
    assert found(*words, now=9.0, times=[*map(float, range(9))])
    assert not found(*words, now=900.0, times=[*map(float, range(8)), 899.0])


def test_settings() -> None:
    """Off, another limit."""
    words = laps("broken", "look", of=9)[:-1]
    assert found(*words, failing_tool=False) is None
    assert found(*words, failing_tool=10) is None
    assert found(*words, failing_tool=9)


def test_it_is_read_in_linear_time() -> None:
    """Whatever fails."""

    def work(size: int) -> int:
        words = laps("broken", "look", of=size)
        settings = LoopSettings.model_validate({"detectors": ALONE})
        return lines_run(lambda: [*Engine(timeline(*words), settings).hindsights()])

    work(10)
    assert work(400) < 5 * work(100)


def test_of_two_errors_in_one_round_the_known_one_counts() -> None:
    """Whatever their order."""
    known = [f"edit{at}=!broken" for at in range(4)]
    assert counts(*known, "edit8=!broken edit9=!other_words") == [0, 0, 0, 0, 5]
    assert counts(*known, "edit9=!other_words edit8=!broken") == [0, 0, 0, 0, 5]
    mixed = [" ".join([f"edit{at}=!broken", f"edit{at + 9}=!other_words"][:: 1 - at % 2 * 2]) for at in range(5)]
    assert counts(*mixed) == [0, 0, 0, 0, 5]
