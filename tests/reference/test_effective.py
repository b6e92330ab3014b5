"""What holds for a model and a tool, and where it is from."""

from pathlib import Path
from typing import Any

import pytest

from callfuse.config import Resolved, load_config, resolve
from callfuse.policy.settings import MODES
from callfuse.policy.tiers import Overrides
from callfuse.reference.effective import EffectiveSetting, effective_rows
from callfuse.reference.keys import reference

FILE = """\
tool_call_loop:
  mode: [warn, block]
  ttl_seconds: 60
  pollers: [wait]
  models:
    "openai:gpt-4o*":
      max_repeats: 4
      detectors: {cycle: {laps: 5}}
    "openai:gpt-4o-mini": {mode: block}
  per_tool:
    search_*:
      max_repeats: 2
      max_calls: 9
      error_messages: {block: Stop.}
    search_web: {ignore: [time, id], poller: true}
serve: {upstream: "https://me:s3cret@h.example/v1?"}
store: redis://me:s3cret@cache.example/1
"""


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, EffectiveSetting]:
    """The settings of a model and a tool, with the file, a variable and the defaults below."""
    file = tmp_path / "c.yaml"
    file.write_text(FILE.replace("?", ""))
    env = {"CALLFUSE_CONFIG": str(file), "TOOL_LOOP_TTL_SECONDS": "30"}
    return {row.key: row for row in effective_rows(resolve(env=env), "openai:gpt-4o-mini", "search_web")}


@pytest.mark.parametrize(
    ("key", "value", "tier", "source"),
    [
        ("tool_call_loop.window", 10, "default", ""),
        ("tool_call_loop.ttl_seconds", 30, "server", "environment variable TOOL_LOOP_TTL_SECONDS"),
        ("tool_call_loop.mode", "block", "models openai:gpt-4o-mini", "c.yaml, line 9"),
        ("tool_call_loop.detectors.cycle", 5, "models openai:gpt-4o*", "c.yaml, line 8"),
        ("tool_call_loop.detectors.no_news", 4, "default", ""),
        ("tool_call_loop.max_repeats", 2, "per_tool search_*", "c.yaml, line 12"),
        ("tool_call_loop.max_calls_of_tool", 9, "per_tool search_*", "c.yaml, line 13"),
        ("tool_call_loop.max_calls", 0, "default", ""),
        ("tool_call_loop.error_messages.block", "Stop.", "per_tool search_*", "c.yaml, line 14"),
        ("tool_call_loop.error_messages.warning", None, "default", ""),
        ("tool_call_loop.ignore", ["id", "time"], "per_tool search_web", "c.yaml, line 15"),
        ("tool_call_loop.poller", True, "per_tool search_web", "c.yaml, line 15"),
        ("tool_call_loop.changes_state", False, "default", ""),
        ("serve.upstream", "https://***@h.example/v1", "server", "c.yaml, line 16"),
        ("serve.port", 8100, "default", ""),
        ("store", "redis://***@cache.example/1", "server", "c.yaml, line 17"),
        ("store_timeout_s", 0.25, "default", ""),
    ],
)
def test_a_value_with_its_tier_and_source(
    rows: dict[str, EffectiveSetting], key: str, value: Any, tier: str, source: str, tmp_path: Path
) -> None:
    """One row a key; a credential is in none."""
    row = rows[key]
    assert (row.value, row.tier, row.source.replace(f"{tmp_path}/", "")) == (value, tier, source)


def test_every_key_has_a_row(rows: dict[str, EffectiveSetting]) -> None:
    """And the three of a tool, which are there only where one is named."""
    every = {".".join(key.path) for key in reference() if not key.section}
    every -= {"tool_call_loop.per_tool", "tool_call_loop.models"}
    of_tool = {"tool_call_loop.poller", "tool_call_loop.changes_state", "tool_call_loop.ignore"}
    assert set(rows) == every | of_tool
    assert {row.key for row in effective_rows(resolve(env={}))} == every


def test_a_tool_by_the_lists_of_the_block(tmp_path: Path) -> None:
    """A poller that no entry of its own makes one is from the list that does."""
    file = tmp_path / "c.yaml"
    file.write_text("tool_call_loop:\n  pollers: [wait]\n")
    rows = {row.key: row for row in effective_rows(resolve(file, {}), tool="wait")}
    row = rows["tool_call_loop.poller"]
    assert (row.value, row.tier, row.source) == (True, "server", f"{file}, line 2")


def test_what_a_session_has_set(tmp_path: Path) -> None:
    """Over all but what it has set for the tool itself; it has no file, so the source is its command."""
    file = tmp_path / "c.yaml"
    file.write_text(FILE.replace("?", ""))
    session = Overrides({"mode": MODES["warn"], "max_repeats": 5}, {"search_*": {"max_calls": 7}})
    found = effective_rows(resolve(file, {}), "openai:gpt-4o-mini", "search_web", session)
    rows = {row.key.removeprefix("tool_call_loop."): row for row in found}
    told = {key: (rows[key].value, rows[key].origin) for key in ("mode", "max_repeats", "max_calls_of_tool", "window")}
    assert told == {
        "mode": ("warn", "session: command in the chat, or admin page"),
        "max_repeats": (5, "session: command in the chat, or admin page"),
        "max_calls_of_tool": (7, "session, tool search_*: command in the chat, or admin page"),
        "window": (10, "default"),
    }


def test_what_a_program_has_put_together() -> None:
    """A `Config` knows which of its values are none of the defaults; what is resolved stands as it is."""
    given = {
        "tool_call_loop": {"mode": "warn", "per_tool": {"a": {"max_repeats": 2}}},
        "serve": {"routes": [{"path": "/a", "upstream": "http://h"}]},
    }
    resolved = resolve(load_config(given, {}))
    assert resolved == resolve(given, {})
    assert set(resolved.sources.values()) == {"keyword"}
    assert resolve(resolved) is resolved
    assert load_config(resolved) is resolved.config
    assert isinstance(resolved, Resolved)
