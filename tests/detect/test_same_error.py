"""`same_error`, rule by rule: rounds of one tool end in the same error, whatever the arguments."""

from collections.abc import Mapping

import pytest

from callfuse.detect import Engine, facts, same_error
from callfuse.model import Finding, PastCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline

ALONE = LoopSettings.model_validate({"detectors": {"known_pairs": False}})
FOUR = ("a1=!no_key", "a2=!no_key", "a3=!no_key", "a4=!no_key")


def test_each_round_of_a_history_is_judged_as_it_was() -> None:
    """What is found of all rounds in one walk is what is found of each of them as the newest."""
    rounds = [
        "b=x",
        *FOUR,
        "a5=!no_key",
        "!a",
        "a",
        "a6=!no_key",
        "b=y",
        *["a=!other"] * 4,
        "a=!no_key",
        "b=z",
        "a1=!no_key",
        *["a=!other", "a=!no_key"] * 4,
    ]
    whole = list(Engine(timeline(*rounds), ALONE).hindsights())
    assert [one and one.count for one in whole] == [count(*rounds[:end]) or None for end in range(len(rounds), 0, -1)]
    assert [one.count for one in whole if one] == [5, 4, 4, 4, 8, 5, 4]


def found(*texts: str, detectors: Mapping[str, object] | None = None, **settings: object) -> Finding | None:
    """What the results of these rounds show; of this kind only."""
    chosen = LoopSettings.model_validate({"detectors": {"known_pairs": False, **(detectors or {})}, **settings})
    return next(Engine(timeline(*texts), chosen).hindsights(), None)


def count(*texts: str, detectors: Mapping[str, object] | None = None, **settings: object) -> int:
    """The rounds of it; 0 where nothing is found."""
    finding = found(*texts, detectors=detectors, **settings)
    return finding.count if finding else 0


def test_four_rounds_and_never_hard() -> None:
    """Judged when the fourth result is known."""
    assert count(*FOUR[:3]) == 0
    assert count(*FOUR) == 4
    finding = found(*FOUR * 5)
    assert finding is not None
    assert (finding.count, finding.hard, finding.ends_on_news) == (20, False, False)


def test_the_limit_and_off() -> None:
    """As of every detector; one tool may be left out."""
    assert count(*FOUR, detectors={"same_error": 5}) == 0
    assert count(*FOUR[:2], detectors={"same_error": 2}) == 2
    assert count(*FOUR, detectors={"same_error": False}) == 0
    assert count(*FOUR, per_tool={"a": {"enabled": False}}) == 0
    assert count(*FOUR, max_repeats=0) == 4


@pytest.mark.parametrize(
    "last",
    ["a4=!other_words", "a4=fine", "a4", "b4=!no_key", "a4=!no_key b=!no_key", "a4=!no_key a5=fine", "a4=^no_key", ""],
)
def test_what_is_none(last: str) -> None:
    """Another error, a success, a result that is not known; another tool; a cause outside."""
    assert count(*FOUR[:3], *filter(None, [last])) == 0


def test_what_stands_between_ends_it() -> None:
    """A success, another tool, a cause outside."""
    for between in ("a=fine", "b=!no_key", "a=^no_key", "a=!other_words a5=fine"):
        assert count(*FOUR[:2], between, *FOUR[2:]) == 0


def test_another_failure_in_between_ends_nothing_and_does_not_count() -> None:
    """It is no way out when the error comes back; each error has its own count, the highest of a round is told."""
    assert count(*FOUR[:2], "a=!other_words", *FOUR[2:]) == 4
    assert count(*FOUR[:3], "a=!other_words", "a=!third_kind", FOUR[3]) == 4
    to_and_fro = ["a1=!no_key", "a2=!other_words"] * 4
    assert [count(*to_and_fro[:end]) for end in range(5, 9)] == [0, 0, 4, 4]
    assert count("a1=!no_key a2=!other_words", *FOUR[1:]) == 4
    assert count(*["a1=!no_key a2=!other_words"] * 4) == 4
    finding = found(*FOUR[:2], "a=!other_words", *FOUR[2:])
    assert finding is not None
    assert (finding.calls, finding.previous) == (("id0", "id1", "id3", "id4"), "Error: no key")


CIRCLE = ("read=x", "edit1=!no_key", "read=x", "edit2=!no_key", "read=x", "edit3=!no_key", "read=x", "edit4=!no_key")


