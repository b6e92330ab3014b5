"""What commands set, and what they answer."""

from typing import Any

import pytest

from callfuse.commands import CommandResult, parse_commands, run_commands
from callfuse.policy.settings import MODES
from callfuse.policy.tiers import Overrides

KEYS = "tool-loop-detection, tool-loop-max-repeats, tool-loop-ttl, tool-loop-mode"


def ran(text: str, before: Overrides | None = None, **more: Any) -> CommandResult:
    """What the commands of a text do."""
    return run_commands(
        parse_commands(text, "!/").commands, before or Overrides(), status=lambda now: told(now), **more
    )


def told(now: Overrides) -> list[tuple[str, str, str]]:
    """A status of one line."""
    return [("tool-loop-mode", str(len(now.values)), "session")]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("!/set(tool-loop-detection=false)", {"enabled": False}),
        ("!/set(tool_loop_detection_enabled=true)", {"enabled": True}),
        ("!/set(tool-loop-max-repeats=4)", {"max_repeats": 4}),
        ("!/set(tool_loop_max_repeats=0)", {"max_repeats": 0}),
        ("!/set(tool-loop-ttl=120)", {"ttl_seconds": 120.0}),
        ("!/set(tool_loop_ttl_seconds=600)", {"ttl_seconds": 600.0}),
        ("!/set(tool-loop-mode=break)", {"mode": MODES["break"]}),
        ('!/set(tool_loop_mode="chance_then_block")', {"mode": MODES["chance_then_block"]}),
        ("!/set(tool-loop-ttl=9) !/set(tool-loop-ttl=10)", {"ttl_seconds": 10.0}),
        ("!/set(tool-loop-ttl=9, tool-loop-mode=warn) !/unset(tool-loop-ttl)", {"mode": MODES["warn"]}),
    ],
)
def test_set_and_unset(text: str, values: dict[str, Any]) -> None:
    """Under every spelling; the last word counts."""
    after = ran(text)
    assert after.overrides.values == values
    assert not after.failed
    assert after.text.startswith("[callfuse] tool-loop-")


def test_what_was_set_before_stays() -> None:
    """Commands change what they name."""
    before = Overrides({"ttl_seconds": 9.0}, {"search": {"max_repeats": 2}})
    assert ran("!/set(tool-loop-max-repeats=4)", before).overrides == Overrides(
        {"ttl_seconds": 9.0, "max_repeats": 4}, before.tools
    )
    assert ran("!/unset(tool-loop-ttl)", before).overrides == Overrides({}, before.tools)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "!/set(tool-loop-mode=blok)",
            "tool-loop-mode = 'blok': use observe, warn, block, chance_then_block, graduated or unattended.",
        ),
        ("!/set(tool-loop-max-repeats=1)", "tool-loop-max-repeats = '1': use 0 (off) or a whole number from 2."),
        ("!/set(tool-loop-ttl=soon)", "tool-loop-ttl = 'soon': use a number above 0, in seconds."),
        ("!/set(tool-loop-detection)", "tool-loop-detection needs a value: use true or false."),
        ("!/set(tool-loop-tll=9)", "tool-loop-tll cannot be set here; did you mean tool-loop-ttl?"),
        ("!/set(color=red)", f"color cannot be set here; use {KEYS}."),
        ("!/set()", f"set needs key=value; the keys are {KEYS}."),
        ("!/unset()", f"unset needs a key; the keys are {KEYS}."),
        ("!/status " * 60, "more than 50 commands; use at most 50 in a message."),
        ("!/sett(tool-loop-ttl=9)", "!/sett is not a command; did you mean set?"),
        ("!/hepl", "!/hepl is not a command; did you mean help?"),
        ("!/set(mode=warn)", "mode cannot be set here; did you mean tool-loop-mode?"),
        ("!/set(=)", "!/set(...) cannot be read; use !/set(key=value, key=value)."),
    ],
)
def test_what_is_wrong_changes_nothing(text: str, why: str) -> None:
    """And the answer says what is allowed, though other commands beside it were right."""
    before = Overrides({"ttl_seconds": 9.0})
    after = ran(f"!/set(tool-loop-max-repeats=5) {text}", before)
    assert after == CommandResult(before, f"[callfuse] Nothing was changed: {why}", failed=True)


def test_operators_decide_which_keys() -> None:
    """An allow list, and keys that are locked."""
    assert "cannot be set here" in ran("!/set(tool-loop-mode=warn)", keys=["tool-loop-ttl"]).text
    assert "the operator of this server" in ran("!/set(tool-loop-mode=warn)", locked=["tool-loop-mode"]).text
    assert "tool-loop-mode" not in ran("!/help", locked=["tool-loop-mode"]).text


def test_status_and_help() -> None:
    """The status of what has been set so far, and all that can be."""
    assert ran("!/set(tool-loop-mode=warn) !/status").text.endswith("\ntool-loop-mode = 1 (session)")
    text = ran("!/help", prefix="!/").text
    assert all(word in text for word in ("!/set(key=value, ...)", "!/unset", "!/status", *KEYS.split(", ")))
