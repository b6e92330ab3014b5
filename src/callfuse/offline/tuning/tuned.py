"""A source with its line: the settings there, what they promise, and both as a configuration file."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

from callfuse import __version__
from callfuse.offline.showing import short
from callfuse.offline.tuning.conformal import beyond, line, needed
from callfuse.offline.tuning.scale import ALWAYS, DETECTORS, REPEATS, Scale
from callfuse.offline.tuning.sources import Source
from callfuse.offline.tuning.trial import Trials, trials
from callfuse.policy.settings import LoopSettings


class CannotTuneError(ValueError):  # it says of a source why, and never leaves the package's users
    """There is no line for a source."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """One source: the settings at its line, which rest on `good` runs, and how such a line does on unseen ones.

    `max_calls` is the line on the number of calls alone.
    """

    name: str
    alpha: Fraction
    good: int
    settings: LoopSettings
    max_calls: int
    trials: Trials | None

    @property
    def promise(self) -> str:
        """The guarantee, in a sentence."""
        above = beyond(self.good, self.alpha)
        return (
            f"Of new successful runs of the same kind at most {percent(self.alpha)} are acted on "
            f"({above:,} of {self.good + 1:,}), on average over sets of {self.good:,} runs as this one."
        )

    @property
    def limits(self) -> dict[str, int]:
        """The limits that were moved."""
        settings, detectors = self.settings, self.settings.detectors
        found = {name: getattr(settings, name) for name in (*REPEATS, "no_repeats_after", "max_weighted_calls")}
        return found | {name: getattr(detectors, name) for name in DETECTORS}

    def as_yaml(self) -> str:
        """The configuration file: every limit of the scale, and what else is not as callfuse ships it."""
        moved = {name: limit for name, limit in self.limits.items() if limit and name not in DETECTORS}
        others: dict[str, Any] = self.settings.model_dump(mode="json", exclude_defaults=True)
        detectors = {name: limit or False for name, limit in self.settings.detectors.model_dump().items()}
        block = {**moved, **others, "detectors": detectors}
        lines = (
            f"callfuse {__version__} tune: limits set by {self.good:,} successful runs of {short(self.name)}.",
            self.promise,
            "Unknown tools are not looked for: recorded runs do not tell which tools there were.",
        )
        text: str = yaml.safe_dump({"tool_call_loop": block}, sort_keys=False, allow_unicode=True)
        return "".join(f"# {one}\n" for one in lines) + text


def tuned(name: str, source: Source, scale: Scale, alpha: Fraction) -> Tuned:
    """A source with its line, through all its good runs; CannotTuneError where there is none."""
    good = len(source.good)
    if not good and not source.failed:
        raise CannotTuneError("no run says whether it succeeded")
    if good < needed(alpha):
        raise CannotTuneError(f"{needed(alpha):,} successful runs are needed for {percent(alpha)}, there are {good:,}")
    at = line(sorted(source.good), alpha)
    if at >= ALWAYS:
        always = sum(score >= ALWAYS for score in source.good)
        raise CannotTuneError(
            f"{always:,} of {good:,} successful runs are acted on whatever the limits, by settings that stay "
            "(per_tool, similarity_threshold, max_calls, max_calls_of_tool, detectors.stagnation)"
        )
    return Tuned(name, alpha, good, scale.settings(at), line(sorted(source.good_calls), alpha), trials(source, alpha))


def percent(share: Fraction | float) -> str:
    """`5%`, `12.5%`."""
    return f"{float(share):.1%}".replace(".0%", "%")
