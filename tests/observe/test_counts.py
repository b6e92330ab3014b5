"""Counts print themselves, and every name is documented."""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callfuse.observe.counts import NAMES, Counts

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


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads give way as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_lose_no_event() -> None:
    """Each event gets a number of its own, and new labels come while others read."""
    counts = Counts()

    def count(thread: int) -> set[int]:
        for n in range(40):
            counts.add("not_guarded", f"{thread} {n}")
            assert str(counts)
        return {counts.add("fail_open") for _ in range(2000)}

    with ThreadPoolExecutor(4) as threads:
        numbers = list(threads.map(count, range(4)))
    assert set[int]().union(*numbers) == set(range(1, 8001))
    assert counts.of("not_guarded") == 160


def test_every_name_is_documented() -> None:
    """And none is that does not exist."""
    section = SETTINGS_PAGE.read_text().partition("## Counts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == NAMES
