"""Drive the detectors for `benchmarks.decisions`: all private names that it needs are in this file.

Histories are lists of rounds, newest first. A pending call is in the answer.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from callfuse.detect import Engine, can_fire
from callfuse.detect.similarity import alike
from callfuse.model import PastCall, Round, Timeline, ToolCall
from callfuse.model.outcomes import outcome_of
from callfuse.policy.settings import LoopSettings

ALL: Final = LoopSettings.model_validate(
    {
        "similarity_threshold": 0.9,
        "max_calls": 10**6,
        "max_calls_of_tool": 10**6,
        "max_weighted_calls": 10**9,
        "detectors": {"stagnation": True},
    }
)
DEFAULTS: Final = LoopSettings()
TOOLS: Final = frozenset({"search", "read_file", "run"})


class Moment(NamedTuple):
    """A history and the pending call."""

    rounds: list[Round]
    pending: ToolCall


Decision = Callable[[Moment], object]


def calls_of(made: Sequence[tuple[str, str, str]]) -> list[PastCall]:
    """Return calls from tool, arguments and result, with known outcomes and signatures."""
    calls = [
        PastCall(ToolCall(f"call_{at}", name, arguments), outcome=outcome_of(result))
        for at, (name, arguments, result) in enumerate(made)
    ]
    _ = [one.signature for one in calls]
    return calls


def moments(calls: Sequence[PastCall], *, fresh: bool) -> Iterator[Moment]:
    """Yield the same moment again and again, with one call per round and the last one pending. `fresh`: each with new
    call objects."""
    while True:
        own = list(calls)
        if fresh:
            own = [PastCall(ToolCall(one.id, one.name, one.call.arguments), outcome=one.outcome) for one in calls]
        yield Moment([Round((one,), 2 * at) for at, one in enumerate(own[:-1])][::-1], own[-1].call)


def hold(moment: Moment) -> None:
    """Whether any call is suspect."""
    next(_engine(moment).suspects(), None)


def verdict(moment: Moment) -> None:
    """Judge a round."""
    _engine(moment).judge_round([moment.pending])


def both(moment: Moment) -> None:
    """Make both decisions of an exchange."""
    engine = _engine(moment)
    next(engine.suspects(), None)
    engine.judge_round([moment.pending])


def glance(moment: Moment) -> None:
    """Do the work for a healthy request."""
    can_fire(_timeline(moment), DEFAULTS)


def comparison(texts: Sequence[str]) -> Callable[[], None]:
    """Return a function that compares the calls with these arguments, each with the next one."""
    calls = [ToolCall("", "write", text) for text in texts]
    _ = [call.signature for call in calls]

    def compare() -> None:
        for one, other in pairwise(calls):
            alike(one, other, ALL)

    return compare


def _engine(moment: Moment) -> Engine:
    return Engine(_timeline(moment), ALL)


def _timeline(moment: Moment) -> Timeline:
    return Timeline(moment.rounds, declares=TOOLS.__contains__)
