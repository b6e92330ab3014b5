"""Values are written into a file of settings, and every other byte of it stays; else it is refused and stays whole."""

import tomllib
from pathlib import Path

import pytest
import yaml

from callfuse.errors import ConfigError
from callfuse.reference.writing import replace_file, section_in, written_into

VALUES = {"max_repeats": 5, "detectors": {"no_news": 7, "cycle": False}}

YAML = """\
# Ours.
serve: {upstream: https://example.test}   # the vendor
tool_call_loop:
  # as agreed
  mode: observe
  max_repeats: 3   # not 2
  detectors:
    no_news: 4

    # laps
    cycle: {laps: 3, most: warn}
store: redis://localhost   # the end
"""


def test_yaml_keeps_comments_and_order() -> None:
    """Values are replaced where they stand, new keys come at the head of their section."""
    values = {"max_repeats": 5, "max_calls": 40, "detectors": {"no_news": 7, "cycle": {"laps": 0}, "same_error": False}}
    assert written_into(YAML, "c.yaml", values) == (
        YAML.replace("max_repeats: 3 ", "max_repeats: 5 ")
        .replace("no_news: 4", "no_news: 7")
        .replace("{laps: 3, most", "{laps: 0, most")
        .replace("  mode: observe", "  max_calls: 40\n  mode: observe")
        .replace("    no_news", "    same_error: false\n    no_news")
    )


TOML = """\
# Ours.
store = "redis://localhost"   # a store

[tool_call_loop]
max_repeats = 3   # not 2
mode = "observe"

[tool_call_loop.detectors]
no_news = 4
[serve]
upstream = "https://example.test"
"""


def test_toml_keeps_comments_and_order() -> None:
    """In the tables in which they stand, or belong."""
    assert written_into(TOML, "c.toml", VALUES | {"max_calls": 40}) == (
        TOML.replace("max_repeats = 3 ", "max_repeats = 5 ")
        .replace("no_news = 4", "cycle = false\nno_news = 7")
        .replace("[tool_call_loop]\n", "[tool_call_loop]\nmax_calls = 40\n")
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", ""),
        ("c.yaml", "serve: {port: 80}"),
        ("c.yaml", "tool_call_loop:\nserve: {port: 80}\n"),
        ("c.yaml", "tool_call_loop: {}\n"),
        ("c.yaml", "tool_call_loop: {mode: observe}\n"),
        ("c.yaml", "tool_call_loop: {max_repeats: 2, detectors: {no_news: 3}}"),
        ("c.yaml", "tool_call_loop:\n    detectors: {cycle: true}\n"),
        ("c.yaml", "tool_call_loop:\n  max_repeats:\n    3\n  detectors:\n    cycle: 3\n# end"),
        ("c.yaml", "base: &b {max_repeats: 2}\ntool_call_loop:\n  <<: *b\n  mode: warn\n"),
        ("c.yaml", "# one\r\ntool_call_loop:\r\n  max_repeats: 4\r\n"),
        ("c.toml", ""),
        ("c.toml", "[serve]\nport = 80"),
        ("c.toml", "tool_call_loop.max_repeats = 4\n"),
        ("c.toml", "[tool_call_loop.detectors]\nno_news = 9 # x\n"),
        ("c.toml", "[tool_call_loop]\ndetectors.no_news = 9\n"),
    ],
)
def test_any_way_of_writing_a_section(name: str, text: str) -> None:
    """The file holds what it held, with these values; lines end as they did."""
    try:
        edited = written_into(text, name, VALUES, ("A comment.",))
    except ConfigError:
        assert text == "tool_call_loop.max_repeats = 4\n"
        return
    load = tomllib.loads if name.endswith(".toml") else yaml.safe_load
    before, after = load(text) or {}, load(edited)
    section = after.pop("tool_call_loop")
    assert section == section_in(edited, name)
    assert (section["max_repeats"], section["detectors"]) == (5, {"no_news": 7, "cycle": False})
    before.pop("tool_call_loop", None)
    assert after == before
    assert edited.count("\r\n") in (0, edited.count("\n"))
    assert ("\r" in edited) == ("\r" in text)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("c.yaml", "base: &b {max_repeats: 2}\ntool_call_loop: *b\n", "cannot be edited safely"),
        ("c.yaml", "tool_call_loop: [", "is not valid YAML"),
        ("c.yaml", "- a\n", "contains no mapping"),
        ("c.toml", "tool_call_loop = {max_repeats = 2, mode = 'warn'}\n", "cannot be edited safely"),
        ("c.toml", "[tool_call_loop", "is not valid TOML"),
    ],
)
def test_what_cannot_be_edited_is_refused(name: str, text: str, what: str) -> None:
    """Nothing is guessed: the message says what to do."""
    with pytest.raises(ConfigError, match=what):
        written_into(text, name, VALUES)


def test_a_file_is_replaced_at_once_with_a_backup(tmp_path: Path) -> None:
    """With its mode, through a link, and no backup is overwritten."""
    file, link = tmp_path / "c.yaml", tmp_path / "link.yaml"
    assert replace_file(file, "one") is None
    file.chmod(0o640)
    link.symlink_to(file)
    assert replace_file(link, "two") == tmp_path / "c.yaml.bak"
    assert replace_file(file, "two") is None
    assert replace_file(file, "three") == tmp_path / "c.yaml.bak2"
    assert [one.read_text() for one in (file, tmp_path / "c.yaml.bak", tmp_path / "c.yaml.bak2")] == [
        "three",
        "one",
        "two",
    ]
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.yaml", "c.yaml.bak", "c.yaml.bak2", "link.yaml"]


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half-written is left."""
    file = tmp_path / "c.yaml"
    file.write_text("one")

    def refuse(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="full"):
        replace_file(file, "two")
    assert file.read_text() == "one"
    assert {one.name for one in tmp_path.iterdir()} == {"c.yaml"}
