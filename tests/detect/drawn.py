"""Timelines and settings for properties: few tools, arguments and outcomes, so that loops of every kind are common."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from callfuse.model import Timeline
from callfuse.policy.sections import LIMITS
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import timeline

TOOLS: Final = ("a", "b", "wait", "think", "x", "")
"""`x` is never declared, `wait` is a poller and `think` takes notes by its name, and a call may lack its name."""

words: st.SearchStrategy[str] = st.builds(
    lambda marks, tool, waits, number, outcome: (
        f"{marks}{tool}{waits}{number or ('' if tool else 7)}{'' if '!' in marks else outcome}"
    ),
    st.sampled_from(["", "", "", "", "", "!", "!!", "-"]),
    st.sampled_from([*"aaaabb", "wait", "think", "x", ""]),
    st.sampled_from(["", "", "", "@"]),
    st.sampled_from(["", "", "", "1", "2"]),
    st.sampled_from(["", "=x", "=x", "=x", "=y", "=!e", "=!e", "=!f", "=~x", "=^x", "=?", "=?"]),
)
rounds: st.SearchStrategy[str] = st.lists(words, min_size=1, max_size=3).map(" ".join)


@st.composite
def written(draw: st.DrawFn) -> list[str]:
    """The rounds of a timeline, oldest first: chance, one round over and over, or laps of a few."""
    start = draw(st.lists(rounds, max_size=4))
    lap = draw(st.lists(rounds, min_size=1, max_size=5))
    end = draw(st.lists(rounds, max_size=2))
    laps = draw(st.sampled_from([0, 1, 2, 3, 5]))
    return [*start, *(lap * laps)[: draw(st.integers(0, 12))], *end]


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """With pauses, unknown times, and a list of tools that is complete or not."""
    return made(draw(written()), draw(clocks), draw(st.booleans()))


clocks = st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 200.0, 301.0, None]), min_size=24, max_size=24)
"""Seconds from one round to the next; None where a round's time is unknown."""


def made(texts: Sequence[str], clock: Sequence[float | None], is_complete: bool) -> Timeline:
    """The timeline of these rounds; each call of it has its own id, no outcome has been read."""
    now = 0.0
    times: list[float | None] = []
    for step in clock[: len(texts)]:
        now += step or 1
        times.append(None if step is None else now)
    return timeline(*texts, times=times, now=now + 1, tools={"a", "b", "wait", "think"} if is_complete else None)


_limits: Final[dict[str, list[Any]]] = {
    "max_repeats": [0, 2, 2, 3, 4],
    "max_repeats_changing": [0, 2, 3, 6],
    "ttl_seconds": [100, 250, 300, 10**6],
    "similarity_threshold": [None, 0.5, 0.9],
}
_detectors: Final[dict[str, list[Any]]] = {
    kind: [False, *{2: True, 3: True, limit.default: True}, {"limit": 2, "most": "none"}, {"most_hard": "block"}]
    for kind, limit in LIMITS.items()
} | {"repeat": [False, {"most": "warn"}], "repeat_changing": [False, {"most": "none"}, {"most_hard": "none"}]}
_tools: Final[dict[str, list[Any]]] = {
    "enabled": [True, False],
    "poller": [True, False],
    "changes_state": [True, False],
    "max_calls": [0, 1, 3],
}
_patterns = ["a", "b", "x", "wait", "*", "?", "zz*"]


def _some(choices: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keys, each with one of its values."""
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in choices.items()})


@st.composite
def settings(draw: st.DrawFn) -> LoopSettings:
    """Settings under which findings are common, with all kinds on and single tools that differ."""
    own = st.builds(lambda limits, tool: limits | tool, _some(_limits), _some(_tools))
    own = st.builds(lambda values, detectors: values | {"detectors": detectors}, own, _some(_detectors))
    block = draw(_some(_limits)) | {
        "window": draw(st.sampled_from([2, 3, 10])),
        "poll_factor": draw(st.sampled_from([1, 2, 5])),
        "max_calls": draw(st.sampled_from([0, 0, 2, 6])),
        "max_calls_of_tool": draw(st.sampled_from([0, 0, 1, 4])),
        "max_calls_per_answer": draw(st.sampled_from([0, 1, 3, 128])),
        "max_weighted_calls": draw(st.sampled_from([0, 0, 5])),
        "state_changing": draw(st.sampled_from([[], [], ["b"]])),
        "similarity": {"algorithm": draw(st.sampled_from(["levenshtein", "levenshtein_json", "jaccard"]))},
        "detectors": draw(_some(_detectors)),
        "per_tool": draw(st.dictionaries(st.sampled_from(_patterns), own, max_size=2)),
    }
    return LoopSettings.model_validate(block)
