"""Tiers of settings: which value holds, and which tier it is from."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from callfuse.detect.registry import KINDS
from callfuse.policy.rungs import Rung
from callfuse.policy.sections import (
    CAPS,
    LIMITS,
    ErrorMessages,
    ModelSettings,
    SomeDetectors,
    TierSettings,
    ToolSettings,
    cap_key,
)
from callfuse.policy.settings import MODES, LoopSettings
from callfuse.policy.spending import SomeBudget
from callfuse.policy.tiers import Overrides, explicit_values, origin
from tests.support.examples import more_examples

MODEL, TOOL = "openai:gpt-4o-mini", "search_web"

SERVER, MODEL_TIER, PER_TOOL, SESSION, TOOL_SESSION = range(5)
CAPPED_TO = [Rung.OBSERVE, Rung.WARN, Rung.STEER, Rung.FORCE_TEXT, Rung.ESCALATE]
# For each key a value of its own for each tier that may set it, the lowest tier first.
VALUES: dict[str, dict[int, Any]] = {
    "enabled": dict(enumerate([False, True, False, True, False])),
    "mode": dict(enumerate(["observe", "warn", "block", "graduated", "chance"])),
    "max_repeats": dict(enumerate([5, 6, 7, 8, 9])),
    "max_repeats_changing": dict(enumerate([11, 12, 13, 14, 15])),
    "ttl_seconds": dict(enumerate([60, 61, 62, 63, 64])),
    "similarity_threshold": dict(enumerate([0.5, 0.6, 0.7, 0.8, 0.9])),
    **{f"detectors.{kind}": dict(enumerate([21, 22, 23, 24, 25])) for kind in LIMITS},
    **{f"detectors.{kind}": dict(enumerate([False, True] * 2 + [False])) for kind in KINDS if kind not in LIMITS},
    **{f"detectors.{cap_key(kind, which)}": dict(enumerate(CAPPED_TO)) for kind in KINDS for which in CAPS},
    "detectors.runaway_arguments": dict(enumerate(CAPPED_TO)),
    "detectors.runaway_text": {SERVER: "off", MODEL_TIER: Rung.OBSERVE, SESSION: Rung.WARN},
    "detectors.runaway_reasoning": {SERVER: "off", MODEL_TIER: Rung.OBSERVE, SESSION: Rung.WARN},
    "detectors.runaway_finish": {SERVER: "off", MODEL_TIER: Rung.OBSERVE, SESSION: Rung.WARN},
    **{f"error_messages.{name}": dict(enumerate("abcde")) for name in ErrorMessages.model_fields},
    "budget.by": {SERVER: "turn", MODEL_TIER: "session", SESSION: "credential"},
    "budget.calls": {SERVER: 61, MODEL_TIER: 62, SESSION: 63},
    "budget.tokens": {SERVER: 71, MODEL_TIER: 72, SESSION: 73},
    "budget.seconds": {SERVER: 81, MODEL_TIER: 82, SESSION: 83},
    "budget.warn_at": {SERVER: 0.1, MODEL_TIER: 0.2, SESSION: 0.3},
    "budget.count": {SERVER: True, MODEL_TIER: False, SESSION: True},
    "escalate_model": {SERVER: "a", MODEL_TIER: "b", SESSION: "c"},
    "poll_factor": {SERVER: 2, MODEL_TIER: 3, SESSION: 4},
    "max_calls": {SERVER: 31, MODEL_TIER: 32, SESSION: 33},
    "max_calls_per_answer": {SERVER: 51, MODEL_TIER: 52, SESSION: 53},
    "max_calls_of_tool": {SERVER: 41, MODEL_TIER: 42, PER_TOOL: 43, SESSION: 44, TOOL_SESSION: 45},
    "poller": {PER_TOOL: True, TOOL_SESSION: False},
    "changes_state": {PER_TOOL: True, TOOL_SESSION: False},
    "ignore": {PER_TOOL: ["at"], TOOL_SESSION: ["id"]},
}
OF_NO_TOOL = ("detectors.runaway_text", "detectors.runaway_reasoning", "detectors.runaway_finish")
OF_A_TOOL = ("poller", "changes_state", "ignore")
PAIRS = [(key, low, high) for key, tiers in VALUES.items() for high in tiers for low in tiers if low < high]


def said_by(tier: int, keys: Iterable[str]) -> dict[str, Any]:
    """What a tier says of these keys, as it stands in a file."""
    said: dict[str, Any] = {}
    for key in keys:
        section, _, name = key.partition(".")
        value = VALUES[key][tier]
        if name:
            said.setdefault(section, {})[name] = value
        else:
            said["max_calls" if key == "max_calls_of_tool" and tier in (PER_TOOL, TOOL_SESSION) else key] = value
    return said


def settings(said: Mapping[int, Iterable[str]]) -> LoopSettings:
    """What holds for one exchange where these tiers say something of these keys."""
    says = {tier: said_by(tier, keys) for tier, keys in said.items()}
    server = LoopSettings.model_validate(
        says.get(SERVER, {})
        | {"models": {"openai:gpt-4o*": says.get(MODEL_TIER, {})}, "per_tool": {"search_*": says.get(PER_TOOL, {})}}
    )
    own = explicit_values(ModelSettings.model_validate(says.get(SESSION, {})))
    tool_tiers = explicit_values(ToolSettings.model_validate(says.get(TOOL_SESSION, {})))
    return server.for_exchange(MODEL, Overrides(own, {TOOL: tool_tiers} if tool_tiers else {}))


def held(settings_: LoopSettings, key: str, tool: str = TOOL) -> Any:
    """What holds of a key for a tool, as it stands in a file."""
    found = settings_.for_tool(tool)
    value: Any = found if key in OF_A_TOOL else found.settings
    for name in key.split("."):
        value = getattr(value, name)
    return sorted(value) if key == "ignore" else value


def said_of(key: str, tier: int) -> Any:
    """What a tier says of a key, as settings hold it."""
    value = VALUES[key][tier]
    return MODES[value] if key == "mode" else value


OF_BUDGETS_OWN = {"money", "period"}
"""Keys that need others, prices and `by: credential`: `tests/policy/test_spending.py`."""


def test_every_key_of_a_tier_is_here() -> None:
    """Those of models and tools, and those within their sections."""
    kinds = {key.partition(".")[2] for key in VALUES if key.startswith("detectors.")}
    assert kinds == set(SomeDetectors.model_fields)
    of_budget = {key.partition(".")[2] for key in VALUES if key.startswith("budget.")}
    assert of_budget == set(SomeBudget.model_fields) - OF_BUDGETS_OWN
    keys = {*ModelSettings.model_fields, *ToolSettings.model_fields} - {"detectors", "error_messages", "budget"}
    assert {key for key in VALUES if "." not in key} == keys
    assert all(
        set(VALUES[key]) == ({SERVER, MODEL_TIER, SESSION} if key in OF_NO_TOOL else set(range(5)))
        for key in VALUES
        if key.partition(".")[0] in TierSettings.model_fields
    )


@pytest.mark.parametrize(("key", "low", "high"), PAIRS)
def test_the_higher_tier_wins(key: str, low: int, high: int) -> None:
    """For every pair of tiers and every key."""
    assert held(settings({low: [key], high: [key]}), key) == said_of(key, high)


@more_examples(5)
@given_(said=st.dictionaries(st.integers(0, 4), st.sets(st.sampled_from(sorted(VALUES)))))
def test_the_highest_tier_that_says_it_decides(said: dict[int, set[str]]) -> None:
    """Whatever the others say; where none does, the default."""
    said = {tier: {key for key in keys if tier in VALUES[key]} for tier, keys in said.items()}
    chosen = settings(said)
    default = LoopSettings()
    for key in VALUES:
        tiers = [tier for tier in sorted(said) if key in said[tier]]
        assert held(chosen, key) == (said_of(key, tiers[-1]) if tiers else held(default, key))
        lower = [tier for tier in tiers if tier not in (PER_TOOL, TOOL_SESSION)]
        assert held(chosen, key, "other") == (said_of(key, lower[-1]) if lower else held(default, key))


def test_sections_are_merged_key_by_key() -> None:
    """A tier that turns off one detector says nothing of the others."""
    server = LoopSettings.model_validate(
        {"detectors": {"cycle": 3}, "models": {"openai:*": {"detectors": {"no_news": False}}},
         "per_tool": {"search_*": {"detectors": {"cycle": False}, "error_messages": {"block": "Stop."}}}}
    )  # fmt: skip
    tool = server.for_exchange(MODEL).for_tool(TOOL).settings
    assert (tool.detectors.cycle, tool.detectors.no_news, tool.detectors.unknown_tool) == (0, 0, 3)
    assert (tool.error_messages.block, tool.error_messages.warning) == ("Stop.", None)
    other = server.for_exchange(MODEL).for_tool("read").settings
    assert (other.detectors.cycle, other.detectors.no_news) == (3, 0)
    assert server.detectors.no_news == 4


def test_the_longer_pattern_decides() -> None:
    """Of several that match."""
    server = LoopSettings.model_validate(
        {"per_tool": {"search_web": {"max_repeats": 2}, "search_*": {"max_repeats": 5, "max_calls": 9}, "*": {}}}
    )
    tool = server.for_tool("search_web").settings
    assert (tool.max_repeats, tool.max_calls_of_tool, tool.max_calls) == (2, 9, 0)


def test_globs_know_no_case_and_no_namespace() -> None:
    """A tool goes by its name with its namespace and without; a model by backend and model as one text."""
    server = LoopSettings.model_validate(
        {"per_tool": {"Search_*": {"max_repeats": 5}}, "models": {"*:GPT-*": {"max_repeats": 7}}}
    )
    assert server.for_tool("browser.search_web").settings.max_repeats == 5
    assert server.for_exchange("openai:gpt-5").max_repeats == 7
    assert server.for_exchange("anthropic:claude-x").max_repeats == 3


def test_a_model_is_one_text() -> None:
    """A dot in it begins no name of its own, as it does in a tool's."""
    server = LoopSettings.model_validate({"models": {"1-mini": {"max_repeats": 7}, "claude-*": {"max_repeats": 8}}})
    for model in ("openai:gpt-4.1-mini", "bedrock:anthropic.claude-x"):
        assert server.for_exchange(model).max_repeats == 3


