"""What may be set for the parts of an answer in which `runaway` is found, and what that comes to."""

from typing import Any

import pytest
from pydantic import ValidationError

from callfuse.detect.kind import ARGUMENTS, FINISH, REASONING, TEXT
from callfuse.detect.runaway import Runaway
from callfuse.policy.explain import seen
from callfuse.policy.ladder import restrict_ladder
from callfuse.policy.rungs import Ladder, Rung
from callfuse.policy.said import verdict_on_growing_text, verdict_on_text
from callfuse.policy.settings import LoopSettings

PARTS = (ARGUMENTS, TEXT, REASONING, FINISH)
FOUND = Runaway(100, 6_244, "Stir it until it is thick. ", True)


def settings(value: Any, **more: Any) -> LoopSettings:
    """The settings with this for the kind."""
    return LoopSettings.model_validate({"detectors": {"runaway": value}, **more})


def caps(value: Any) -> list[str]:
    """What is done at most in each part; `off` where nothing is found."""
    own = settings(value).detectors
    return [
        str(own.cap("runaway", hard=True, waits=False, part=part)) if own.finds("runaway", part) else "off"
        for part in PARTS
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ["block", "warn", "warn", "warn"]),
        ({}, ["block", "warn", "warn", "warn"]),
        (False, ["off", "off", "off", "off"]),
        ({"text": "off"}, ["block", "off", "warn", "warn"]),
        ({"text": False, "reasoning": "Observe"}, ["block", "off", "observe", "warn"]),
        ({"arguments": "steer"}, ["steer", "warn", "warn", "warn"]),
        ({"text": "block", "reasoning": "steer"}, ["block", "block", "steer", "warn"]),
        ({"text": "none", "most": "steer"}, ["steer", "steer", "warn", "warn"]),
        ({"arguments": "off"}, ["off", "warn", "warn", "warn"]),
        ({"most": "observe"}, ["observe", "observe", "observe", "observe"]),
        ({"arguments": "none", "most": "warn"}, ["warn", "warn", "warn", "warn"]),
        ({"finish": "off"}, ["block", "warn", "warn", "off"]),
    ],
)
def test_each_part_by_itself(value: Any, expected: list[str]) -> None:
    """The milder of its own rung and of the cap of the kind."""
    assert caps(value) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            {"text": "blok"},
            "detectors.runaway_text\n  Value error, use off, observe, warn, steer, force_text, escalate,",
        ),
        ({"reasoning": True}, "detectors.runaway_reasoning\n  Value error, use off, observe, warn, steer"),
        ({"arguments": "blok"}, "use off, observe, warn, steer, force_text, escalate, block; did you mean block?"),
        ({"texts": "warn"}, "unknown key 'texts' of runaway; use arguments, text, reasoning, finish, most, most_hard"),
        (7, "use false, true, or a mapping (arguments, text, reasoning, finish, most, most_hard)"),
    ],
)
def test_a_wrong_value_says_what_is_right(value: Any, why: str) -> None:
    """With its key."""
    with pytest.raises(ValidationError) as error:
        settings(value)
    assert why in str(error.value)


def test_a_tool_has_no_text() -> None:
    """But arguments."""
    own = {"write_file": {"detectors": {"runaway": {"arguments": "off"}}}}
    assert not settings(True, per_tool=own).for_tool("write_file").settings.detectors.finds("runaway")
    assert settings(True, per_tool=own).for_tool("*").settings.detectors.finds("runaway")
    with pytest.raises(ValidationError, match="runaway_text cannot be set for a tool; set it for all, for"):
        settings(True, per_tool={"write_file": {"detectors": {"runaway": {"text": "off"}}}})


@pytest.mark.parametrize(
    ("value", "more", "rung"),
    [
        (True, {}, Rung.WARN),
        (True, {"mode": "observe"}, Rung.OBSERVE),
        ({"text": "observe"}, {}, Rung.OBSERVE),
        ({"most": "observe"}, {}, Rung.OBSERVE),
        (True, {"mode": "block"}, Rung.WARN),
    ],
)
def test_the_verdict_on_a_text(value: Any, more: dict[str, Any], rung: Rung) -> None:
    """It names the part in place of a tool, with what is repeated."""
    verdict = verdict_on_text(TEXT, FOUND, settings(value, **more), finding_id="1")
    assert verdict.rung is rung
    assert (verdict.call.full_name, verdict.call.text, verdict.finding.part) == ("(text)", FOUND.unit, TEXT)
    assert (verdict.finding.count, verdict.finding_id) == (FOUND.laps, "1")
    assert seen(verdict.finding) == f"a text that repeats itself ({FOUND.laps} times)"


@pytest.mark.parametrize(
    ("value", "mode", "rung"),
    [
        (True, "block", Rung.WARN),
        ({"text": "block"}, "block", Rung.BLOCK),
        ({"text": "block"}, "chance_then_block", Rung.BLOCK),
        ({"text": "steer"}, "block", Rung.STEER),
        ({"text": "steer"}, "warn", Rung.WARN),
        ({"text": "block"}, "observe", Rung.OBSERVE),
    ],
)
def test_the_verdict_while_it_grows(value: Any, mode: str, rung: Rung) -> None:
    """The last rung of the ladder, as its cap allows it."""
    own = settings(value, mode=mode)
    verdict = verdict_on_growing_text(TEXT, FOUND, own, lambda ladder: ladder)
    assert verdict.rung is rung
    assert own.cuts_texts is rung.withholds


def test_a_model_that_cannot_be_asked_again() -> None:
    """Then a rung that asks is a warning: nothing harder than the cap is taken."""

    def usable(ladder: Ladder) -> Ladder:
        return restrict_ladder(ladder, may_change=True, may_ask=False)

    verdict = verdict_on_growing_text(TEXT, FOUND, settings({"text": "steer"}, mode="chance"), usable)
    assert verdict.rung is Rung.WARN


def test_a_request_that_may_not_be_changed() -> None:
    """The model cannot be told then."""
    verdict = verdict_on_text(REASONING, FOUND, settings(True), may_change=False)
    assert verdict.rung is Rung.OBSERVE
    assert seen(verdict.finding).startswith("reasoning that repeats itself")


def test_what_the_vendor_says() -> None:
    """The reason that it gives stands for what is repeated, once."""
    verdict = verdict_on_text(FINISH, Runaway(0, 10, "repetition", exact=True), settings(True))
    assert (verdict.call.full_name, verdict.call.text) == ("(finish)", "repetition")
    assert (verdict.finding.count, verdict.finding.threshold) == (1, 1)
    assert seen(verdict.finding) == "an answer that the vendor has ended because it repeats itself"
