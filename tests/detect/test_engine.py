"""The engine: what a whole round brings, and that whatever could be found was foreseen."""

from collections.abc import Iterator

import pytest

from callfuse.detect import Engine
from callfuse.model import Kind, Round, Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, calls, rounds, timeline

LOOP = ("b=y", "a=x", "a=x")
BLOCKED = (*LOOP, "!!a")


def judged(pending: str, *texts: str, refused: str = "") -> list[str]:
    """The ids of the calls in which something is found."""
    engine = Engine(timeline(*texts), LoopSettings())
    signatures = [call(word).signature for word in refused.split()]
    return [one.id for one, _ in engine.judge_round(calls(pending), signatures)]


@pytest.mark.parametrize(
    ("pending", "found"),
    [
        ("a", ["pending0"]),
        ("a a", ["pending0", "pending1"]),
        ("b a", ["pending1"]),
        ("a b", ["pending0"]),
        ("a c", []),
        ("c a", []),
        ("a a1", []),
        ("b", []),
        ("c", []),
        ("", []),
    ],
)
def test_a_round_is_judged_as_a_whole(pending: str, found: list[str]) -> None:
    """A new call beside the loop, before or after it, is progress; a known one is not."""
    assert judged(pending, *LOOP) == found


def test_two_loops_of_one_round() -> None:
    """Each is found by itself."""
    assert judged("b a", "a=x b=y", "b=y a=x") == ["pending0", "pending1"]


def test_news_does_not_free_what_was_refused() -> None:
    """In a steered answer the loop has had its chance; nor does it free a call that was blocked."""
    assert judged("a c", *LOOP, refused="a") == ["pending0"]
    assert judged("a c", *BLOCKED) == ["pending0"]


def test_a_call_without_a_name_is_no_evidence() -> None:
    """Neither found nor news."""
    engine = Engine(timeline("=x", "=x", "=x"), LoopSettings())
    assert engine.judge(call("")) is None
    assert not engine.is_news(call(""))
    assert judged("a ", *LOOP) == ["pending0"]


def test_the_hardest_finding_wins() -> None:
    """Six equal calls are soft as `repeat_changing` and hard as `repeat`."""
    finding = Engine(timeline(*["a=x"] * 5), LoopSettings()).judge(call("a"))
    assert finding is not None
    assert (finding.kind, finding.hard) == (Kind.REPEAT, True)


@pytest.mark.parametrize(
    ("texts", "suspects"),
    [((), []), (("a=x",), []), (("a=x", "a=x"), ["a"]), (("a=x", "a1=x"), []), (("a=x b=y", "b=y a=x"), ["a", "b"])],
)
def test_suspects(texts: tuple[str, ...], suspects: list[str]) -> None:
    """In a healthy timeline none; else the tools of which some call could be found."""
    assert sorted(Engine(timeline(*texts), LoopSettings()).suspects()) == suspects


def test_a_healthy_timeline_is_read_only_as_far_as_the_window_reaches() -> None:
    """Rounds are read from the request backwards, and no further than somebody looks."""
    read: list[int] = []

    def newest_first() -> Iterator[Round]:
        for at, round_ in enumerate(reversed(rounds(*[f"a{at}=x" for at in range(50)]))):
            read.append(at)
            yield round_

    assert Engine(Timeline(newest_first()), LoopSettings(window=12)).suspects() == []
    assert len(read) <= 14
