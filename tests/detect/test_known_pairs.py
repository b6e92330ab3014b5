"""`known_pairs`, rule by rule: within some rounds, known calls bring their known results, and nothing has changed."""

from collections.abc import Mapping, Sequence

import pytest

from callfuse.detect import Engine, effects, known_pairs
from callfuse.detect.effects import Effect
from callfuse.detect.registry import KINDS
from callfuse.detect.settings import Settings
from callfuse.model import Finding, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline

READS = ("read=x", "list=y", "view=z", "get=v", "list=y", "view=z", "read=x", "get=v", "view=z")
"""Five of the last eight are known."""


def found(
    *texts: str,
    now: float = 0.0,
    times: Sequence[float | None] = (),
    detectors: Mapping[str, object] | None = None,
    **settings: object,
) -> Finding | None:
    """What the results of these rounds show; of this kind only."""
    chosen = LoopSettings.model_validate({"detectors": {"same_error": False, **(detectors or {})}, **settings})
    return next(Engine(timeline(*texts, times=times, now=now), chosen).hindsights(), None)


def count(*texts: str, detectors: Mapping[str, object] | None = None, **settings: object) -> int:
    """The rounds of it; 0 where nothing is found."""
    finding = found(*texts, detectors=detectors, now=0.0, times=(), **settings)
    return finding.count if finding else 0


def counts(*texts: str) -> list[int]:
    """After each of the rounds."""
    return [count(*texts[: at + 1]) for at in range(len(texts))]


def test_known_pairs() -> None:
    """More than half of the last eight rounds, in whatever order; never hard."""
    assert counts(*READS) == [0] * 8 + [5]
    finding = found(*READS, "find=u", "list=y")
    assert finding is not None
    assert (finding.kind, finding.count, finding.threshold, finding.hard) == ("known_pairs", 6, 4, False)
    assert (finding.tool, finding.calls, finding.previous) == (
        "list",
        ("id4", "id5", "id6", "id7", "id8", "id10"),
        "came back y",
    )


def test_whatever_they_do() -> None:
    """Known calls of tools of which nobody can say what they do count like reads."""
    assert counts("a=x", "run2=z", "run1=y", *["run2=z", "a=x", "run1=y", "a=x"] * 2) == [0] * 9 + [5, 6]


def test_one_call_with_one_error() -> None:
    """Four times, whatever was read in between; an error of other words is another one."""
    failing = ["run=!no", "read=x", "run=!no", "read1=x", "run=!no", "read2=x", "run=!no"]
    assert counts(*failing) == [0] * 6 + [4]
    assert count(*[text.replace("run=!no", "run=!never") if at == 2 else text for at, text in enumerate(failing)]) == 0
    assert count(*[text.replace("run=", f"run{at}=") for at, text in enumerate(failing)]) == 0


@pytest.mark.parametrize(
    "work", ["edit{}=done", "edit{}", "patcher{}=done", "edit=version_{}", "a{}=x edit{}=done", "-edit{}=done"]
)
def test_work_is_none(work: str) -> None:
    """To change something, or what may be a change, and to run the same failing test: however often."""
    laps = []
    for at in range(30):
        own = "abcdefghij"[at % 10] * (at + 1) if "_" in work else at + 1
        laps += [work.format(own, own), "test=!red", "read=x"]
    settings = LoopSettings.model_validate({"detectors": {"failing_tool": False}})
    assert not any(Engine(timeline(*laps), settings).hindsights())


@pytest.mark.parametrize("change", ["edit=done", "edit9=!refused", "!edit9", "search9=x"])
def test_what_is_no_change(change: str) -> None:
    """A known one, one that failed, one that never ran, and reading."""
    assert count("edit=done", *READS[:6], change, *READS[6:], "list=y") >= 5


def test_a_change_begins_anew() -> None:
    """And what is declared to change something is one each time it succeeds."""
    assert count(*READS[:-1], "edit=done", READS[-1]) == 0
    assert count(*READS, "edit=done", "read=x", "list=y") == 0
    assert count("a=x", *READS[:-1], "a=x", READS[-1], state_changing=["a"]) == 0
    assert count("a=x", *READS[:-1], "a=x", READS[-1]) == 6


