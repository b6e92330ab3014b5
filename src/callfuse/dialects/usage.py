"""Combines the token counts of several answers in one exchange.

Output tokens are summed. Input and cached tokens are the last answer's (`usage: last`), because agents take them for
the size of the context and would compact it; with `usage: sum` all are summed.
"""

from typing import Any

Counts = dict[str, Any]


class Usage:
    """Takes the counts of each answer and gives those for the client. `inputs`, `outputs`, `total`: the vendor's
    keys."""

    def __init__(self, inputs: str, outputs: str, total: str = "", *, summed: bool = False) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._total = total
        self._summed = summed
        self._before: Counts = {}
        self._now: Counts = {}

    def see(self, counts: Any) -> Counts:
        """Note an answer's counts so far; returns the total with the answers before, empty if there are none."""
        if isinstance(counts, dict):
            self._now |= counts
            return self.total()
        return {}

    def next_answer(self) -> None:
        """Begin to count another answer."""
        self._before = self.total()
        self._now = {}

    def of_both(self, first: Any, second: Any) -> Counts:
        """The counts for two whole answers as one; empty if the second has none."""
        self.see(first)
        self.next_answer()
        return self.see(second)

    def total(self) -> Counts:
        """The counts for the client."""
        if not self._before:
            return dict(self._now)
        counts = self._before | self._now
        for key, value in counts.items():
            if self._summed or key.startswith(self._outputs.partition("_")[0]):
                counts[key] = sum_of(self._before.get(key), self._now.get(key), value)
        if self._total:
            counts[self._total] = sum(count_of(counts.get(key)) for key in (self._inputs, self._outputs))
        return counts


def count_of(value: Any) -> int | float:
    """The value itself if it is a number, else 0."""
    return value if isinstance(value, int | float) else 0


def sum_of(one: Any, other: Any, either: Any) -> Any:
    """The sum of two counts, or of two objects of counts, key by key."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: sum_of(one.get(key), other.get(key), (one | other)[key]) for key in one | other}
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return one + other
    return either
