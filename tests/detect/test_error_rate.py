"""`error_rate`, rule by rule: most of the last results are errors."""

from collections.abc import Sequence

from callfuse.detect import Engine
from callfuse.detect.registry import KINDS
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline

EIGHT = [f"{tool}=!{tool}_fails" for tool in "abcdefgh"]


def count(*texts: str, times: Sequence[float | None] = (), now: float = 0.0, limit: object = True) -> int:
    """The errors of it; 0 where nothing is found."""
    off = dict.fromkeys([kind for kind, own in KINDS.items() if own.most], False)
    chosen = LoopSettings.model_validate({"detectors": off | {"error_rate": limit}})
    finding = next(Engine(timeline(*texts, times=times, now=now), chosen).hindsights(), None)
    assert finding is None or (finding.kind, finding.hard) == ("error_rate", False)
    return finding.count if finding else 0


def test_eight_of_ten_whatever_they_are() -> None:
    """Told with an error, not with a success; off by default, and with a limit of its own."""
    assert [count(*EIGHT[:end]) for end in (7, 8)] == [0, 8]
    assert count("x=fine", *EIGHT[:4], "y=fine", *EIGHT[4:]) == 8
    assert count(*EIGHT[:2], "x=fine", *EIGHT[2:4], "y=fine", *EIGHT[4:6], "z=fine", *EIGHT[6:]) == 0
    assert count(*EIGHT, "x=fine") == 0
    assert count(*EIGHT, limit=False) == 0
    assert count(*EIGHT[:4], limit=4) == 4
    assert LoopSettings().limit_of("error_rate") == 0


def test_what_does_not_count() -> None:
    """What waiting mends, what is not known or was withheld; what stands before a pause."""
    assert count(*["a=^slow"] * 20) == 0
    assert count(*EIGHT[:7], "a=^slow", "b", "!c", EIGHT[7]) == 8
    assert count(*EIGHT, times=[*map(float, range(8))], now=400.0) == 0
    assert count(*EIGHT, times=[*map(float, range(7)), 400.0], now=401.0) == 0


def test_equal_calls_of_one_round_count_once() -> None:
    """Different ones each."""
    assert count(*["a=!x a=!x"] * 4) == 0
    assert count("a=!x b=!y", "a=!x b=!y", "a=!x b=!y", "a=!x b=!y") == 8
