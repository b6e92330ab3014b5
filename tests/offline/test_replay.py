"""What is counted of which runs, by source and rule."""

from collections.abc import Iterable

from callfuse.detect.registry import KINDS
from callfuse.offline.replay import ANY, MAX_FAULTS, Replay, total
from callfuse.offline.runs import RecordedRun, Unreadable
from callfuse.policy.settings import MODES, LoopSettings
from tests.offline.test_judging import run_of

RULES = [*KINDS]
THREE = [["a"]] * 3
FIVE = [["b"], *([["a"]] * 4)]
QUIET = [["a"], ["a"], ["b"]]


def replayed(
    runs: Iterable[RecordedRun | Unreadable],
    settings: LoopSettings | None = None,
    rules: Iterable[str] = RULES,
    *,
    keep_runs: bool = False,
) -> Replay:
    """A replay of these runs."""
    replay = Replay(settings or LoopSettings(), list(rules), show=10, draw=10, keep_runs=keep_runs)
    for run in runs:
        replay.take(run)
    return replay


def test_runs_and_firings_by_outcome() -> None:
    """A run fires once, however often it does."""
    runs = [run_of(THREE, success=True), run_of(FIVE, success=False), run_of(QUIET, success=False), run_of(THREE)]
    figures = replayed(runs).figures["s"]
    fired = figures.fired[ANY]
    assert figures.runs == {True: 1, False: 2, None: 1}
    assert figures.calls == {True: 3, False: 8, None: 3}
    assert fired.runs == {True: 1, False: 1, None: 1}
    assert (fired.soft, fired.hard, fired.hard_runs) == (4, 0, {})


def test_saved_are_the_calls_from_the_first_that_is_withheld() -> None:
    """In failed runs only, to the end of the run, turns of later user messages included."""
    runs = [run_of(FIVE, [["c"]], success=False), run_of(THREE, [["c"]], success=True)]
    figures = replayed(runs).figures["s"]
    each = len('look"a"a')  # name, arguments, result
    assert figures.fired[ANY].saved_calls == 3
    assert figures.fired[ANY].saved_tokens == 3 * each // 4
    assert figures.failed_tokens == 6 * each // 4


def test_what_lets_calls_through_saves_none() -> None:
    """Under `warn` it fires all the same."""
    figures = replayed([run_of(FIVE, success=False)], LoopSettings(mode=MODES["warn"])).figures["s"]
    assert figures.fired[ANY].runs == {False: 1}
    assert figures.fired[ANY].saved_calls == 0


def test_hard_findings_are_counted_apart() -> None:
    """Six of the same are hard."""
    figures = replayed([run_of([["a"]] * 7, success=False)]).figures["s"]
    assert figures.fired[ANY].hard_runs == {False: 1}
    assert figures.fired[ANY].hard == 2


def test_rules_are_counted_apart_and_together() -> None:
    """Each that fired has a row, and a filter leaves the others out."""
    run = run_of(THREE, success=False)
    assert set(replayed([run]).figures["s"].fired) == {ANY, "repeat"}
    figures = replayed([run], rules=[]).figures["s"]
    assert set(figures.fired) == {ANY}
    assert figures.fired[ANY].runs == {}


def test_held_shares() -> None:
    """Of all calls, and of those of successful runs without a finding."""
    figures = replayed([run_of(QUIET, success=True), run_of(THREE, success=True)]).figures["s"]
    assert (figures.suspect[True], figures.held[True]) == (2, 2)
    assert (figures.quiet, figures.quiet_suspect, figures.quiet_held) == (3, 1, 1)


def test_runs_without_a_call_count_nowhere() -> None:
    """They cannot loop, and would dilute every share."""
    replay = replayed([run_of(success=True), run_of(THREE, success=True)])
    assert replay.empty == 1
    assert replay.figures["s"].runs == {True: 1}


def test_a_total_is_the_sum() -> None:
    """Of every figure of every source."""
    one, other = (
        replayed([run_of(FIVE, success=False)]).figures["s"],
        replayed([run_of(QUIET, success=True)]).figures["s"],
    )
    whole = total([one, other, one])
    both = replayed([run_of(FIVE, success=False)] * 2 + [run_of(QUIET, success=True)]).figures["s"]
    assert whole == both


def test_what_is_kept_is_bounded() -> None:
    """Findings, pictures and faults are kept up to their number; all of them are counted."""
    runs = [run_of(THREE, success=False) for _ in range(30)]
    faults = [Unreadable("f", at, "bad") for at in range(30)]
    replay = replayed([*runs, *faults])
    assert (len(replay.findings), len(replay.pictures["s"]), len(replay.faults)) == (10, 10, MAX_FAULTS)
    assert (replay.figures["s"].fired[ANY].runs[False], replay.fault_count) == (30, 30)
