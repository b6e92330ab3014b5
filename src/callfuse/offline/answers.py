"""Summarize a replay in one sentence: what the settings would have done, and whether to change them."""

from typing import Final

from callfuse.offline.replay import ANY, Figures, Fired, Replay, rules_of, total

LEAST_RUNS: Final = 20
"""Fewer runs are not enough: one run more or less would change a share too much."""
MOST_INTERRUPTED: Final = 0.05
"""The share of successful runs that may be interrupted, the same as the default of `callfuse tune`."""


def answer_of(replay: Replay) -> str:
    """Return the answer: change nothing, change this, or there are too few runs."""
    figures = total(replay.figures.values())
    runs, fired = figures.runs.total(), figures.fired[ANY]
    if runs < LEAST_RUNS:
        return f"No recommendation: {_runs(runs)} with a call or a finding; at least {LEAST_RUNS} are needed."
    if not fired.runs.total():
        return f"Change nothing: nothing was found in {_runs(runs)}."
    if not fired.acting_runs.total():
        found = f"callfuse would have withheld no call in {_runs(runs)}, and found something in {fired.runs.total():,}"
        return f"Change nothing: {found}."
    return _of_acting(figures, fired)


def _of_acting(figures: Figures, fired: Fired) -> str:
    good, acted = figures.runs[True], fired.acting_runs[True]
    if good >= LEAST_RUNS and acted > MOST_INTERRUPTED * good:
        rule = max(rules_of({"": figures})[1:], key=lambda one: figures.fired[one].acting_runs[True])
        what = f"callfuse would have interrupted {acted:,} of {good:,} successful runs ({acted / good:.1%})"
        how = f"most by {rule}: look at some (--show 5 --rule {rule}), and raise its limit, or use callfuse tune"
        return f"Change this first, because {what}, {how}."
    shares = [
        f"{fired.acting_runs[outcome]:,} of {many:,} {name} runs"
        for outcome, name in ((False, "failed"), (True, "successful"), (None, "unlabelled"))
        if (many := figures.runs[outcome])
    ]
    done = f"callfuse would have interrupted {' and '.join(shares)}"
    if good >= LEAST_RUNS:
        return f"Change nothing: {done}."
    few = f"the records call {_runs(good) if good else 'no run'} successful"
    return f"Look at some findings first (--show 5), because {few}: {done}."


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
