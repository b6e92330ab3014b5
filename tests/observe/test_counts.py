"""Counts print themselves, and every name is documented."""

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callfuse.observe.counts import NAMES, Counts
from callfuse.observe.events import AskFailed, FailedOpen, FuseReset, NotGuarded, NotWatched

SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_they_print_themselves() -> None:
    """Names in order, their labels by frequency."""
    counts = Counts()
    assert str(counts) == "nothing is counted yet"
    for cause in ("signed chain", "protocol", "protocol"):
        counts.take(NotGuarded(cause))
    counts.take(FuseReset(()))
    assert str(counts) == "not_guarded: 3 (protocol 2, signed chain 1)\nresets: 1"
    assert repr(counts) == "<Counts: not_guarded: 3 (protocol 2, signed chain 1); resets: 1>"
    counts.take(AskFailed("of no row"))
    assert (counts.of("not_guarded"), counts.of("not_guarded", "protocol"), counts.of("resets")) == (3, 2, 1)
    assert counts.of("nothing") == counts.of("not_guarded", "disconnect") == 0


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads give way as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_lose_no_event() -> None:
    """While new labels come, and others read."""
    counts = Counts()

    def count(thread: int) -> None:
        for n in range(40):
            counts.take(NotGuarded(f"{thread} {n}"))
            assert str(counts)
        for _ in range(2000):
            counts.take(FailedOpen("error: particular"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert counts.of("fail_open", "error") == counts.rates().totals()["fail_open"] == 8000
    assert counts.of("not_guarded") == 160


def test_rates_are_of_the_time_in_which_events_came() -> None:
    """Whenever somebody looks, and wherever a turn of the buckets falls."""
    times = [1000.0, 1009.0, 1010.0, 1035.0]
    clock = iter(times)
    counts = Counts(lambda: next(clock))
    for _ in times:
        counts.take(NotWatched("content-type"))
    clock = iter([1036.0, 1040.0, 1049.0])
    assert counts.rates().series(1049.0)["not_watched"][-5:] == [2, 1, 0, 1, 0]
    counts.take(NotWatched("content-type"))
    assert counts.rates().series(1049.0)["not_watched"][-5:] == [2, 1, 0, 1, 1]


def test_every_name_is_documented() -> None:
    """And none is that does not exist."""
    section = SETTINGS_PAGE.read_text().partition("## Counts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == NAMES
