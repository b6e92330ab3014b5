"""Counts events in one table, which logs, the rates of the live page, hosts and tests read."""

from collections import Counter
from collections.abc import Callable, Collection
from threading import Lock
from time import time
from typing import Final

from callfuse.observe.counted import TABLE, Key, rates_of
from callfuse.observe.events import Event, FindingSeen, HoldEnded, TokensSpent
from callfuse.observe.labels import OTHER
from callfuse.observe.rates import BUCKET_S, Rates
from callfuse.observe.saved import Saved, amounts_of

MAX_KEYS: Final = 1000
"""Keys of one kind of event that are counted separately. The limit keeps foreign labels from filling the memory."""
LONGEST_LABEL = 100
"""Characters of a label; the rest is cut."""

_KEYS: Final = {kind: row.key for kind, row in TABLE.items()}
NAMES: Final = frozenset([row.name for row in TABLE.values() if row.name])
"""All names that are shown."""


class Counts:
    """The counts of one process, by name and label. `print(counts)` shows all; `docs/settings.md` says what each is.

    May be used from any thread: threads that work on long bodies count their failures here, too.

    counts.of("findings")           # all of a name
    counts.of("findings", "block")  # those with a label

    A sink of events (`observe/bus.py`). `clock`: Unix seconds, for the rates.
    """

    kinds: Final = frozenset(_KEYS)

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._counts: dict[type[Event], dict[Key, int]] = {kind: {} for kind in _KEYS}
        self._clock = clock
        self._saved = Saved()
        self._rates = Rates()
        self._rated: Counter[str] = Counter()
        self._ends = 0.0
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Count an event."""
        kind = type(event)
        key_of = _KEYS.get(kind)
        if key_of is None:
            return
        key, now, counts = key_of(event), self._clock(), self._counts[kind]
        with self._lock:
            if now >= self._ends:
                self._rate(now)
            if key not in counts:
                key = bounded(key, counts, MAX_KEYS)
            counts[key] = counts.get(key, 0) + 1
            if isinstance(event, HoldEnded):
                self._rates.add("held_s", now, event.seconds)
            elif isinstance(event, TokensSpent):
                for name, amount in rates_of(event).items():
                    self._rates.add(name, now, amount)
            elif isinstance(event, FindingSeen):
                for name, amount in amounts_of(event, self._saved.by(event)).items():
                    self._rates.add(name, now, amount)

    def rates(self) -> Rates:
        """Return the rates that the page shows, up to date."""
        with self._lock:
            self._rate(self._clock())
        return self._rates

    def __str__(self) -> str:
        """Return a line for each name: its count, and the counts of its labels, the most frequent first."""
        shown = self._shown()
        lines = []
        for name in sorted({name for name, _ in shown}):
            labels = [f"{label} {n}" for (mine, label), n in shown.most_common() if mine == name and label]
            lines.append(f"{name}: {_sum_of(shown, name)}" + (f" ({', '.join(labels)})" if labels else ""))
        return "\n".join(lines) or "nothing is counted yet"

    def __repr__(self) -> str:
        """Return the lines of `str` as one line."""
        return f"<Counts: {'; '.join(str(self).splitlines())}>"

    def of(self, name: str, label: str | None = None) -> int:
        """Return the count of a name with one label, or with all labels (None)."""
        return _sum_of(self._shown(), name, label)

    def _shown(self) -> Counter[tuple[str, str]]:
        """Return the counts at this moment, by name and label."""
        found: Counter[tuple[str, str]] = Counter()
        with self._lock:
            for kind, counts in self._counts.items():
                row = TABLE[kind]
                for key, count in counts.items() if row.name else ():
                    found[row.name, row.label(key)] += count
        return found

    def _rate(self, now: float) -> None:
        """Add the events since the last call to the rates of the previous bucket, and begin that of `now`."""
        counted: Counter[str] = Counter()
        for kind, counts in self._counts.items():
            for key, count in counts.items():
                counted[TABLE[kind].rate(key)] += count
        for name, count in (counted - self._rated).items():
            if name:
                self._rates.add(name, self._ends - BUCKET_S, count)
        self._rated = counted
        self._ends = (now // BUCKET_S + 1) * BUCKET_S


def bounded(key: Key, known: Collection[Key], most: int) -> Key:
    """Return a key with its labels cut, or a key of `other` labels if it is new and `most` keys are known."""
    key = tuple([label[:LONGEST_LABEL] for label in key])
    return key if key in known or len(known) < most else (OTHER,) * len(key)


def _sum_of(counts: Counter[tuple[str, str]], name: str, label: str | None = None) -> int:
    return sum(n for (mine, own), n in counts.items() if mine == name and label in (None, own))
