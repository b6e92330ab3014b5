"""A finding explains itself: what was seen, in a sentence, and what to try."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.registry import KINDS
from callfuse.model import Finding
from callfuse.policy import explain
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, timeline

ON = {
    "unknown_tool": {"detectors": {"unknown_tool": 2}},
    "similar": {"similarity_threshold": 0.6},
    "stagnation": {"detectors": {"stagnation": 3}},
    "budget": {"max_calls": 7},
}
LAP = ["read=x", "list=y"]
RETURNED = "a call of read with the same arguments as one that was blocked"
SEEN = {
    "repeat": (
        ["read=x"] * 2,
        "read",
        "call 3 of read in a row with the same arguments, and nothing new came of it",
    ),
    "repeat_changing": (
        [f"read={letter}" for letter in "uvwxy"],
        "read",
        "call 6 of read in a row with the same arguments, whatever came back",
    ),
    "no_news": (
        ["read=x", "list=y", "find=z", "list=y", "find=z", "find=z"],
        "read",
        "round 4 in a row that only repeats known calls, with the results that they had before",
    ),
    "cycle": (
        [*LAP, LAP[0]],
        "list",
        "lap 2 of one sequence of calls (read -> list), each lap with the same results",
    ),
    "unknown_tool": (["x=!q"], "y", "call 2 in a row of a tool that does not exist, here y"),
    "similar": (
        ["read111=x", "read112=x"],
        "read113",
        "call 3 of read in a row with nearly the same arguments (67% alike) and result",
    ),
    "stagnation": (["read=x", "list=x"], "find", "call 3 in a row that returns the same result, whatever is called"),
    "budget": ([f"read{at}={letter}" for at, letter in enumerate("abcdefg")], "find", "8"),
}


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        (["read=x"], "call 2 of read in a row with the same arguments"),
        (["read=x", "read"], "call 3 of read in a row with the same arguments"),
        (["read=x", "read=x", "!!read"], "call 4 of read in a row with the same arguments, and nothing new came of it"),
        (["list=y", "read=x", "read=x", "!!read", "list=y"], RETURNED),
        (["read=x", "read=x", "!!read", "list=y", "read=x"], RETURNED),
    ],
)
def test_no_more_is_said_than_is_known(before: list[str], sentence: str) -> None:
    """Fewer than two results are not called equal, and calls with others between them are not called a row."""
    finding = Engine(timeline(*before), LoopSettings(max_repeats=2)).judge(call("read"))
    assert finding is not None
    assert explain.seen(finding) == sentence


@pytest.mark.parametrize("kind", SEEN)
def test_what_was_seen(kind: str) -> None:
    """The count, the tool, and what makes it a loop; then what to try, in a sentence of its own."""
    texts, pending, sentence = SEEN[kind]
    declared = {"read", "list", "find"}
    settings = LoopSettings.model_validate(ON.get(kind, {}))
    finding = Engine(timeline(*texts, tools=declared), settings).judge(call(pending))
    assert finding is not None
    assert finding.kind == kind
    assert sentence in explain.seen(finding)
    assert explain.suggestion(finding).endswith(".")


def test_the_same_error() -> None:
    """Told with the result."""
    finding = next(Engine(timeline(*[f"read{at}=!bad" for at in range(4)]), LoopSettings()).hindsights())
    assert finding is not None
    assert explain.seen(finding) == "round 4 in which read fails with the same error, with nothing new in between"
    assert explain.suggestion(finding).startswith("Read the error")


def test_every_kind_has_its_words() -> None:
    """None is forgotten, and no two say the same."""
    findings = [Finding(kind, "t", b"", 3, 3, 300, hard=False) for kind in KINDS]
    assert len({explain.seen(finding) for finding in findings}) == len(KINDS)
    assert len({explain.suggestion(finding) for finding in findings}) == len(KINDS)
