"""Tiers of settings: which value holds, and which tier it is from."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.policy.settings import MODES, LoopSettings
from callfuse.policy.tiers import Overrides, origin

MODEL, TOOL = "openai:gpt-4o-mini", "search_web"

# For each key that every tier may set: a value of its own for each, the lowest tier first.
VALUES: dict[str, list[Any]] = {
    "enabled": [False, True, False, True, False],
    "mode": ["observe", "warn", "block", "graduated", "chance"],
    "max_repeats": [5, 6, 7, 8, 9],
    "max_repeats_changing": [11, 12, 13, 14, 15],
    "ttl_seconds": [60, 61, 62, 63, 64],
    "similarity_threshold": [0.5, 0.6, 0.7, 0.8, 0.9],
}


def value_of(key: str, tier: int) -> Any:
    """What a tier says, as settings hold it."""
    value = VALUES[key][tier]
    return MODES[value] if key == "mode" else value


def settings(said: Mapping[int, Mapping[str, Any]]) -> LoopSettings:
    """What holds for one exchange where these tiers say these things."""
    server = LoopSettings.model_validate(
        dict(said.get(0, {}))
        | {"models": {"openai:gpt-4o*": said.get(1, {})}, "per_tool": {"search_*": said.get(2, {})}}
    )
    own = {key: value_of(key, 3) for key in said.get(3, {})}
    of_tool = {key: value_of(key, 4) for key in said.get(4, {})}
    return server.for_exchange(MODEL, Overrides(own, {TOOL: of_tool} if of_tool else {}))


@pytest.mark.parametrize("key", VALUES)
@pytest.mark.parametrize(("low", "high"), [(low, high) for high in range(1, 5) for low in range(high)])
def test_the_higher_tier_wins(key: str, low: int, high: int) -> None:
    """For every pair of tiers and every key."""
    chosen = settings({tier: {key: VALUES[key][tier]} for tier in (low, high)})
    assert getattr(chosen.for_tool(TOOL).settings, key) == value_of(key, high)


@given(said=st.dictionaries(st.integers(0, 4), st.sets(st.sampled_from(sorted(VALUES)))))
def test_the_highest_tier_that_says_it_decides(said: dict[int, set[str]]) -> None:
    """Whatever the others say; where none does, the default."""
    chosen = settings({tier: {key: VALUES[key][tier] for key in keys} for tier, keys in said.items()})
    default = LoopSettings()
    for key in VALUES:
        tiers = [tier for tier in sorted(said) if key in said[tier]]
        expected = value_of(key, tiers[-1]) if tiers else getattr(default, key)
        assert getattr(chosen.for_tool(TOOL).settings, key) == expected
        lower = [tier for tier in tiers if tier not in (2, 4)]
        expected = value_of(key, lower[-1]) if lower else getattr(default, key)
        assert getattr(chosen, key) == expected
        assert getattr(chosen.for_tool("other").settings, key) == expected


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
