"""One scale of settings from lenient to strict, and how far a recorded run comes on it.

A line on the scale is a pair of points and weighted calls. Settings at a line act on a run exactly where its score is
beyond that line: the score is what the guard's own engine does with the run at every line.

- First come the detectors. The limit of each is the first count that is worth more points than the line has
  (`REPEATS`, `DETECTORS`), so that all of them move together, past those that callfuse ships (at 11 points) down to 2.
- At 0 points no limit is left to lower, and most runs stand there. `max_weighted_calls` tells them apart.
- Of the others most stand where a call comes twice in a row and no more often. `no_repeats_after` tells those apart.

What else the settings hold (limits of single tools, detectors that are off by default) stands as it is at every line,
and so acts at every line or never.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from callfuse.detect import Engine
from callfuse.detect.budget import weight
from callfuse.detect.streak import COUNTED
from callfuse.model import Round, Timeline
from callfuse.offline.run import Run
from callfuse.policy.ignored import ignore_in_rounds
from callfuse.policy.settings import LoopSettings


class Limit(NamedTuple):
    """How a limit moves: what one more of its counts is worth in points, and how low it comes."""

    points: int
    least: int

    def at(self, points: int) -> int:
        """The first count that is worth more."""
        return max(self.least, points // self.points + 1)


REPEATS: Final = {"max_repeats": Limit(4, 2), "max_repeats_changing": Limit(2, 6)}
DETECTORS: Final = {"no_news": Limit(3, 2), "cycle": Limit(6, 2), "same_error": Limit(3, 4)}
"""The limits that callfuse ships are worth 12 points. `same_error` comes no lower: it only warns, and saves nothing."""
TWICE: Final = 8
"""The points of a call that comes twice in a row."""


class Score(NamedTuple):
    """A place on the scale: higher ones take more. `weighted_calls` tells apart those of 0 points and of `TWICE`."""

    points: int
    weighted_calls: int = 0


ALWAYS: Final = Score(6 * (COUNTED + 2))
"""The score of a run on which settings act at every line: no detector counts as far as the limits are here."""


class Step(NamedTuple):
    """A score that a run reaches, and how many calls it had made before the round that brought it there."""

    score: Score
    calls: int


class Scale:
    """The scale for some settings. Limits that are off there stay off.

    `unknown_tool` is off at every line: few recorded runs tell which tools there were, so nothing can be promised.
    """

    def __init__(self, base: LoopSettings) -> None:
        detectors = base.detectors.model_copy(update={"unknown_tool": 0})
        self._base = base.model_copy(update={"enabled": True, "detectors": detectors})
        self._at: dict[int, LoopSettings] = {}

    def settings(self, line: Score) -> LoopSettings:
        """The settings that act on a run where its score is beyond the line."""
        base, points = self._base, line.points
        detectors = {name: limit.at(points) for name, limit in DETECTORS.items() if getattr(base.detectors, name)}
        update = {name: limit.at(points) for name, limit in REPEATS.items() if getattr(base, name)}
        return base.model_copy(
            update=update
            | {"max_weighted_calls": 0 if points else line.weighted_calls}
            | {"no_repeats_after": line.weighted_calls if points == TWICE else 0}
            | {"detectors": base.detectors.model_copy(update=detectors)}
        )

    def steps(self, run: Run, *, warned: bool) -> list[Step]:
        """The scores that a run reaches one after the other, each higher than the one before; none without calls.

        `warned`: what is only told with a result counts, too.
        """
        steps: list[Step] = []
        calls = 0
        for rounds in run.turns:
            ignore_in_rounds(rounds, self._base)
            for at, round_ in enumerate(rounds):
                score = self._score(rounds, at, warned=warned)
                if not steps or score > steps[-1].score:
                    steps.append(Step(score, calls))
                calls += len(round_.calls)
        return steps

    def _score(self, rounds: list[Round], at: int, *, warned: bool) -> Score:
        """The first line at which nothing would be found in a round."""
        before, after = Timeline(_newest_first(rounds, at)), Timeline(_newest_first(rounds, at + 1))
        calls = [one.call for one in rounds[at].calls]

        def is_free(points: int) -> bool:
            if points not in self._at:
                self._at[points] = self.settings(Score(points))
            settings = self._at[points]
            return not (
                Engine(before, settings).judge_round(calls)
                or (warned and next(Engine(after, settings).hindsights(), None))
            )

        points = 0 if is_free(0) else bisect_left(range(ALWAYS.points), True, lo=1, key=is_free)
        return Score(points, weight(before, self._base) if points in (0, TWICE) else 0)


def _newest_first(rounds: list[Round], before: int) -> list[Round]:
    return rounds[:before][::-1]
