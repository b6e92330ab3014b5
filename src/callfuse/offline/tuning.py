"""Set limits from a user's own successful runs, so that at most a given share of such runs is interrupted.

`Tuning` scores each recorded run on one scale of settings, from lenient to strict. `tune` sets a line through the
scores of the successful runs of a source (`offline/conformal.py`).

A line on the scale is a pair of points and weighted calls. Settings at a line interrupt a run exactly if its score is
beyond the line, because the score is computed with the guard's own engine.

- Points move the detectors. The limit of each is the first count with more points than the line
  (`REPEATS`, `DETECTORS`), so that all of them move together, down to 2; the shipped limits are at 11 points.
- At 0 points no limit can be lowered, and most runs have that score. `max_weighted_calls` distinguishes them.
- Most of the others have a call at most twice in a row. `no_repeats_after` distinguishes them.

Other settings (limits of single tools, detectors that are off by default) are the same at every line, so they act at
every line or never.

For comparison, a line on run length, `max_calls`, is set in the same way, with the moved detectors off. The line that
saves more in trials is recommended.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

import yaml

from callfuse import __version__
from callfuse.detect import Engine
from callfuse.detect.budget import weight
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.registry import KINDS
from callfuse.detect.streak import COUNTED
from callfuse.model import Finding, Round, Timeline, ToolCall
from callfuse.model.spent import Spent
from callfuse.offline.conformal import Trial, line, max_beyond, min_scores, trial
from callfuse.offline.excerpts import short
from callfuse.offline.feedback import Feedback, Raised
from callfuse.offline.judging import judge_texts
from callfuse.offline.replay import MAX_FAULTS
from callfuse.offline.runs import RecordedRun, Unreadable
from callfuse.offline.spending import spent_before
from callfuse.policy.ignored import ignore_in_rounds
from callfuse.policy.sections import LIMITS
from callfuse.policy.settings import LoopSettings


class LimitScale(NamedTuple):
    """How a limit moves along the scale. `points`: the points of one count. `least`: the lowest value of the limit."""

    points: int
    least: int

    def at(self, points: int) -> int:
        """Return the limit at these points: the first count with more points."""
        return max(self.least, points // self.points + 1)


REPEATS: Final = {"max_repeats": LimitScale(4, 2), "max_repeats_changing": LimitScale(2, 6)}
SHIPPED: Final = 12
"""The points of callfuse's default limits."""


