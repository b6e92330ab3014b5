"""The README is true: its settings hold, its tables are the code's. `tests/docs` runs its blocks and commands."""

import re
from typing import Any

import pytest
import yaml

from callfuse.config import Config, load_config
from callfuse.config.environment import variables
from callfuse.policy.settings import MODES, Rung
from tests.project.sources import PROJECT, blocks, document, quoted, rows

README = document("README.md")
FREE_VALUES = {("serve", "upstream"), *(("tool_call_loop", key) for key in ("error_messages", "per_tool", "models"))}
"""Settings that the README shows with an example, not with their defaults."""


def wrong_settings(block: str) -> list[str]:
    """The keys of a settings block whose value is not the default, or whose comment names a variable not theirs."""
    given: dict[str, dict[str, Any]] = yaml.safe_load(block)
    config = load_config(given, env={}).model_dump()
    default = Config().model_dump()
    wrong = []
    for top, keys in given.items():
        for key in keys:
            if (top, key) not in FREE_VALUES and config[top][key] != default[top][key]:
                wrong.append(key)
            names = re.findall(rf"^  {key}:.*# ((?:CALLFUSE|TOOL_LOOP)_\w+)", block, re.MULTILINE)
            if any(variables().get(name, ())[:2] != (top, key) for name in names):
                wrong.append(key)
    return wrong


def test_the_table_of_kinds_names_all_that_are_on() -> None:
    """Those in the table are on, those in the sentence below it are off; rows lead to the kinds' pages."""
    states = {quoted(kind)[0]: state for kind, *_, state in rows(document("docs/detection.md"), "The kinds")}
    on = {kind for kind, state in states.items() if state.startswith("on")}
    table = README.partition("## What a loop is")[2]
    listed = dict(re.findall(r"^\| \[`(\w+)`\]\(([\w./]+)\) \|", table, re.MULTILINE))
    assert listed == {kind: f"docs/kinds/{kind}.md" for kind in on}
    [off] = re.findall(r"^Off by default: ([^.]+)\.", table, re.MULTILINE)
    assert set(quoted(off)) == states.keys() - on


def test_settings_are_the_defaults() -> None:
    """The block can be used as it stands, changes nothing but its examples, and names the right variables."""
    [block] = blocks(README, "yaml")
    assert wrong_settings(block) == []


@pytest.mark.parametrize(
    "line",
    ["max_repeats: 4", "window: 10  # CALLFUSE_WIDTH", "window: 10  # CALLFUSE_MAX_ROUNDS"],
)
def test_a_wrong_setting_is_found(line: str) -> None:
    """Another value than the default, and a variable that nobody reads or that sets another key, are told."""
    assert wrong_settings(f"tool_call_loop:\n  {line}\n") != []


def test_modes_are_the_settings() -> None:
    """The table has the mode's own ladder for each name, and every mode apart from aliases."""
    table = {
        quoted(mode)[0]: re.findall(r"\*\*(\w+)\*\*", first + last)
        for mode, first, last in rows(README, "What happens")
    }
    named = {mode: ladder for mode, ladder in table.items() if mode in MODES}
    assert set(map(tuple, MODES.values())) == {MODES[mode] for mode in named}
    for mode, ladder in named.items():
        assert list(dict.fromkeys(ladder)) == list(dict.fromkeys(map(str, MODES[mode])))


def test_rungs_are_explained() -> None:
    """Each rung has its line."""
    assert re.findall(r"^- \*\*(\w+)\*\*", README, re.MULTILINE) == list(map(str, Rung))


def test_paths_exist() -> None:
    """The files that the page leads to are there."""
    paths = [text for text in quoted(README) if re.fullmatch(r"[\w./-]+\.(py|md)|[\w-]+/", text)]
    paths += re.findall(r"\]\(([\w./-]+)\)", README)
    assert {"docs/architecture.md", "docs/page.png", "CHANGELOG.md"} <= set(paths)
    assert [path for path in paths if not (PROJECT / path).exists()] == []


def test_it_is_short() -> None:
    """Nobody reads more."""
    assert len(README.splitlines()) <= 165
