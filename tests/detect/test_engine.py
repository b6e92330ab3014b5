"""The engine: what a whole round brings, which tools are suspect, and what the pre-check sees."""

from typing import Any

import pytest

from callfuse.detect import Engine
from callfuse.detect.budget import ToolBudget
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.repeat import Repeat
from callfuse.model import NOWHERE, Delivery, PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings, Rung
from tests.detect.timelines import call, calls, found, past, rounds, timeline

LOOP = ("b=y", "a=x", "a=x")
BLOCKED = (*LOOP, "!!a")


def judged(pending: str, *texts: str, refused: str = "") -> list[str]:
    """The ids of the calls in which something is found."""
    engine = Engine(timeline(*texts), LoopSettings())
    signatures = [call(word).signature for word in refused.split()]
    return [one.id for one, _ in engine.judge_round(calls(pending), signatures)]


@pytest.mark.parametrize(
    ("pending", "found"),
    [
        ("a", ["pending0"]),
        ("a a", ["pending0", "pending1"]),
        ("b a", ["pending1"]),
        ("a b", ["pending0"]),
        ("a c", []),
        ("c a", []),
        ("a a1", []),
        ("b", []),
        ("c", []),
        ("", []),
    ],
)
def test_a_round_is_judged_as_a_whole(pending: str, found: list[str]) -> None:
    """A new call beside the loop, before or after it, is progress; a known one is not."""
    assert judged(pending, *LOOP) == found


def test_two_loops_of_one_round() -> None:
    """Each is found by itself."""
    assert judged("b a", "a=x b=y", "b=y a=x") == ["pending0", "pending1"]


def test_one_finding_of_a_batch_does_not_spare_the_others() -> None:
    """All calls of a round are judged."""
    assert judged("a b d c", "d=z c=w", "a=x b=y", "a=x b=y") == ["pending0", "pending1"]


def test_news_does_not_free_what_was_refused() -> None:
    """In a steered answer the loop has had its chance; nor does it free a call that was blocked."""
    assert judged("a c", *LOOP, refused="a") == ["pending0"]
    assert judged("a c", *BLOCKED) == ["pending0"]


def test_what_does_not_end_on_news() -> None:
    """An unknown tool stays unknown whatever comes beside it, and a budget spent."""
    engine = Engine(timeline("x=!q", "y=!q", tools={"a"}), LoopSettings())
    assert [one.id for one, _ in engine.judge_round(calls("x a"))] == ["pending0"]
    spent = Engine(timeline("a=x", "b=y"), LoopSettings(max_calls=2))
    assert [one.id for one, _ in spent.judge_round(calls("c d"))] == ["pending0", "pending1"]


def test_a_call_without_a_name_is_no_evidence() -> None:
    """Neither found nor news, neither progress nor a round between."""
    engine = Engine(timeline("=x", "=x", "=x"), LoopSettings())
    assert engine.judge(call("")) is None
    assert not engine.is_news(call(""))
    assert judged("a ", *LOOP) == ["pending0"]
    assert judged("a", "a=x", "=q", "a=x =q") == ["pending0"]
    assert judged("a", "=q", "=q", "=q") == []


def test_the_hardest_finding_wins() -> None:
    """Six equal calls are soft as `repeat_changing` and hard as `repeat`; all that hit are named."""
    finding = Engine(timeline(*["a=x"] * 5), LoopSettings()).judge(call("a"))
    assert finding is not None
    assert (finding.kind, finding.hard) == ("repeat", True)
    assert finding.kinds == ("repeat", "repeat_changing", "no_news")


@pytest.mark.parametrize(
    ("texts", "suspects"),
    [
        ((), []),
        (("a=x",), []),
        (("a=x", "a=x"), ["a"]),
        (("a=x", "a1=x"), []),
        (("a=x b=y", "b=y a=x"), ["a", "b"]),
        (("a=x", "b=y", "a=x"), ["b"]),
        (("a=x", "b=y", "c=z", "b=y", "a=x", "c=z"), ["a", "b", "c"]),
        (("a=x", "a=x", "!!a", "b=y", "a=z", "c=w"), []),
        (("a=x", "a=x", "!!a", "!b"), ["a"]),
    ],
)
def test_suspects(texts: tuple[str, ...], suspects: list[str]) -> None:
    """In a healthy timeline none; else the tools of which some call could be found."""
    assert sorted(Engine(timeline(*texts), LoopSettings()).suspects()) == suspects


def test_any_tool_may_be_suspect() -> None:
    """Where it does not matter which is called, or what another tool's settings would find matters."""
    spent = LoopSettings(max_calls=2)
    assert [*Engine(timeline("a=x"), spent).suspects()] == []
    assert [*Engine(timeline("a=x", "b=y"), spent).suspects()] == ["b", ANY_TOOL]
    own = LoopSettings.model_validate({"enabled": False, "max_calls": 2, "per_tool": {"z": {"enabled": True}}})
    engine = Engine(timeline("a=x", "b=y"), own)
    assert [*engine.suspects()] == [ANY_TOOL]
    assert (engine.could_fire("a"), engine.could_fire("z")) == (False, True)
    of_tool = LoopSettings.model_validate({"per_tool": {"a": {"max_calls": 1, "mode": "block"}}})
    engine = Engine(timeline("a=x"), of_tool)
    assert ANY_TOOL in engine.suspects()
    assert found(ToolBudget(), timeline("a=x"), of_tool, call("a5")) is not None
    assert not engine.could_fire("b")


