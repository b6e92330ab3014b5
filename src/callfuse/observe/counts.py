"""Count events by name and label, for tests and for hosts that export metrics."""

from collections import Counter
from threading import Lock
from typing import Final

from callfuse.observe.counted import TABLE
from callfuse.observe.events import Event

MAX_LABELS = 200
"""Pairs of name and label that are counted apart, so that labels from outside cannot fill the memory."""
LONGEST_LABEL = 100
"""Characters of a label; the rest is cut."""


_LABELS: Final = {kind: (row.name, row.label) for kind, row in TABLE.items() if row.name}
NAMES: Final = frozenset([name for name, _ in _LABELS.values()])
"""All names that are counted."""


class Counts:
    """The counts of one process, by name and label. `print(counts)` shows all; `docs/settings.md` says what each is.

    May be used from any thread: work on long bodies counts what goes wrong with it from threads of its own.

    counts.of("findings")           # all of a name
    counts.of("findings", "block")  # those with a label

    A sink of events (`observe/bus.py`).
    """

    kinds: Final = frozenset(_LABELS)

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def add(self, name: str, label: str = "") -> int:
        """Count one event; returns the new count. A new label beyond `MAX_LABELS` counts as `other`."""
        label = label[:LONGEST_LABEL]
        with self._lock:
            if (name, label) not in self._counts and len(self._counts) >= MAX_LABELS:
                label = "other"
            self._counts[name, label] += 1
            return self._counts[name, label]

    def take(self, event: Event) -> None:
        """Count an event."""
        self.count(event)

    def count(self, event: Event) -> int:
        """Count an event; returns how many of its name and label there are now, 0 for a kind that is not counted."""
        name, label = _LABELS.get(type(event), ("", None))
        return self.add(name, label(event)) if label is not None else 0

    def __str__(self) -> str:
        """A line for each name: its count, and those of its labels, the most frequent first."""
        counts = self._copy()
        lines = []
        for name in sorted({name for name, _ in counts}):
            labels = [(label, n) for (mine, label), n in counts.most_common() if mine == name and label]
            shown = ", ".join(f"{label} {n}" for label, n in labels)
            lines.append(f"{name}: {_sum_of(counts, name)}{f' ({shown})' if shown else ''}")
        return "\n".join(lines) or "nothing is counted yet"

    def __repr__(self) -> str:
        """The same in one line."""
        return f"<Counts: {'; '.join(str(self).splitlines())}>"

    def of(self, name: str, label: str | None = None) -> int:
        """The count of a name with one label, or with all labels (None)."""
        return _sum_of(self._copy(), name, label)

    def _copy(self) -> Counter[tuple[str, str]]:
        """The counts at this moment: a dict that grows must not be iterated over."""
        with self._lock:
            return self._counts.copy()


def _sum_of(counts: Counter[tuple[str, str]], name: str, label: str | None = None) -> int:
    return sum(n for (mine, own), n in counts.items() if mine == name and label in (None, own))
