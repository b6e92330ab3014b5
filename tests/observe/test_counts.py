"""Counts print themselves, and every name is documented."""

import re
from pathlib import Path

import callfuse
from callfuse.observe.counts import Counts

ROOT = Path(callfuse.__file__).parent
SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_they_print_themselves() -> None:
    """Names in order, their labels by frequency."""
    counts = Counts()
    assert str(counts) == "nothing is counted yet"
    for label in ("steer", "block", "block"):
        counts.add("findings", label)
    counts.add("callback_errors")
    assert str(counts) == "callback_errors: 1\nfindings: 3 (block 2, steer 1)"
    assert repr(counts) == "<Counts: callback_errors: 1; findings: 3 (block 2, steer 1)>"


def test_every_name_is_documented() -> None:
    """And none is that does not exist."""
    sources = [path.read_text() for path in ROOT.rglob("*.py")]
    used = {name for source in sources for name in re.findall(r"counts\.add\(\s*\"(\w+)\"", source)}
    section = SETTINGS_PAGE.read_text().partition("## Counts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == used
