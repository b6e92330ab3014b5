"""The file that `config init` writes: right as it is, and the defaults in so many words."""

import re
from pathlib import Path

import pytest

from callfuse.config import Config, load_config
from callfuse.config.files import parse
from callfuse.policy.sections import ModelSettings, ToolSettings
from callfuse.reference.keys import reference
from callfuse.reference.template import template

SUFFIXES = pytest.mark.parametrize("suffix", ["yaml", "toml"])


def uncommented(text: str) -> str:
    """Every key set."""
    return re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.MULTILINE)


@SUFFIXES
def test_it_says_nothing(suffix: str) -> None:
    """As it is written, it sets no key."""
    layer = parse(template(toml=suffix == "toml"), f"x.{suffix}")
    assert (layer.values, layer.problems) == ({}, [])


@SUFFIXES
def test_it_says_the_defaults(suffix: str, tmp_path: Path) -> None:
    """With every key uncommented, each key is set, to its default."""
    file = tmp_path / f"x.{suffix}"
    file.write_text(uncommented(template(toml=suffix == "toml")), encoding="utf-8")
    assert load_config(file, {}) == Config()
    said = set(parse(file.read_text(encoding="utf-8"), f"x.{suffix}").values)
    tables = {("tool_call_loop", "per_tool"), ("tool_call_loop", "models"), ("tool_call_loop", "budget", "prices")}
    every = {key.path for key in reference() if not key.section} - tables
    without = {key.path for key in reference() if key.default is None} if suffix == "toml" else set()
    assert said == every - without


@SUFFIXES
def test_it_explains_every_key(suffix: str) -> None:
    """Each key has its words, its variable where it has one, and the keys that its entries have."""
    text = re.sub(r"\s*\n\s*# ", " ", template(toml=suffix == "toml"))
    for key in reference():
        assert key.text
        assert " ".join(key.text.split()) in text
        assert key.variable in text
    for below in (ToolSettings, ModelSettings):
        assert f"Each may have the keys {', '.join(below.model_fields)}." in text
