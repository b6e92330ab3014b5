"""Count events by name and label, for tests and for hosts that export metrics."""

from collections import Counter

MAX_LABELS = 200
"""Pairs of name and label that are counted apart, so that labels from outside cannot fill the memory."""


class Counts:
    """The counts of one process: exchanges by outcome, findings by action, failures by cause."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "") -> int:
        """Count one event; returns the new count. A new label beyond `MAX_LABELS` counts as `other`."""
        if (name, label) not in self._counts and len(self._counts) >= MAX_LABELS:
            label = "other"
        self._counts[name, label] += 1
        return self._counts[name, label]

    def of(self, name: str, label: str | None = None) -> int:
        """The count of a name with one label, or with all labels (None)."""
        return sum(n for (mine, own), n in self._counts.items() if mine == name and label in (None, own))