def test_what_a_tool_is() -> None:
    """Pollers and state-changing tools by the block's globs, unless the tool says otherwise."""
    server = LoopSettings.model_validate(
        {"state_changing": ["write_*"], "per_tool": {"wait_less": {"poller": False}, "read": {"ignore": ["at"]}}}
    )
    assert server.for_tool("wait_for_it").poller
    assert not server.for_tool("wait_less").poller
    assert not server.for_tool("get_status").poller
    assert server.for_tool("Write_File").changes_state
    assert server.for_tool("read").ignore == {"at"}


def test_where_a_value_is_from() -> None:
    """The highest tier that sets the key, by name; None is the server or the default."""
    server = LoopSettings.model_validate(
        {"models": {"openai:*": {"detectors": {"cycle": 3}, "max_repeats": 4}},
         "per_tool": {"search_*": {"max_repeats": 5}}}
    )  # fmt: skip
    tiers = server.tiers(MODEL, Overrides({"ttl_seconds": 9.0}, {TOOL: {"mode": MODES["block"]}}), TOOL)
    found = {key: origin(key, tiers) for key in ("max_repeats", "detectors.cycle", "detectors.no_news", "ttl_seconds")}
    assert found == {
        "max_repeats": "per_tool search_*",
        "detectors.cycle": "models openai:*",
        "detectors.no_news": None,
        "ttl_seconds": "session",
    }
    assert origin("mode", tiers) == f"session, tool {TOOL}"
