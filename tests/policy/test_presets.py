"""Presets: modes that set more than a ladder, below what their own tier says and above the tiers below."""

from typing import Any

import pytest

from callfuse.config import resolve
from callfuse.conversations.ledger import SessionState
from callfuse.policy.presets import MODES, UNATTENDED, mode_name
from callfuse.policy.rungs import Rung
from callfuse.policy.sections import TierSettings
from callfuse.policy.settings import LoopSettings
from callfuse.policy.tiers import Overrides, explicit_values
from callfuse.reference.effective import effective_rows
from callfuse.stores.values import decode_session, encode_session


def block(**values: Any) -> LoopSettings:
    """The settings of these values."""
    return LoopSettings.model_validate(values)


def sets(settings: LoopSettings) -> tuple[bool, Rung, int]:
    """Whether the same error may be acted on, how far a changing repeat may go in the end, and when the fuse blows."""
    detectors = settings.detectors
    most = detectors.cap("repeat_changing", hard=True, waits=False)
    return detectors.may_withhold("same_error"), most, settings.blow_after


def test_what_it_sets() -> None:
    """Guidance first, and then harder than the default."""
    assert sets(block()) == (False, Rung.WARN, 5)
    assert sets(block(mode="Unattended")) == (True, Rung.BLOCK, 3)
    assert block(mode="unattended").ladder == (Rung.STEER, Rung.BLOCK)
    assert sets(block(mode="observe")) == (False, Rung.WARN, 5)
    below = block(mode="unattended").detectors.cap("repeat_changing", hard=False, waits=False)
    assert below is Rung.WARN


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"blow_after": 0}, (True, Rung.BLOCK, 0)),
        ({"detectors": {"same_error": {"most": "warn"}}}, (False, Rung.BLOCK, 3)),
        ({"detectors": {"same_error": 6}}, (True, Rung.BLOCK, 3)),
        ({"detectors": {"repeat_changing_most_hard": "steer"}}, (True, Rung.STEER, 3)),
    ],
)
def test_what_its_tier_says_wins(given: dict[str, Any], expected: tuple[bool, Rung, int]) -> None:
    """Key by key, in the server's tier and in that of a model."""
    assert sets(block(mode="unattended", **given)) == expected
    of_model = {key: value for key, value in given.items() if key != "blow_after"}
    found = sets(block(models={"openai:*": {"mode": "unattended", **of_model}}).for_exchange("openai:gpt"))
    assert found[:2] == expected[:2]


def test_tiers_below_do_not() -> None:
    """A model, a tool, a session and a command or header that name it are above the server."""
    server = block(blow_after=0, detectors={"same_error": {"limit": 6, "most": "observe"}})
    mode = explicit_values(TierSettings(mode=UNATTENDED))
    assert sets(server.for_exchange("openai:gpt", Overrides(mode))) == (True, Rung.BLOCK, 3)
    assert server.for_exchange("openai:gpt", Overrides(mode)).limit_of("same_error") == 6
    tool = block(per_tool={"look*": {"mode": "unattended"}})
    assert sets(tool.for_tool("lookup").settings)[0]
    assert not sets(tool.for_tool("read").settings)[0]
    assert sets(tool.for_tool("*").settings)[0]


def test_its_name_is_kept() -> None:
    """In the store, and where a mode is shown; the ladder is that of another mode."""
    kept = decode_session(encode_session(SessionState(Overrides({"mode": UNATTENDED}), (), 0.0)))
    assert mode_name(kept.overrides.values["mode"]) == "unattended"
    assert mode_name(MODES["chance_then_block"]) == "chance_then_block"
    assert mode_name((Rung.OBSERVE, Rung.WARN)) is None


def test_it_is_explained() -> None:
    """Each value with the preset that sets it, and where that is named."""
    rows = {row.key: row for row in effective_rows(resolve({"tool_call_loop": {"mode": "unattended"}}, {}))}
    assert (rows["tool_call_loop.mode"].value, rows["tool_call_loop.mode"].source) == ("unattended", "keyword")
    capped = rows["tool_call_loop.detectors.same_error_most"]
    assert (capped.value, capped.tier, capped.source) == ("block", "server", "preset unattended, keyword")
    assert rows["tool_call_loop.blow_after"].origin == "server: preset unattended, keyword"
    both = {"tool_call_loop": {"mode": "unattended", "blow_after": 7}}
    assert {row.key: row for row in effective_rows(resolve(both, {}))}["tool_call_loop.blow_after"].source == "keyword"
    of_model = resolve({"tool_call_loop": {"models": {"openai:*": {"mode": "unattended"}}}}, {})
    row = {row.key: row for row in effective_rows(of_model, "openai:gpt")}["tool_call_loop.blow_after"]
    assert (row.value, row.origin) == (3, "models openai:*, preset unattended: keyword")
