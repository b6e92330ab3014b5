"""Combines the token counts of several answers in one exchange.

Output tokens are summed. Input and cached tokens are the last answer's (`usage: last`), because agents take input
tokens as the size of the context, and would compact it if they were summed; with `usage: sum` all are summed.
"""

import re
from collections.abc import Sequence
from typing import Any

Counts = dict[str, Any]


class TokenUsage:
    """Adds up the token counts of several answers; the client gets one set of counts.

    `outputs`: a pattern for the beginning of the vendor's keys of output tokens. `total`: the key of the total, which
    is the sum of the counts under `parts`.
    """

    def __init__(self, outputs: str, total: str = "", parts: Sequence[str] = (), *, summed: bool) -> None:
        self._is_summed = re.compile("" if summed else outputs).match
        self._total = total
        self._parts = parts
        self._before: Counts = {}
        self._now: Counts = {}

    def see(self, counts: Any) -> Counts:
        """Note an answer's counts so far; return the total with all earlier answers, empty if there are no counts."""
        if isinstance(counts, dict):
            self._now |= counts
            return self.total()
        return {}

    def next_answer(self) -> None:
        """Begin to count another answer."""
        self._before = self.total()
        self._now = {}

    def of_both(self, first: Any, second: Any) -> Counts:
        """Return the counts for two whole answers that are joined; empty if the second has no counts."""
        self.see(first)
        self.next_answer()
        return self.see(second)

    def total(self) -> Counts:
        """Return the counts for the client."""
        if not self._before:
            return dict(self._now)
        counts = self._before | self._now
        for key, value in counts.items():
            if self._is_summed(key):
                counts[key] = _sum(self._before.get(key), self._now.get(key), value)
        if self._total:
            counts[self._total] = sum(value for key in self._parts if isinstance(value := counts.get(key), int | float))
        return counts


def _sum(one: Any, other: Any, either: Any) -> Any:
    """Add two counts, two objects of counts (key by key), or two lists of such objects (by modality)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _sum(one.get(key), other.get(key), (one | other)[key]) for key in one | other}
    if isinstance(one, list) and isinstance(other, list) and all(map(_has_modality, (*one, *other))):
        totals: dict[str, Any] = {}
        for item in (*one, *other):
            totals[item["modality"]] = _sum(totals.get(item["modality"]), item, item)
        return [*totals.values()]
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return one + other
    return either


def _has_modality(item: Any) -> bool:
    """Whether a count is for one modality, as Google's counts are."""
    return isinstance(item, dict) and isinstance(item.get("modality"), str)