def _moving(kind: Kind, limit: SoftLimit) -> LimitScale:
    """Return the scale of a limit. The limit of a kind that only warns is never lowered, because that would save
    nothing."""
    if kind.most:
        return LimitScale(ceil(SHIPPED / limit.default), limit.default)
    return LimitScale(max(1, SHIPPED // limit.default), 2)


DETECTORS: Final = {
    name: _moving(KINDS[name], limit) for name, limit in LIMITS.items() if limit.on and limit.in_records
}
BUDGETS: Final = ("no_repeats_after", "max_weighted_calls", "max_calls")
TWICE: Final = 8
"""The points of a run with a call twice in a row."""


class Score(NamedTuple):
    """A position on the scale. Settings interrupt a run if its score is beyond their line.

    `weighted_calls` orders scores of 0 points, and scores of `TWICE` points.
    """

    points: int
    weighted_calls: int = 0


ALWAYS: Final = Score(max(one.points for one in DETECTORS.values()) * (COUNTED + 2))
"""The score of a run that settings at every line interrupt: its limits are higher than any detector counts."""


UNBOUNDED: Final = sys.maxsize
"""The length of a run that is interrupted with any `max_calls`."""


class ScoreStep(NamedTuple):
    """A score that a run reaches, and the number of its calls before the round with that score."""

    score: Score
    calls: int


class Scale:
    """The scale for some settings. Limits that are off in them stay off.

    Detectors without data in recorded runs are off at every line: few records list their tools, so no guarantee is
    possible for `unknown_tool`.
    """

    def __init__(self, base: LoopSettings) -> None:
        unrecorded = {name: 0 for name, limit in LIMITS.items() if not limit.in_records}
        detectors = base.detectors.with_limits(unrecorded)
        self.base = base.model_copy(update={"enabled": True, "detectors": detectors})
        self._at: dict[int, LoopSettings] = {}

    def by_length(self, line: int) -> LoopSettings:
        """Return the settings that interrupt a run if more than `line` calls follow one user message. A lower
        `max_calls` of the base stays. Limits that the scale moves are off."""
        base = self.base
        off = {"max_repeats": 0, "max_repeats_changing": 0, "max_weighted_calls": 0, "no_repeats_after": 0}
        detectors = base.detectors.model_copy(update=dict.fromkeys(DETECTORS, 0))
        max_calls = min(line, base.max_calls or line)
        return base.model_copy(update=off | {"max_calls": max_calls, "detectors": detectors})

    def settings(self, line: Score) -> LoopSettings:
        """Return the settings that interrupt a run if its score is beyond the line."""
        base, points = self.base, line.points
        detectors = {name: limit.at(points) for name, limit in DETECTORS.items() if base.limit_of(name)}
        update = {name: limit.at(points) for name, limit in REPEATS.items() if getattr(base, name)}
        return base.model_copy(
            update=update
            | {"max_weighted_calls": 0 if points else line.weighted_calls}
            | {"no_repeats_after": line.weighted_calls if points == TWICE else 0}
            | {"detectors": base.detectors.with_limits(detectors)}
        )

    def steps(self, run: RecordedRun, *, warned: bool) -> list[ScoreStep]:
        """Return the scores that a run reaches in order, each higher than the one before; empty without calls.

        `warned`: include findings whose caps only allow warnings; else only those that may withhold a call.
        """
        steps: list[ScoreStep] = []
        calls = 0
        for rounds, spent in zip(run.turns, spent_before(run, self.base.budget), strict=True):
            ignore_in_rounds(rounds, self.base)
            for at, round_ in enumerate(rounds):
                score = self._score(rounds, at, spent[at], warned=warned)
                if not steps or score > steps[-1].score:
                    steps.append(ScoreStep(score, calls))
                calls += len(round_.calls)
        warns = [one.verdict for one in judge_texts(run, self.base) if one.verdict and one.verdict.warns]
        if warned and warns and steps and steps[-1].score < ALWAYS:
            steps.append(ScoreStep(ALWAYS, calls))  # independent of the limits
        return steps

    def _score(self, rounds: list[Round], at: int, spent: Spent, *, warned: bool) -> Score:
        """Return the lowest line without a counted finding in a round. `spent`: the budget use before it."""
        before = Timeline(_newest_first(rounds, at), spent=spent)
        after = Timeline(_newest_first(rounds, at + 1))
        calls = [one.call for one in rounds[at].calls]

        def is_free(points: int) -> bool:
            if points not in self._at:
                self._at[points] = self.settings(Score(points))
            settings = self._at[points]
            found = Engine(before, settings).judge_round(calls)
            if not warned:
                return not any(may_withhold(finding, call, settings) for call, finding in found)
            return not found and next(Engine(after, settings).hindsights(), None) is None

        points = 0 if is_free(0) else bisect_left(range(ALWAYS.points), True, lo=1, key=is_free)
        if points not in (0, TWICE):
            return Score(points)
        weighed = weight(before, self.base)
        beside = len({call.signature for call in calls if call.name}) - 1  # each counts as one; see `Budget`
        return Score(points, weighed if points else weighed + max(beside, 0))


def may_withhold(finding: Finding, call: ToolCall, settings: LoopSettings) -> bool:
    """Whether the cap of a finding allows withholding its pending call."""
    caps = settings.for_tool(call.full_name).settings.detectors
    return caps.cap(finding.kind, hard=finding.hard, waits=finding.waits).withholds


def _newest_first(rounds: list[Round], before: int) -> list[Round]:
    return rounds[:before][::-1]


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run: the scores that it reached, in order, the number of its calls, and that of each turn."""

    steps: Sequence[ScoreStep]
    calls: int
    turns: Sequence[int] = ()

    def saved(self, line: Score) -> int:
        """Return the number of its calls from the first one that settings at a line would withhold."""
        at = bisect_right(self.steps, line, key=lambda step: step.score)
        return self.calls - self.steps[at].calls if at < len(self.steps) else 0

    def saved_by_length(self, line: int) -> int:
        """Return the number of its calls from the first one that is beyond `line` calls in its turn."""
        before = 0
        for calls in self.turns:
            if calls > line:
                return max(0, self.calls - before - line)
            before += calls
        return 0


@dataclass(slots=True)
class Source:
    """The runs with calls of one source: scores and lengths of successful ones, and the failed ones.

    The length of a run is the number of calls of its longest turn, which `max_calls` limits, or `UNBOUNDED` for a run
    that is interrupted at every line.
    """

    good: list[Score] = field(default_factory=list)
    good_calls: list[int] = field(default_factory=list)
    failed: list[FailedRun] = field(default_factory=list)
    unlabelled: int = 0

    def saved(self, line: Score) -> int:
        """Return the number of calls of failed runs that settings at a line would have saved."""
        return sum(run.saved(line) for run in self.failed)

    def saved_by_length(self, line: int) -> int:
        """Return the number of calls of failed runs that `max_calls` would have saved."""
        return sum(run.saved_by_length(line) for run in self.failed)


class Tuning:
    """Takes runs and faults. `base`: the settings to tune."""

    def __init__(self, base: LoopSettings) -> None:
        self.scale = Scale(base)
        self.sources: dict[str, Source] = {}
        """By name, in the order of appearance."""
        self.faults: list[Unreadable] = []
        self.fault_count = 0

    def take(self, one: RecordedRun | Unreadable) -> None:
        """Score a run, or keep a fault."""
        if isinstance(one, Unreadable):
            self.fault_count += 1
            self.faults += [one] if len(self.faults) < MAX_FAULTS else []
            return
        calls = sum(1 for _ in one.calls())
        if not calls:
            return
        source = self.sources.setdefault(one.source, Source())
        if one.success is None:
            source.unlabelled += 1
        elif one.success:
            source.good.append(self.scale.steps(one, warned=True)[-1].score)
            source.good_calls.append(max(_turns(one)) if source.good[-1] < ALWAYS else UNBOUNDED)
        else:
            source.failed.append(FailedRun(self.scale.steps(one, warned=False), calls, _turns(one)))


def _turns(run: RecordedRun) -> list[int]:
    """Count the calls of each turn; equal calls of a round count once."""
    return [sum(len(round_.distinct) for round_ in rounds) for rounds in run.turns]


class Trials(NamedTuple):
    """The trials of a source: on the scale, and for comparison on the number of calls alone."""

    scale: Trial
    length: Trial


def try_lines(source: Source, alpha: Fraction) -> Trials:
    """Try lines on the successful runs of a source, if one half is enough for a line."""
    return Trials(
        trial(source.good, alpha, source.saved),
        trial(source.good_calls, alpha, source.saved_by_length),
    )


class CannotTuneError(ValueError):  # commands report it; it is not part of the public API
    """Raised if there is no line for a source. The message says why."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result for one source: the settings at its line, from `good` successful runs, and trials on unseen runs.

    `alpha`: the share of runs that may be interrupted. `by_length`: the settings at the line on run length. `before`:
    the settings before tuning. `has_failed`: some of its runs failed, so savings are known. `raised`: limits of single
    tools that feedback has raised above the line in the recommended settings.
    """

    name: str
    alpha: Fraction
    good: int
    by_scale: LoopSettings
    by_length: LoopSettings
    trials: Trials
    before: LoopSettings
    has_failed: bool = True
    raised: tuple[Raised, ...] = ()

    def heeding(self, feedback: Feedback) -> "Tuned":
        """Return the result with limits raised above false positives. It interrupts fewer runs, so the guarantee still
        holds."""
        by_scale, of_scale = feedback.apply(self.by_scale)
        by_length, of_length = feedback.apply(self.by_length)
        raised = of_length if self.recommends_length else of_scale
        return replace(self, by_scale=by_scale, by_length=by_length, raised=tuple(raised))

    @property
    def recommends_length(self) -> bool:
        """Whether the line on length saves more in the trials."""
        return self.trials.length.saved > self.trials.scale.saved

    @property
    def settings(self) -> LoopSettings:
        """The recommended settings: those of the line that saves more in the trials."""
        return self.by_length if self.recommends_length else self.by_scale

    @property
    def answer(self) -> str:
        """The advice in one sentence."""
        before, limits = limits_of(self.before), self.limits
        changed = {name: limit for name, limit in limits.items() if limit != before[name]}
        share = percent(self.alpha)
        if not changed:
            return f"Change nothing: the limits in use act on at most {share} of new successful runs."
        is_milder = any(not limit or limit > before[name] > 0 for name, limit in changed.items())
        if self.has_failed and not is_milder and not (self.trials.scale.saved or self.trials.length.saved):
            return "Change nothing: stricter limits would have saved nothing in the failed runs."
        limited = ", ".join(f"{name}: {limit or 'off'}" for name, limit in changed.items())
        return f"Set {limited}, because with these callfuse acts on at most {share} of new successful runs."

    @property
    def recommendation(self) -> str:
        """The recommended line, and why, in one sentence."""
        if not self.has_failed:
            return "Recommended: the scale; what either line saves is unknown, because no run failed."
        if not (self.trials.scale.saved or self.trials.length.saved):
            return "Recommended: the scale; neither line saves anything in the failed runs."
        if self.recommends_length:
            return (
                f"Recommended: max_calls: {self.by_length.max_calls} alone, which saves more than the scale. The "
                "detectors of loops are off with it: they would act on more runs than promised."
            )
        if self.trials.length.saved == self.trials.scale.saved:
            return "Recommended: the scale, which saves as much as a line on the number of calls."
        return "Recommended: the scale, which saves more than a line on the number of calls."

    @property
    def promise(self) -> str:
        """The guarantee in one sentence."""
        above = max_beyond(self.good, self.alpha)
        return (
            f"At most {percent(self.alpha)} of new successful runs of the same kind are acted on ({above:,} "
            f"of {self.good + 1:,}), on average over sets of {self.good:,} runs like this one."
        )

    @property
    def limits(self) -> dict[str, int]:
        """The limits of the recommended settings that tuning moves, by the names of their settings; 0 is off."""
        return limits_of(self.settings)

    def as_yaml(self) -> str:
        """Return the settings as a configuration file: the limits of the scale, and other settings that differ from the
        defaults."""
        text: str = yaml.safe_dump({"tool_call_loop": self.block()}, sort_keys=False, allow_unicode=True)
        return "".join(f"# {one}\n" for one in self.comments()) + text

    def comments(self) -> tuple[str, ...]:
        """Return the origin of the limits, and their guarantee, as comment lines for a file of settings."""
        return (
            f"callfuse {__version__} tune: limits set by {self.good:,} successful runs of {short(self.name)}.",
            self.promise,
            self.recommendation,
            "Tune again for another mix of tasks, another model or other prompts: the promise does not cover them.",
            "Unknown tools are not detected, because few recorded runs list the tools.",
        )

    def block(self) -> dict[str, Any]:
        """Return the recommended settings as the section `tool_call_loop`, without defaults."""
        moved = {name: limit for name, limit in self.limits.items() if limit and name not in DETECTORS}
        others: dict[str, Any] = self.settings.model_dump(mode="json", exclude_defaults=True)
        changed = self.settings.detectors.model_dump(mode="json", exclude_defaults=True)
        caps = {name: value for name, value in changed.items() if name not in LIMITS}
        return {**moved, **others, "detectors": self.detectors() | caps}

    def detectors(self) -> dict[str, int | bool]:
        """Return the limits of the section `detectors` of the recommended settings."""
        return {name: self.settings.limit_of(name) or False for name in LIMITS}


def limits_of(settings: LoopSettings) -> dict[str, int]:
    """Return the limits that tuning moves, by the names of their settings; 0 is off."""
    found = {name: getattr(settings, name) for name in (*REPEATS, *BUDGETS)}
    return found | {name: settings.limit_of(name) for name in DETECTORS}


def tune(name: str, source: Source, scale: Scale, alpha: Fraction) -> Tuned:
    """Set the line of a source by all its successful runs. Raises CannotTuneError if there is no line."""
    good = len(source.good)
    if not good and not source.failed:
        raise CannotTuneError("no run says whether it succeeded")
    if good < (least := 2 * min_scores(alpha)):
        raise CannotTuneError(
            f"{least:,} successful runs are needed for {percent(alpha)}: half to set a line, half to test it "
            f"and compare it with a limit on the number of calls; there are {good:,}"
        )
    at = line(sorted(source.good), alpha)
    if at >= ALWAYS:
        always = sum(score >= ALWAYS for score in source.good)
        raise CannotTuneError(
            f"{always:,} of {good:,} successful runs are acted on whatever the limits, because of settings "
            "that tune does not change (per_tool, similarity_threshold, max_calls, max_calls_of_tool, budget, "
            "detectors.stagnation, detectors.monologue)"
        )
    by_length = scale.by_length(line(sorted(source.good_calls), alpha))
    by_scale, trials = scale.settings(at), try_lines(source, alpha)
    return Tuned(name, alpha, good, by_scale, by_length, trials, scale.base, bool(source.failed))


def percent(share: Fraction | float) -> str:
    """Format a share: `5%`, `12.5%`."""
    return f"{float(share):.1%}".replace(".0%", "%")
