"""`repeat_with_notes`, rule by rule: the same calls and results, and nothing but notes in between or beside."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.repeat_with_notes import RepeatWithNotes
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, call, timeline
from tests.support.work import lines_run

RULE = Rule(RepeatWithNotes())


def laps(*own: str, of: int = 9, note: str = "todowrite") -> list[str]:
    """The same rounds, and a note with new text behind each."""
    return [word for at in range(of) for word in (*own, f"{note}{at}=ok")]


def beside(own: str, note: str, of: int = 9) -> list[str]:
    """The same calls, each time with a new one of another tool in one answer."""
    return [f"{own} {note}{at}=ok" for at in range(of)]


def test_a_note_between() -> None:
    """From the tenth equal round on; another call is none of them."""
    assert [RULE.count(*laps("a=x", of=of)) for of in (8, 9, 19)] == [0, 10, 20]
    assert not RULE.count(*laps("a=x", of=12), pending="a1")
    finding = RULE.found(*laps("a=x"))
    assert finding is not None
    assert (finding.kind, finding.tool, finding.count, finding.threshold) == ("repeat_with_notes", "a", 10, 10)
    assert finding.hard
    assert not finding.ends_on_news
    assert finding.calls == tuple(f"id{2 * at}" for at in range(9))


@pytest.mark.parametrize("note", ["update_plan", "sequentialthinking", "report_progress", "memory_store", "think"])
def test_a_note_beside(note: str) -> None:
    """In the same round, or now and then."""
    assert RULE.count(*beside("a=x", note)) == 10
    assert RULE.count("a=x", "a=x", f"{note}1=ok", f"{note}2=ok", *["a=x"] * 7) == 10


def test_several_calls() -> None:
    """A round is compared without its notes."""
    assert RULE.count(*beside("a=x b=y", "todowrite"), pending="b") == 10
    assert not RULE.count(*[f"a=x b{at}=y todowrite{at}=ok" for at in range(9)])


@pytest.mark.parametrize("other", ["look", "edit", "todoread"])
def test_what_is_no_note_is_progress(other: str) -> None:
    """Any other call, in between or beside."""
    assert not RULE.count(*laps("a=x", note=other, of=12))
    assert not RULE.count(*beside("a=x", other, of=12))


def test_another_result_is_progress() -> None:
    """Whatever has been noted."""
    assert not RULE.count(*laps("a=x"), *laps("a=y", of=8))
    assert RULE.count(*laps("a=x"), *laps("a=y")) == 10


def test_without_a_note() -> None:
    """It is a plain repeat; and notes alone are none."""
    assert not RULE.count(*["a=x"] * 12)
    assert not RULE.count(*[f"todowrite{at}=ok" for at in range(12)], pending="todowrite12")


@pytest.mark.parametrize("own", ["a=~the_build", "a=^slow", "wait_for_job=x", "a@=x", "scroll=ok"])
def test_what_waits_or_acts_on_a_screen_says_nothing(own: str) -> None:
    """It comes again by its nature."""
    assert not RULE.count(*laps(own, of=12), pending=own.partition("=")[0])


def test_withheld_calls_count() -> None:
    """They were to be the same once more, and show no result."""
    assert RULE.count(*laps("a=x"), "!a") == 11


def test_notes_stand_near() -> None:
    """Up to three rounds of nothing else in between."""
    for between, count in ((3, 11), (4, 0)):
        notes = [[f"think{at}{n}=ok" for n in range(between)] for at in range(10)]
        assert RULE.count(*[word for of_lap in notes for word in ("a=x", *of_lap)]) == count, between


def test_a_pause_ends_it() -> None:
    """Longer than `ttl_seconds`."""
    assert RULE.count(*laps("a=x"), now=18.0, times=[*map(float, range(18))])
    assert not RULE.count(*laps("a=x"), now=900.0, times=[*map(float, range(18))])


def test_settings() -> None:
    """Off, another limit, other tools, a change that is declared."""
    assert not RULE.count(*laps("a=x"), detectors={"repeat_with_notes": False})
    assert not RULE.count(*laps("a=x"), detectors={"repeat_with_notes": 11})
    assert RULE.count(*laps("a=x", of=3), detectors={"repeat_with_notes": 4}) == 4
    assert not RULE.count(*laps("a=x"), note_tools=["look"])
    assert RULE.count(*laps("a=x", note="look"), note_tools=["look"]) == 10
    assert not RULE.count(*laps("a=x"), state_changing=["todowrite"])


def test_a_call_that_goes_on_is_acted_on() -> None:
    """With a note beside it too, which is no news; it is warned of from the sixth on."""
    pending = [call("read"), call("todowrite77")]
    engine = Engine(timeline(*laps("read=x")), LoopSettings())
    assert [(one.name, finding.kind) for one, finding in engine.judge_round(pending)] == [("read", "repeat_with_notes")]
    assert not Engine(timeline(*laps("read=x", of=8)), LoopSettings()).judge_round(pending)
    for words in (laps("read=x", of=6)[:-1], beside("read=x", "todowrite", of=6)):
        told = [*Engine(timeline(*words), LoopSettings()).hindsights()][::-1]
        assert [one is not None for one in told] == [False] * (len(told) - 1) + [True]


def test_it_is_read_in_linear_time() -> None:
    """However often."""

    def work(size: int) -> int:
        past = timeline(*laps("a=x", of=size))
        return lines_run(lambda: Engine(past, LoopSettings()).judge_round([call("a")]))

    work(10)
    assert work(120) < 8 * work(20)
