"""The JSON schema takes what the settings take, and says no to what is plainly wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from callfuse.config import load_config
from callfuse.config.files import parse
from callfuse.errors import ConfigError
from callfuse.policy.settings import MODES
from callfuse.reference.keys import reference
from callfuse.reference.schema import json_schema
from callfuse.reference.template import template
from tests.support.examples import more_examples

SCHEMA = Draft202012Validator(json_schema())

WORDS = [
    "true",
    "Off",
    "NO",
    "y",
    "0",
    "1",
    "2",
    "3.5",
    "1e3",
    "x",
    "",
    "warn",
    "BREAK",
    "Graduated",
    "CHANCE-THEN-BREAK",
    "steer",
    "Force-text",
    "last",
    "jaccard",
    "none",
    "Block",
    "INFO",
    "!/",
]
SCALARS = st.none() | st.booleans() | st.integers(-2, 12) | st.floats(-1, 12) | st.sampled_from([*WORDS, *MODES])
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(
        st.sampled_from(["laps", "rounds", "calls", "limit", "most", "most_hard", "x"]), SCALARS, max_size=2
    )
)
LEAVES = [key.path for key in reference() if not key.section]
SECTIONS = [key.path for key in reference() if key.section]
OF_A_TOOL = ["mode", "max_repeats", "ttl_seconds", "enabled", "poller", "ignore", "max_calls", "detectors"]
ENTRIES: list[tuple[str, ...]] = [("tool_call_loop", "per_tool", "search_*", key) for key in OF_A_TOOL]
ENTRIES += [("tool_call_loop", "models", "openai:*", key) for key in ("mode", "escalate_model", "max_calls_of_tool")]
ENTRIES += [("tool_call_loop", "models", "openai:*", "detectors", "cycle")]


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The file that holds one value."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def takes(file: dict[str, Any]) -> bool:
    """Whether the settings do."""
    try:
        load_config(file, {})
    except ConfigError:
        return False
    return True


@more_examples(5)
@given(path=st.sampled_from(LEAVES + SECTIONS + ENTRIES), value=VALUES)
def test_what_the_settings_take_the_schema_takes(path: tuple[str, ...], value: Any) -> None:
    """For every key and every kind of value."""
    file = nested(path, value)
    if takes(file):
        assert list(SCHEMA.iter_errors(file)) == []


@pytest.mark.parametrize("block", ["admin", "otel"])
def test_off_is_no_content(block: str) -> None:
    """YAML reads `content: off` as false; it means `none`, for both."""
    file = {block: {"content": False}}
    assert getattr(load_config(file, {}), block).content == "none"
    assert list(SCHEMA.iter_errors(file)) == []


@pytest.mark.parametrize("path", LEAVES + SECTIONS, ids=".".join)
def test_some_value_of_each_key_is_refused(path: tuple[str, ...]) -> None:
    """By both: the schema says more than that anything goes."""
    file = nested(path, {"neither": [1]})
    assert not takes(file)
    assert not SCHEMA.is_valid(file)


@pytest.mark.parametrize(
    "file",
    [
        {"tool_call_lop": {}},
        {"tool_call_loop": {"max_repeat": 3}},
        {"tool_call_loop": {"max_repeats": 1}},
        {"tool_call_loop": {"mode": "blok"}},
        {"tool_call_loop": {"mode": ["warn", "stop"]}},
        {"tool_call_loop": {"mode": []}},
        {"tool_call_loop": {"window": 1}},
        {"tool_call_loop": {"similarity_threshold": 2}},
        {"tool_call_loop": {"detectors": {"cycle": 1}}},
        {"tool_call_loop": {"detectors": {"cycle": {"rounds": 3}}}},
        {"tool_call_loop": {"per_tool": {"a": {"window": 3}}}},
        {"tool_call_loop": {"models": {"a": 3}}},
        {"serve": False},
        {"serve": {"routes": {"path": "/a", "upstream": "http://h"}}},
        {"serve": {"routes": [{"path": "/a"}]}},
        {"serve": {"routes": [{"path": "/a", "upstream": "http://h", "backnd": "x"}]}},
        {"serve": {"routes": "/a"}},
        {"serve": {"log_level": "loud"}},
    ],
)
def test_what_is_wrong_the_schema_refuses(file: dict[str, Any]) -> None:
    """The slips that a schema can know."""
    assert not takes(file)
    assert not SCHEMA.is_valid(file)


@pytest.mark.parametrize(
    "routes",
    [
        "/a=http://h",
        ["/a=http://h", {"path": "/b/", "upstream": "https://h/v1", "backend": "vllm"}],
        [{"path": "/b", "upstream": "https://h/v1", "backend": None}],
    ],
)
def test_routes(routes: Any) -> None:
    """As texts and as mappings."""
    file = {"serve": {"routes": routes}}
    assert takes(file)
    assert list(SCHEMA.iter_errors(file)) == []


def test_it_takes_the_file_that_is_written(tmp_path: Any) -> None:
    """A new file is right in an editor too, with its empty sections."""
    import yaml

    assert not parse(template(), "x.yaml").problems
    assert list(SCHEMA.iter_errors(yaml.safe_load(template()))) == []


def test_it_explains() -> None:
    """Editors show the words of the page."""
    loop = json_schema()["$defs"]["LoopSettings"]["properties"]
    assert {name for name, own in loop.items() if "description" not in own} <= {
        "similarity", "budget", "detectors", "error_messages", "commands"
    }  # fmt: skip
    assert json_schema()["title"] == "callfuse"
    Draft202012Validator.check_schema(json_schema())
