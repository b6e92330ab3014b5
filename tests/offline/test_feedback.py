"""Limits are raised above the findings that were no loops, for their kind and tool, and no others."""

import json
from pathlib import Path
from typing import Any

import pytest

from callfuse.offline.feedback import Feedback, Raised, Said, read_feedback
from callfuse.policy.settings import LoopSettings

WRONG = "false_positive"


def said(feedback: str, count: int, kind: str = "repeat", tool: str = "search") -> Said:
    """What was said of a finding."""
    return Said(feedback, kind, tool, count)


def raised(base: dict[str, Any], *found: Said) -> tuple[LoopSettings, list[Raised]]:
    """The settings after feedback, and what was raised."""
    return Feedback(found).apply(LoopSettings.model_validate(base))


def test_above_the_highest_false_positive() -> None:
    """Of a kind and a tool; other tools keep the limit. True ones below it are told."""
    settings, done = raised(
        {}, said(WRONG, 3), said(WRONG, 5), said("true_positive", 4), said("too_late", 5), said("true_positive", 6)
    )
    assert done == [Raised("search", "repeat", 3, 6, wrong=2, later=2)]
    assert settings.for_tool("search").settings.max_repeats == 6
    assert settings.for_tool("search_web").settings.max_repeats == 3
    assert str(done[0]) == "search: max_repeats 3 -> 6, for 2 false positives; 2 that were loops are found later, too"


@pytest.mark.parametrize("kind", ["no_news", "cycle", "same_error"])
def test_kinds_with_a_limit_in_detectors(kind: str) -> None:
    """Get one of the tool's own, beside what it had."""
    base = {"per_tool": {"search": {"mode": "warn", "detectors": {"stagnation": 9}}}}
    settings, done = raised(base, said(WRONG, 7, kind))
    own = settings.for_tool("search").settings
    assert (own.limit_of(kind), own.limit_of("stagnation"), settings.limit_of(kind) < 8) == (8, 9, True)
    assert own.observes is False
    assert [one.key for one in done] == [f"detectors.{kind}"]


def test_tools_that_are_called_again_by_their_nature() -> None:
    """Have limits that are five times as high already."""
    settings, done = raised({}, said(WRONG, 16, tool="wait_for_job"))
    assert settings.for_tool("wait_for_job").settings.max_repeats == 4
    assert len(done) == 1


@pytest.mark.parametrize(
    ("base", "found"),
    [
        ({"max_repeats": 0}, said(WRONG, 5)),
        ({"max_repeats": 9}, said(WRONG, 5)),
        ({}, said(WRONG, 50, "budget")),
        ({}, said(WRONG, 50, "of another version")),
        ({}, said("true_positive", 50)),
        ({}, said("too_late", 50)),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_raises_nothing(base: dict[str, Any], found: Said) -> None:
    """A limit that is off or high enough, one that its owner has set, a kind that is unknown, a loop."""
    settings, done = raised(base, found)
    assert (settings, done) == (LoopSettings.model_validate(base), [])


def test_names_are_no_globs() -> None:
    """A tool's name may hold anything; it stands for itself alone."""
    settings, done = raised({}, said(WRONG, 5, tool="a*[x]?"))
    assert settings.for_tool("a*[x]?").settings.max_repeats == 6
    assert settings.for_tool("abx1").settings.max_repeats == 3
    assert len(done) == 1


def test_the_last_word_counts(tmp_path: Path) -> None:
    """Of each finding; odd lines are counted."""
    lines = [
        {"finding": "1", "feedback": WRONG, "kind": "repeat", "tool": "search", "count": 3},
        {"finding": "2", "feedback": WRONG, "kind": "repeat", "tool": "search", "count": 4},
        {"finding": "2", "feedback": "true_positive", "kind": "repeat", "tool": "search", "count": 4},
        {"finding": "3", "feedback": WRONG, "kind": "repeat", "tool": "search", "count": True},
        {"finding": "4", "feedback": WRONG, "kind": "repeat", "tool": "search", "count": 10**9},
        {"finding": [], "feedback": WRONG, "kind": "repeat", "tool": "search", "count": 3},
        {"finding": "5", "feedback": WRONG, "kind": "repeat", "tool": "", "count": 3},
        [1],
    ]
    path = tmp_path / "feedback.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
    found = read_feedback(path)
    assert found.said == (said(WRONG, 3), said("true_positive", 4))
    assert (found.wrong, found.unread) == (1, 6)