def test_only_the_last_rounds_count() -> None:
    """Twice as many as the limit, or twenty; what stands before may be known from any time."""
    new = [f"search{at + 1}=x" for at in range(30)]
    assert count(*READS[:-1], *new[:4], READS[-1]) == 0
    assert count(*READS[:4], *new, *READS[4:]) == 5
    assert count("run=!no", "run=!no", "run=!no", *new[:17], "run=!no") == 4
    assert count("run=!no", "run=!no", "run=!no", *new[:18], "run=!no") == 0


def test_a_round_is_one() -> None:
    """To read four files again at once is one known round; one new call beside them, and it is none."""
    four = "read=x list=y view=z get=v"
    assert counts(*[four] * 6) == [0, 0, 0, 0, 0, 5]
    assert count(four, *[f"{four} read{at}=x" for at in range(1, 9)]) == 0
    assert count("read=x read=x read=x read=x read=x read=x") == 0


@pytest.mark.parametrize("says_nothing", ["read=~busy", "read=^slow_down", "wait=x", "read@=x", "read", "!read"])
def test_what_says_nothing(says_nothing: str) -> None:
    """What waits, failed for a cause outside, is not known or never ran."""
    assert count(*[says_nothing] * 12) == 0
    assert count(*READS[:-1], *[says_nothing] * 30, READS[-1]) == 5


def test_other_results_are_news() -> None:
    """Of a known call, too."""
    assert count(*[f"read={letter}" for letter in "abcdefghij"]) == 0


def test_a_pause_begins_anew() -> None:
    """Between two rounds, or now."""
    times: list[float | None] = [float(at) for at in range(9)]
    assert found(*READS, times=times, now=9.0) is not None
    assert found(*READS, times=times, now=400.0) is None
    assert found(*READS, times=[*times[:8], 400.0], now=401.0) is None


def test_the_limit_and_off() -> None:
    """For all tools, or for one: of a tool for which it is off nothing counts."""
    assert count(*READS, detectors={"known_pairs": 5}) == 0
    assert count(*READS, "list=y", "get=v", detectors={"known_pairs": 5}) == 7
    assert count(*READS[:7], detectors={"known_pairs": 2}) == 3
    assert count(*READS, detectors={"known_pairs": False}) == 0
    assert count(*READS, per_tool={"view": {"enabled": False}}) == 0
    assert count(*READS, per_tool={"view": {"detectors": {"known_pairs": 5}}}) == 0


def test_its_cost_is_linear_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the rounds are twice the calls that are looked at; none where calls do not come again near one another."""
    looked = 0

    def counted(call: ToolCall, settings: Settings) -> Effect:
        nonlocal looked
        looked += 1
        return effects.effect_of(call, settings)

    def looks(*rounds: str) -> int:
        nonlocal looked
        looked = 0
        list(Engine(timeline(*rounds), LoopSettings()).hindsights())
        return looked

    monkeypatch.setattr(known_pairs, "effect_of", counted)
    assert looks(*READS * 40) < 2.1 * looks(*READS * 20)
    assert looks(*[f"read{at}=x" for at in range(200)]) == 0
    again = [f"search{at}=x" if at % 12 else "read=x" for at in range(200)]
    assert looks(*again) == 0


@pytest.mark.parametrize("round_", ["a=!e b=!e", "b=!e a=!e"])
def test_calls_that_fail_equally_often_all_count(round_: str) -> None:
    """Whatever their order in a round: where such calls are withheld, each of them is a suspect."""
    only = {**dict.fromkeys(KINDS, False), "known_pairs": {"limit": 3, "most": "block"}}
    settings = LoopSettings.model_validate({"detectors": only})
    assert {*Engine(timeline(*[round_] * 3, tools={"a", "b"}), settings).suspects()} == {"a", "b"}