def test_a_success_that_brings_nothing_new_ends_nothing() -> None:
    """Read, fail to edit, read the same again: it does not count, whatever its tool and however far back it was."""
    assert [count(*CIRCLE[:end]) for end in range(5, 9)] == [0, 0, 0, 4]
    assert count(*CIRCLE * 2) == 8
    assert count(*CIRCLE, "read=x") == 0
    assert count(*["edit=fine", *(part for at in range(4) for part in ("edit=fine", f"edit{at + 1}=!no_key"))]) == 4
    many = [f"read{at}=x" for at in range(30)]
    assert count(*many, FOUR[0], *many, FOUR[1], *many, FOUR[2], *many, FOUR[3]) == 4
    assert count(*["read=x a1=!no_key", "read=x a2=!no_key"] * 2, "read=x a3=!no_key") == 4
    assert count("read=x", FOUR[0], "read=x read=x", FOUR[1], "read=x", *FOUR[2:]) == 4


def test_a_success_that_brings_news_ends_it() -> None:
    """Another call, another result, one that changes something, one that came after a pause."""
    for between in ("read1=x", "read=y", "read=x read1=x", "read=x b=!other"):
        assert count("read=x", *FOUR[:2], between, *FOUR[2:]) == 0
    assert count(*CIRCLE, state_changing=["read"]) == 0
    assert count("read=x", FOUR[0], "read", *FOUR[1:]) == 0


def test_circles_cost_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the rounds are twice the looks at results, whether anything is found in them or not."""

    def looks(*rounds: str) -> int:
        seen = 0

        def counted(one: PastCall) -> bool:
            nonlocal seen
            seen += 1
            return succeeded(one)

        monkeypatch.setattr(same_error, "succeeded", counted)
        monkeypatch.setattr(facts, "succeeded", counted)
        past = timeline(*rounds)
        list(Engine(past, LoopSettings()).hindsights())
        return seen

    succeeded = facts.succeeded
    for laps in (CIRCLE, [*["read=x"] * 20, "edit=^slow"], [*["read=x"] * 20, "edit=!no_key", "other=!no_key"]):
        assert looks(*laps * 40) < 2.5 * looks(*laps * 20)


def test_unknown_and_withheld_results_are_left_out() -> None:
    """They count, and may be anything."""
    assert count(FOUR[0], "a2", "!a3", FOUR[3]) == 4
    assert count("a1", "a2", "a3", FOUR[3]) == 4
    assert count("a0", "a1", *FOUR) == 6


def test_parallel_calls_are_one_round() -> None:
    """Four failures at once are one piece of evidence."""
    assert count(" ".join(FOUR)) == 0
    assert count(*[" ".join(FOUR[:2])] * 4) == 4


def test_names_that_an_error_repeats_do_not_matter() -> None:
    """As long as they come again. A guess at another name is news of a kind: mostly such, it takes twice as many."""
    errors = [f"a{at}=!no_column_'{name}'" for at, name in enumerate("xyxyabcdefgh")]
    assert count(*errors[:4]) == 4
    assert count(*errors[:5]) == 0
    assert count(*errors[4:11]) == 0
    assert count(*errors[4:]) == 8
    assert count(*["a1=!no_file_'x' a2=!no_file_'y' a3=!no_file_'z'"] * 4) == 4


def test_pollers_are_not_spared() -> None:
    """Failing is no waiting."""
    assert count("wait1=!no_key", "wait2=!no_key", "wait3=!no_key", "wait4=!no_key") == 4


def test_a_pause_and_a_change_of_state_end_it() -> None:
    """As every streak; a failure has changed nothing."""
    times = [0.0, 1.0, 2.0, 3.0]
    for now, expected in ((4.0, 4), (304.0, 0)):
        engine = Engine(timeline(*FOUR, times=times, now=now), LoopSettings())
        assert (next(engine.hindsights(), None) is not None) is bool(expected)
    assert count(*FOUR, state_changing=["a"]) == 4


def test_a_finding_names_what_it_rests_on() -> None:
    """The failed calls, oldest first, and the last error."""
    finding = found(*FOUR)
    assert finding is not None
    assert (finding.kind, finding.tool, finding.threshold) == ("same_error", "a", 4)
    assert (finding.calls, finding.previous) == (("id0", "id1", "id2", "id3"), "Error: no key")


def test_nothing_and_no_name() -> None:
    """A timeline without rounds shows nothing; calls without a name are no evidence."""
    assert count() == 0
    assert count("=!no_key", "=!no_key", "=!no_key", "=!no_key") == 0
