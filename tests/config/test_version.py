"""`version` in a settings file: without it, old names are read with a warning; with it, they are errors."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.config import load_config
from callfuse.config.versions import CURRENT, RENAMED
from callfuse.errors import ConfigError
from callfuse.reference.schema import json_schema

OLD: list[tuple[dict[str, Any], str, str]] = [
    (
        {"tool_call_loop": {"similarity": {"threshold": 0.9}}},
        "tool_call_loop.similarity.threshold",
        "tool_call_loop.similarity_threshold",
    ),
    (
        {"tool_call_loop": {"similarity": {"metric": "jaccard"}}},
        "tool_call_loop.similarity.metric",
        "tool_call_loop.similarity.algorithm",
    ),
    (
        {"tool_call_loop": {"models": {"openai:*": {"tool_loop_detection_mode": "warn"}}}},
        "tool_call_loop.models.openai:*.tool_loop_detection_mode",
        "tool_call_loop.models.openai:*.mode",
    ),
    ({"serve": {"allowed_hosts": ["guard.example"]}}, "serve.allowed_hosts", "serve.hosts"),
]


def problem(source: Any) -> str:
    """The error that settings raise."""
    with pytest.raises(ConfigError) as caught:
        load_config(source, {})
    return str(caught.value)


@pytest.mark.parametrize(("source", "old", "new"), OLD, ids=lambda one: one if isinstance(one, str) else "")
def test_an_old_name_is_read_with_a_warning(
    source: dict[str, Any], old: str, new: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names both names, the place and what to write, once in a process."""
    file = tmp_path / "old.yaml"
    file.write_text(text := yaml.safe_dump(source), encoding="utf-8")
    [line] = [number for number, one in enumerate(text.splitlines(), 1) if old.rpartition(".")[2] in one]
    assert load_config(file, {}) == load_config(file, {}) != load_config({}, {})
    [message] = [record.getMessage() for record in caplog.records]
    assert message == (
        f"{old} ({file}, line {line}): renamed to {new} in version 1 of the settings file, and read as that; "
        "rename it and set `version: 1`"
    )


@pytest.mark.parametrize(("source", "old", "new"), OLD, ids=lambda one: one if isinstance(one, str) else "")
def test_an_old_name_in_a_file_of_this_version_is_an_error(source: dict[str, Any], old: str, new: str) -> None:
    """It names the new name."""
    assert problem({"version": 1, **source}) == f"{old} (keyword): unknown key; since version 1 it is {new}"


def test_toml_names_lines_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In both formats a warning has its place."""
    file = tmp_path / "old.toml"
    file.write_text("[tool_call_loop.similarity]\n\nmetric = 'jaccard'\n", encoding="utf-8")
    assert load_config(file, {}).tool_call_loop.similarity.algorithm == "jaccard"
    assert f"tool_call_loop.similarity.metric ({file}, line 3): renamed" in caplog.text


def test_a_file_of_this_version_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And sets what it sets."""
    file = tmp_path / "new.yaml"
    file.write_text(f"version: {CURRENT}\ntool_call_loop: {{max_repeats: 4}}\n", encoding="utf-8")
    assert load_config(file, {}).tool_call_loop.max_repeats == 4
    assert caplog.records == []


def test_a_later_version_is_an_error(tmp_path: Path) -> None:
    """One line, with the place: what else the file has may be right for the later callfuse."""
    file = tmp_path / "later.yaml"
    file.write_text("tool_call_loop: {unheard: 1}\nversion: 2\n", encoding="utf-8")
    assert problem(file) == (
        f"version = 2 ({file}, line 2): this callfuse reads version 1; install a callfuse that reads version 2"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (True, "true"), ("1", "'1'"), (1.0, "1.0"), (None, "null"), ([1], "[1]")]
)
def test_what_is_no_version_is_an_error(value: Any, shown: str) -> None:
    """The only one is 1."""
    assert problem({"version": value}) == f"version = {shown} (keyword): use 1, or leave it out"


def test_the_schema_knows_this_version_only() -> None:
    """Editors mark names that it no longer has."""
    schema = json_schema()
    assert schema["properties"]["version"]["const"] == CURRENT
    for old in RENAMED:
        section = schema["$defs"]
        names = {name for one in section.values() for name in one.get("properties", {}) if name == old[-1]}
        assert names == set()
