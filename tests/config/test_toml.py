"""TOML files: the same settings, the same messages, as far as TOML says where something stands."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.config import load_config
from callfuse.config.files import parse, parse_toml
from callfuse.errors import ConfigError
from tests.support.examples import more_examples

FULL = """\
# what holds for all
[tool_call_loop]
mode = ["warn", "steer",  # in that order
        "block"]
max_repeats = 4

similarity = { algorithm = "jaccard", ignore_case = false }
error_messages.block = \"\"\"
[callfuse] Stopped {tool_name}
after {count} calls.\"\"\"

[tool_call_loop.per_tool."search.web"]
max_repeats = 2

[tool_call_loop.models."openai:gpt-4o*"]
detectors = { cycle = { laps = 3 } }

[serve]
upstream = "https://api.openai.com"
log_level = "WARNING"
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    """By its suffix, in whatever case, with every kind of table."""
    file = tmp_path / "callfuse.TOML"
    file.write_bytes(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode())
    config = load_config(file, {})
    loop = config.tool_call_loop
    assert (loop.max_repeats, loop.ladder, loop.similarity.algorithm) == (4, ("warn", "steer", "block"), "jaccard")
    assert (loop.per_tool["search.web"].max_repeats, config.serve.log_level) == (2, "warning")
    assert loop.for_exchange("openai:gpt-4o-mini").detectors.cycle == 3
    assert loop.error_messages.block == "[callfuse] Stopped {tool_name}\nafter {count} calls."


def test_every_key_knows_its_line() -> None:
    """In tables, inline tables, dotted keys and lists of tables, behind values of several lines and comments."""
    found = parse_toml(FULL + '[[serve.routes]]\npath = "/a"\n[[serve.routes]]\n\npath = "/b"\n', "x.toml").lines
    lines = {".".join(path): line for path, line in found.items()}
    assert lines == {
        "tool_call_loop": 2,
        "tool_call_loop.mode": 3,
        "tool_call_loop.max_repeats": 5,
        "tool_call_loop.similarity": 7,
        "tool_call_loop.similarity.algorithm": 7,
        "tool_call_loop.similarity.ignore_case": 7,
        "tool_call_loop.error_messages": 8,
        "tool_call_loop.error_messages.block": 8,
        "tool_call_loop.per_tool": 12,
        "tool_call_loop.per_tool.search.web": 12,
        "tool_call_loop.per_tool.search.web.max_repeats": 13,
        "tool_call_loop.models": 15,
        "tool_call_loop.models.openai:gpt-4o*": 15,
        "tool_call_loop.models.openai:gpt-4o*.detectors": 16,
        "tool_call_loop.models.openai:gpt-4o*.detectors.cycle": 16,
        "tool_call_loop.models.openai:gpt-4o*.detectors.cycle.laps": 16,
        "serve": 18,
        "serve.upstream": 19,
        "serve.log_level": 20,
        "serve.routes": 21,
        "serve.routes.[0]": 21,
        "serve.routes.[0].path": 22,
        "serve.routes.[1]": 23,
        "serve.routes.[1].path": 25,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[serve]\nport = 70000\n", "serve.port = 70000 (x.toml, line 2): use a whole number from 0 to 65535"),
        ("serve.port = '1'\n\n[tool_call_loop]\nmode = 'blok'", "tool_call_loop.mode = 'blok' (x.toml, line 4): use"),
        ("[tool_call_lop]\n", "tool_call_lop (x.toml, line 1): unknown key; did you mean tool_call_loop?"),
        ("[tool_call_lop.per_tool]\n", "tool_call_lop (x.toml, line 1): unknown key; did you mean tool_call_loop?"),
        ("[[serve]]\nport = 1\n", "serve = [a mapping] (x.toml, line 1): use a mapping with the keys upstream"),
        ("[serve]\nport = 1\nport = 2\n", "x.toml, line 3, column 9: this is not valid TOML: Cannot overwrite a value"),
        ("[serve]\nport = \n", "x.toml, line 2, column 8: this is not valid TOML: Invalid value"),
        ('[serve]\nhost = """a\n', "x.toml, at its end: this is not valid TOML: "),
        ("tool_call_loop:\n", "x.toml, line 1, column 15: this is not valid TOML: "),
        ("tool_call_loop = 3", "tool_call_loop = 3 (x.toml, line 1): use a mapping with the keys enabled, "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_place(text: str, expected: str, tmp_path: Path) -> None:
    """One line with the file, the line and, for TOML itself, the column."""
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert "\n" not in message
    assert message.startswith(expected)


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n[tool_call_loop]\n[serve]\n"])
def test_a_file_that_says_nothing_is_fine(text: str) -> None:
    """It leaves the defaults."""
    layer = parse(text, "x.toml")
    assert (layer.values, layer.problems) == ({}, [])


VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("ab#[]\"'=\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.]", min_size=1, max_size=3), inner),
    max_leaves=8,
)


def written(value: Any) -> str:
    """A value in TOML, texts over several lines where they hold one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        bare = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"""{bare}"""' if "\n" in value else f'"{bare}"'
    if isinstance(value, list):
        return "[" + ",\n".join(map(written, value)) + "\n]"
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {written(below)}' for key, below in value.items()) + "}"
    return str(value)


@more_examples(5)
@given(tables=st.dictionaries(st.text("ab.]", min_size=1, max_size=3), st.dictionaries(st.sampled_from("xyz"), VALUES)))
def test_lines_are_those_of_the_keys(tables: dict[str, dict[str, Any]]) -> None:
    """Whatever the values hold that looks like another key, table or comment."""
    text = ""
    expected: dict[tuple[str, ...], int] = {}
    for table, values in tables.items():
        expected[(table,)] = text.count("\n") + 1
        text += f'["{table}"]  # [comment]\n'
        for key, value in values.items():
            expected[(table, key)] = text.count("\n") + 1
            text += f"{key} = {written(value)}\n"
    found = parse_toml(text, "x.toml")
    assert not found.problems
    assert {path: line for path, line in found.lines.items() if len(path) == 1 or path in expected} == expected
