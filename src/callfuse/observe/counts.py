"""Counts of what happened, by name and label, for tests and for whoever exports them."""

from collections import Counter

MAX_LABELS = 200
"""Pairs of name and label that are counted apart."""


class Counts:
    """Exchanges by outcome, findings by action, failures by cause, in one process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "") -> int:
        """Count one; how many that makes. Labels beyond the limit, which can be from outside, count as `other`."""
        if (name, label) not in self._counts and len(self._counts) >= MAX_LABELS:
            label = "other"
        self._counts[name, label] += 1
        return self._counts[name, label]

    def of(self, name: str, label: str | None = None) -> int:
        """How many of this name, with this label or any."""
        return sum(n for (mine, own), n in self._counts.items() if mine == name and label in (None, own))