def test_the_loosest_settings() -> None:
    """What holds for any tool is not stricter than what holds for some."""
    same = LoopSettings()
    assert same.for_tool(ANY_TOOL).settings is same
    block: dict[str, Any] = {
        "mode": "warn",
        "ttl_seconds": 100,
        "max_calls_of_tool": 9,
        "detectors": {"unknown_tool": 5},
        "per_tool": {
            "a*": {"enabled": False, "ttl_seconds": 50, "detectors": {"stagnation": 4}},
            "b": {"mode": "block", "ttl_seconds": 500, "max_calls": 4, "similarity_threshold": 0.7},
        },
    }
    found = LoopSettings.model_validate(block).for_tool(ANY_TOOL).settings
    assert (found.enabled, found.ttl_seconds, found.max_calls_of_tool, found.similarity_threshold) == (
        True,
        500,
        4,
        0.7,
    )
    assert (found.detectors.unknown_tool, found.detectors.stagnation, found.ladder) == (5, 4, (Rung.BLOCK,))


def test_disabled_for_a_tool() -> None:
    """Nothing is found in its calls, whatever the kind; others are judged as ever."""
    settings = LoopSettings.model_validate({"per_tool": {"a": {"enabled": False}}})
    engine = Engine(timeline("a=x b=y", "a=x b=y"), settings)
    assert [*engine.suspects()] == ["b"]
    assert [one.id for one, _ in engine.judge_round(calls("a b"))] == ["pending1"]


def test_a_namespace_is_part_of_the_tool() -> None:
    """Equal names of two toolsets are two tools; a bare name asks for both."""

    def named(namespace: str) -> ToolCall:
        return ToolCall("1", "a", "{}", namespace)

    before = Timeline([Round((PastCall(named("one"), Result("x")),), at) for at in (2, 1)])
    engine = Engine(before, LoopSettings())
    assert found(Repeat(), before, LoopSettings(), named("one")) is not None
    assert found(Repeat(), before, LoopSettings(), named("two")) is None
    assert sorted(engine.suspects()) == ["a", "one.a"]
    assert [*engine.possible("a")] == [*engine.possible("one.a")] != []
    assert not engine.could_fire("two.a")
    own = LoopSettings.model_validate({"per_tool": {"one.*": {"enabled": False}}})
    assert [*Engine(before, own).suspects()] == []


@pytest.mark.parametrize(
    ("texts", "healthy"),
    [
        (("a=x", "b=y"), True),
        (("a=x", "a=x"), False),
        (("a=x", *[f"b{at}=y" for at in range(9)], "a=x"), False),
        (("a=x", *[f"b{at}=y" for at in range(10)], "a=x"), True),
        (("a=x", *[f"!b{at}" for at in range(30)], "a=x"), False),
        (("a=x", *["=q"] * 30, "a=x"), False),
        (("a=x", "=q"), True),
        (("a=x", "!!c", "b=y"), False),
        (("x=!q",), False),
        (("-a=x", "a1=x"), True),
        (("-a=x", "a=x"), False),
    ],
)
def test_the_pre_check(texts: tuple[str, ...], healthy: bool) -> None:
    """True where the newest round is new to the window, however many withheld or nameless calls stand in it."""
    assert Engine(timeline(*texts, tools={"a", "b", "c"}), LoopSettings()).can_fire is not healthy


def test_what_a_round_has_without_its_namespace() -> None:
    """A call that goes by its bare name there is the same tool's, if its signature is, and is foreseen and found."""
    pending = ToolCall("1", "a", "{}", namespace="one")
    kept = ToolCall("1", "a", "", signature=pending.signature, has_arguments=False)
    dropped = PastCall(kept, outcome=past("a=x").outcome, delivery=Delivery.DROPPED)
    engine = Engine(Timeline([Round((dropped,), NOWHERE)] * 2), LoopSettings())
    assert engine.could_fire("a")
    assert [finding.kind for _, finding in engine.judge_round([pending])] == ["repeat"]


def test_equal_calls_of_a_round_are_one() -> None:
    """In whatever order: executed if one was, with all that came of them, in the highest place of any."""
    for text in ("a=x a=y !a", "!a a=y a=x"):
        (round_,) = rounds(text)
        one = round_.find(call("a").signature)
        assert one is not None
        assert len(round_.distinct) == 1
        assert (one.withheld, one.step) == (False, 1)
        assert one.outcome not in (None, past("a=x").outcome, past("a=y").outcome)
    digests = {rounds(text)[0].distinct[0].outcome for text in ("a=x a=y", "a=y a=x", "a=y a=x a=x")}
    assert len(digests) == 1
    assert rounds("a a=x")[0].distinct[0].outcome == past("a=x").outcome
    failed = rounds("a=!e a=x")[0].distinct[0].outcome
    assert failed is not None
    assert failed.error == b""
