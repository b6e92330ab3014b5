"""Counts of what happened, by name and label, for tests and for whoever exports them."""

from collections import Counter


class Counts:
    """Exchanges by outcome, findings by action, failures by cause, in one process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "") -> int:
        """Count one; how many that makes."""
        self._counts[name, label] += 1
        return self._counts[name, label]

    def of(self, name: str, label: str | None = None) -> int:
        """How many of this name, with this label or any."""
        return sum(n for (mine, own), n in self._counts.items() if mine == name and label in (None, own))
